"""A table beside the queues: how it is created, how its statements run, which rights they need."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from sqlqueue_spark.engines.connection import Connection, Row
from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import NoRight, QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import queue_table


class BaseTable:
    """One kind of table on an open connection."""

    #: What errors call a table of this kind, what its statements call it, and what they do by default.
    called: ClassVar[str] = "the table"
    #: What it is called after, of which one chooses another where something else has its name.
    called_after: ClassVar[str] = "name"
    #: What a line calls it that says that it was created.
    kind: ClassVar[str] = "table"
    word: ClassVar[str]
    doing: ClassVar[str] = ""
    creating: ClassVar[Sequence[str]]
    #: What they call its index, and what the index's name adds to the table's.
    index: ClassVar[tuple[str, str]] = ("index", "")
    #: Columns, in lower case, that tell it from other tables; and what is said of a table of its name without
    #: them.
    own_columns: ClassVar[frozenset[str]] = frozenset()
    mistaken: ClassVar[str] = ""

    def __init__(self, connection: Connection, table: Table) -> None:
        self.connection = connection
        self.table = table
        #: What errors call it.
        self.name = str(table)

    @classmethod
    def names(cls, database: Database, table: Table) -> Mapping[str, str]:
        """The quoted names of the table and its indexes, by the words for them in its statements."""
        index, ending = cls.index
        return {cls.word: database.table(table), index: database.quote(table.table + ending)}

    @classmethod
    def create_statements(cls, database: Database, table: Table) -> list[Statement]:
        """The statements that create a table of this kind; an engine may need fewer than others."""
        names = cls.names(database, table)
        return [statement for each in cls.creating if (statement := database.render(each, **names))]

    def create(self) -> None:
        """Create the table. The caller holds the lock of its creation and has looked that it is not there."""
        for statement in self.create_statements(self.connection.dialect, self.table):
            self.connection.execute(statement, doing=f"creating {self.name}")

    def exists(self) -> bool:
        """Whether it is there.

        :raises QueueError: a table of another kind has its name.
        """
        found = queue_table.find(self.connection, self.table)
        if found is not None and not found.spelled.keys() >= self.own_columns:
            raise QueueError(f"{self.table} is no table of {self.mistaken}")
        return found is not None

    def known_as(self) -> str:
        """Its name, as the database has it."""
        found = queue_table.find(self.connection, self.table)
        return found.name if found else self.name

    def needed(self, *, writing: bool) -> str:  # noqa: ARG002 -- for kinds that tell reading from writing
        """Which rights a statement needs; empty where they are those of a queue."""
        return ""

    def execute(self, name: str, doing: str = "", /, **parameters: object) -> list[Row]:
        with self._rights_explained(writing=False):
            return self.connection.execute(self.render(name), parameters, doing=self._of(doing))

    def modify(self, name: str, doing: str = "", /, **parameters: object) -> int:
        with self._rights_explained(writing=True):
            return self.connection.modify(self.render(name), parameters, doing=self._of(doing))

    def render(self, name: str, **identifiers: str) -> Statement:
        dialect = self.connection.dialect
        return dialect.render(name, **self.names(dialect, self.table), **identifiers)

    def _of(self, doing: str) -> str:
        return f"{doing or self.doing} {self.name}"

    @contextlib.contextmanager
    def _rights_explained(self, *, writing: bool) -> Iterator[None]:
        try:
            yield
        except NoRight as error:
            if rights := self.needed(writing=writing):
                raise error.needing(rights) from error.__cause__
            raise
