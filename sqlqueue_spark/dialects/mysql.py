"""MySQL 8 and MariaDB 10.6 and later: outbox tables only."""

from __future__ import annotations

from typing import ClassVar

from sqlqueue_spark.dialects.database import Database


class MySql(Database):
    """The ``mysql`` engine."""

    name: ClassVar[str] = "mysql"
    title: ClassVar[str] = "MySQL"
    quotation_mark: ClassVar[str] = "`"
    longest_outbox: ClassVar[int] = 64

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
