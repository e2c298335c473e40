"""Inspects queues: findings, facts about the server, and the checks of the doctor."""
