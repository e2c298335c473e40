"""Looks at a queue before and while it is used: findings, facts about the server, and the checks of the doctor."""
