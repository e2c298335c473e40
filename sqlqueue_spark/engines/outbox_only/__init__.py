"""Engines that keep outbox tables and nothing else."""
