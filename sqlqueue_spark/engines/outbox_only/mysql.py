"""MySQL 8 and MariaDB 10.6 and later: outbox tables only."""

from importlib import resources

from sqlqueue_spark.engines.database import Database


class MySql(Database):
    name = "mysql"
    title = "MySQL"
    sql = resources.files(__package__) / "sql" / "mysql"
    longest_outbox = (64, "characters")
    returns_inserted = False

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        return super().literal(text.replace("\\", "\\\\"))
