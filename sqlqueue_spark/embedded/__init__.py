"""A PostgreSQL server from a wheel, for ``sqlqueue server``, the demos and the tests."""

from sqlqueue_spark.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer"]
