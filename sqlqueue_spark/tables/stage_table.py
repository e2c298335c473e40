"""The table of a stage, ``<stream>.Outgoing``: its name, its creation, its statements and their rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from sqlqueue_spark.engines.connect import Connection, Row
from sqlqueue_spark.engines.dialect import Dialect, Load
from sqlqueue_spark.engines.registry import dialect_of
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ConfigurationError, NoRight
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.tables import queues
from sqlqueue_spark.tables.rights import RECEIVER, remedy_command

#: A stage's name is its stream's and this. A name has at most 63 bytes on PostgreSQL, the index's too.
_SUFFIX = ".Outgoing"
_LONGEST_STREAM = 40


def table_of(options: SourceOptions | SinkOptions) -> Table:
    """The table of a stream's stage, by the options of an atomic pipeline. Errors as :func:`table_named`."""
    assert options.stream is not None, "the options were checked"
    return table_named(options.stream, options.default_schema or dialect_of(options.url).default_schema)


def table_named(stream: str, schema: str) -> Table:
    """The table of a stream's stage.

    :raises ConfigurationError: the name is too long for a table's.
    """
    if len(stream.encode()) > _LONGEST_STREAM:
        raise ConfigurationError(
            f"The option stream is {stream!r}, which is longer than the {_LONGEST_STREAM} bytes that leave "
            f"room for the name of the table {stream}{_SUFFIX}; shorten it."
        )
    return Table(table=stream + _SUFFIX, schema=schema)


def create_statements(dialect: Dialect, table: Table) -> list[Statement]:
    """The statements that create a stage."""
    names = {"stage": dialect.table(table), "mark": dialect.quote(f"{table.table}_task_idx")}
    return [dialect.render(each, **names) for each in ("stage_create", "stage_storage", "stage_index")]


class StageTable:
    """A stage's table on an open connection. The methods run inside the open transaction and never commit."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self.connection = connection
        self.table = table
        self._doing = f"staging in {table}"

    def exists(self) -> bool:
        return queues.find(self.connection, self.table) is not None

    def create(self) -> None:
        """Create the table. The caller holds the lock of its creation and has looked that it is not there."""
        for statement in create_statements(self.connection.dialect, self.table):
            self.connection.execute(statement, doing=f"creating {self.table}")

    def name_of_lock(self) -> str:
        """The table's name as the database spells it; on SQL Server an option may spell it otherwise."""
        found = queues.find(self.connection, self.table)
        table = self.table if found is None else found.table
        return self.connection.dialect.table(replace(table, catalog=None))

    def execute(self, statement: str, /, **parameters: object) -> list[Row]:
        with self._rights_explained():
            return self.connection.execute(self.render(statement), parameters, doing=self._doing)

    def modify(self, statement: str, /, **parameters: object) -> int:
        with self._rights_explained():
            return self.connection.modify(self.render(statement), parameters, doing=self._doing)

    def load(self, statement: str, rows: Load) -> None:
        with self._rights_explained():
            self.connection.load(self.render(statement), rows, doing=self._doing)

    def render(self, name: str, **identifiers: str) -> Statement:
        dialect = self.connection.dialect
        return dialect.render(name, stage=dialect.table(self.table), **identifiers)

    @contextlib.contextmanager
    def _rights_explained(self) -> Iterator[None]:
        """Name the rights that a stage needs, which are not those of a queue."""
        try:
            yield
        except NoRight as error:
            stream = self.table.table.removesuffix(_SUFFIX)
            raise error.needing(
                "a stage needs SELECT, INSERT and UPDATE on its table, and TRUNCATE (on SQL Server ALTER) to "
                f"be emptied; {remedy_command(self.connection.dialect, RECEIVER, '--stream', stream)} writes "
                "the statements."
            ) from error.__cause__
