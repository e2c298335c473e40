"""Oracle 12.2 and later: outbox tables only."""

from dataclasses import replace
from importlib import resources

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table


class Oracle(Database):
    name = "oracle"
    title = "Oracle"
    sql = resources.files(__package__) / "sql" / "oracle"
    outbox_suffix = "OD"
    # Older versions know names of 30 characters, of which the primary key's takes five more.
    longest_prefix = 25
    longest_outbox = (27, "characters")
    returns_inserted = False

    def quote(self, name: str) -> str:
        # No identifier may hold a double quotation mark; a single one would end the text in outbox_create.
        if {'"', "'"} & set(name):
            raise ConfigurationError(
                f"{name!r} holds a quotation mark, which no name may on {self.title}; leave it out."
            )
        return super().quote(name)

    def outbox_table(self, endpoint: str, schema: str | None = None) -> Table:
        if not endpoint.isascii():
            raise ConfigurationError(
                f"The endpoint {endpoint!r} is not all ASCII, but names of outbox tables on {self.title} "
                "are; choose another name for the endpoint."
            )
        return super().outbox_table(endpoint.upper(), schema)

    def outbox_names(self, table: Table) -> dict[str, str]:
        return {
            "outbox": self.table(table),
            "primary_key": self.quote(f"{table.table}_PK"),
            "dispatched_at": self.table(replace(table, table=f"{table.table}_IX")),
        }
