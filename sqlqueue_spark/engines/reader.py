"""What a reader of rows is to the package: it gives Arrow record batches, bounded in rows and bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping

from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.messages.arrow import pa

#: The caps of a record batch. A reader ends a batch when it reaches one of them.
RECORD_BATCH_ROWS = 10_000
RECORD_BATCH_BYTES = 8 << 20


class Reader(ABC):
    """A connection that reads rows as Arrow record batches."""

    @abstractmethod
    def batches(
        self, statement: Statement, between: tuple[int, int], schema: pa.Schema, *, small: bool = False
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows between two RowVersions, both included, in RowVersion order, in bounded batches.

        :param statement: reads such a range; its parameters are ``first`` and ``last``.
        :param small: every row of the range was small (:attr:`Dialect.small_row`) when it was planned, so it
            may be read faster. A row that has become larger is still read.
        """

    @abstractmethod
    def take(
        self, statement: Statement, parameters: Mapping[str, int], schema: pa.Schema
    ) -> list[pa.RecordBatch]:
        """The rows that a statement deletes and returns. The delete is committed before this returns."""

    @abstractmethod
    def close(self) -> None:
        """End the connection. Never raises."""


def under(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch under this schema. Columns that it does not have are NULL, and timestamps are in UTC."""
    return pa.RecordBatch.from_arrays([_column(batch, each) for each in schema], schema=schema)


def _column(batch: pa.RecordBatch, wanted: pa.Field) -> pa.Array:
    if wanted.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, wanted.type)
    column = batch.column(wanted.name)
    return column if column.type == wanted.type else column.cast(wanted.type)
