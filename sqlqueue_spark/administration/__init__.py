"""Administers queues and outboxes without Spark: creates, inspects, reads, fills and cleans them.

The functions take and return plain values. Each opens and closes its own connection. ``progress`` is called
after each commit with the number of things in it. ``looked`` is called with the number of rows that were read
since its last call.
"""
