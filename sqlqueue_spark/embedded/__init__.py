"""A PostgreSQL server from a wheel, for ``sqlqueue server``, the demos and the tests."""

from sqlqueue_spark.embedded.server import GUARDED_ROLE, EmbeddedServer

__all__ = ["GUARDED_ROLE", "EmbeddedServer"]
