"""Administers queues and outboxes without Spark: creates, inspects, reads, fills and cleans them."""
