"""Administers queues and outboxes without Spark: creates, inspects, reads, fills and cleans them.

The functions take and return plain values. Each opens and closes its own connection.
"""
