"""A stream or a copy of a queue goes into a Delta table, each batch and each row once."""
