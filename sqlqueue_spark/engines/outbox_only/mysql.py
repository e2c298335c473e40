"""MySQL 8 and MariaDB 10.6 and later: outbox tables only."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import ClassVar

from sqlqueue_spark.engines.database import Database


class MySql(Database):
    """The ``mysql`` engine."""

    name: ClassVar[str] = "mysql"
    title: ClassVar[str] = "MySQL"
    sql: ClassVar[Traversable] = resources.files(__package__) / "sql" / "mysql"
    longest_outbox: ClassVar[int] = 64

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
