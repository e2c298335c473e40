"""What every engine answers, even one that only keeps outboxes: quoted names, statements, outbox tables."""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import ClassVar

from sqlqueue_spark.engines.statements import Statement, read
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table


def length_in(unit: str, text: str) -> int:
    """How many ``bytes`` or ``characters`` a text has.

    Characters as SQL Server counts them: one beyond the first 65,536 takes the place of two.
    """
    if text.isascii():
        return len(text)
    return len(text.encode()) if unit == "bytes" else len(text.encode("utf-16-le", "surrogatepass")) // 2


class Database:
    """One database engine, as far as the outbox needs it."""

    name: ClassVar[str]
    title: ClassVar[str]
    #: Where its statements are, under the same names for every engine.
    sql: ClassVar[Traversable]
    #: None where a name needs no schema.
    default_schema: ClassVar[str | None] = None
    outbox_suffix: ClassVar[str] = "OutboxData"
    #: How long the prefix of an outbox table's name may be; and the name, with the unit in which it counts.
    longest_prefix: ClassVar[int | None] = None
    longest_outbox: ClassVar[tuple[int, str]]
    #: Whether a trigger or a rule may drop rows, which what an insert returns then leaves out.
    drops_rows: ClassVar[bool] = False
    #: Whether ``outbox_add_new`` returns what it has inserted.
    returns_inserted: ClassVar[bool] = True
    #: Most rows that one statement writes, and most message ids that it looks up.
    written: ClassVar[int] = 4_000

    def quote(self, name: str) -> str:
        """One identifier, quoted."""
        return '"' + name.replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        """A text as it is written in a script for people, where nothing can be bound."""
        return "'" + text.replace("'", "''") + "'"

    def bind_texts(self, texts: Sequence[str]) -> object:
        """A set of texts as one parameter."""
        return json.dumps(list(texts), separators=(",", ":"))

    def table(self, table: Table) -> str:
        """A table's full name, quoted; one without a schema is in that of the connection."""
        parts = (table.catalog, table.schema or None, table.table)
        return ".".join(self.quote(part) for part in parts if part is not None)

    def outbox_table(self, endpoint: str, schema: str | None = None) -> Table:
        """An endpoint's outbox table.

        Format: the tables of the .NET persistence, https://docs.particular.net/persistence/sql/.

        :param schema: by default the engine's.
        :raises ConfigurationError: the engine has no table of this name.
        """
        prefix = endpoint.replace(".", "_") + "_"
        table = prefix + self.outbox_suffix
        if not endpoint:
            raise ConfigurationError(
                "An outbox needs the name of an endpoint, which names its table; give one."
            )
        limit = self.longest_prefix
        if limit is not None and len(prefix) > limit:
            raise ConfigurationError(
                f"The endpoint {endpoint!r} gives its outbox table the prefix {prefix!r}, {len(prefix)} "
                f"characters long, but on {self.title} it has at most {limit}; choose a shorter name for the "
                "endpoint."
            )
        longest, unit = self.longest_outbox
        if (length := length_in(unit, table)) > longest:
            raise ConfigurationError(
                f"The endpoint {endpoint!r} calls its outbox table {table!r}, {length} {unit} long, but on "
                f"{self.title} it has at most {longest}; choose a shorter name for the endpoint."
            )
        return Table(table=table, schema=schema or self.default_schema or "")

    def outbox_names(self, table: Table) -> dict[str, str]:
        """The quoted names of an outbox table and its indexes, by the words for them in its statements."""
        return {
            "outbox": self.table(table),
            "dispatched": self.quote(f"{table.table}_Dispatched"),
            "dispatched_at": self.quote(f"{table.table}_DispatchedAt"),
        }

    def statement(self, name: str) -> Statement:
        """A statement whose identifiers are not filled in."""
        return self.statements()[name]

    @classmethod
    @functools.cache
    def statements(cls) -> Mapping[str, Statement]:
        return read(cls.sql)

    def render(self, name: str, **identifiers: str) -> Statement:
        """A statement with its identifiers filled in; each must be quoted already."""
        return self.statement(name).render(**identifiers)
