"""A PostgreSQL server from a wheel, for the demo and the tests."""

from sqlqueue_spark.embedded.server import GUARDED_ROLE, EmbeddedServer

__all__ = ["GUARDED_ROLE", "EmbeddedServer"]
