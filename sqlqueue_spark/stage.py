"""The stage of an atomic pipeline, ``<stream>.Outgoing``: what a batch sends, kept until its claim is settled.

Workers stage rows under a name of their own task, in transactions of their own. When Spark has accepted the tasks, the
sink seals the stage: the mark then says whose rows count. Settling the claim moves these rows into their destinations
in the claim's own transaction, so that a message is at its source or at its destination, never in both or in neither.

Every method runs inside the connection's open transaction and never commits.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from sqlqueue_spark import queues
from sqlqueue_spark.addresses import Naming, Table
from sqlqueue_spark.claims import HIGHEST, LOWEST
from sqlqueue_spark.connections import Connection
from sqlqueue_spark.dialects import Dialect, dialect_of
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, QueueError
from sqlqueue_spark.inserting import columns_of, present_columns
from sqlqueue_spark.options import SinkOptions, SourceOptions

#: How much longer a stage's name is than its stream's; PostgreSQL's names have at most 63 bytes, and its index another few.
_SUFFIX = ".Outgoing"
_LONGEST_STREAM = 40


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Whose the stage is (a claim's digest), which run of it, the tasks whose rows count, and where these go."""

    claim: str
    run: str
    tasks: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Mark:
        given = json.loads(text)
        return cls(
            claim=given["claim"],
            run=given["run"],
            tasks=tuple(given["tasks"]),
            destinations=tuple(given["destinations"]),
        )


def table_of(options: SourceOptions | SinkOptions) -> Table:
    """The table of a stream's stage, for the options of an atomic pipeline's source or sink. Errors as :func:`table_named`."""
    assert options.stream is not None, "the options were checked"
    return table_named(options.stream, options.default_schema or dialect_of(options.url).default_schema)


def table_named(stream: str, schema: str) -> Table:
    """The table of a stream's stage.

    :raises ConfigurationError: the name is too long for a table's.
    """
    if len(stream.encode()) > _LONGEST_STREAM:
        raise ConfigurationError(
            f"The option stream is {stream!r}, which is longer than the {_LONGEST_STREAM} bytes that leave room for "
            f"the name of the table {stream}{_SUFFIX}; shorten it."
        )
    return Table(table=stream + _SUFFIX, schema=schema)


def create_statements(dialect: Dialect, table: Table) -> list[str]:
    """What creates a stage."""
    names = {"stage": dialect.table(table), "mark": dialect.quote(f"{table.table}_task_idx")}
    return [dialect.render(each, **names) for each in ("stage_create", "stage_storage", "stage_index")]


class Stage:
    """A stage on an open connection."""

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        self._table = table
        self._doing = f"staging in {table}"

    def exists(self) -> bool:
        return queues.find(self._connection, self._table) is not None

    def create(self) -> None:
        """Create the table; the caller holds the lock of its creation and has looked."""
        for statement in create_statements(self._connection.dialect, self._table):
            self._connection.execute(statement, doing=f"creating {self._table}")

    def open(self, claim: str) -> str:
        """Empty the stage for a claim; the name of this run of it. What tasks of other runs put there never counts."""
        self._connection.execute(self._render("stage_clear"), doing=self._doing)
        mark = Mark(claim=claim, run=str(uuid.uuid4()))
        self._connection.execute(self._render("stage_open"), (mark.to_json(),), doing=self._doing)
        return mark.run

    def mark(self) -> Mark | None:
        """Whose the stage is; None when it is nobody's. Locked until the transaction ends."""
        rows = self._connection.execute(self._render("stage_mark"), doing=self._doing)
        return Mark.from_json(rows[0][0]) if rows else None

    def add(self, task: str, messages: Mapping[str, pa.RecordBatch]) -> None:
        """Stage messages (:data:`OUTGOING`) by the canonical names of their destinations, at most :attr:`Database.written`."""
        bound = self._connection.dialect.bind_staged(task, messages)
        self._connection.modify(self._render("stage_insert"), bound, doing=self._doing)

    def seal(self, tasks: Sequence[str], destinations: Sequence[str], *, run: str) -> None:
        """From now on the rows of these tasks count, beside those that count already.

        :param run: as :meth:`check_opened` said before the tasks began.
        :raises ConfigurationError: no source has opened the stage.
        :raises ClaimLost: the batch was begun again since, by a stream that took this one's place.
        """
        mark = self._opened(self.mark())
        if mark.run != run:
            raise ClaimLost(
                f"The stage {self._table} was opened again while this batch ran: another run of the stream has taken it over, "
                "so this one ends and nothing that it staged is sent; see that the stream runs only once."
            )
        sealed = replace(
            mark,
            tasks=(*mark.tasks, *tasks),
            destinations=tuple(dict.fromkeys((*mark.destinations, *destinations))),
        )
        self._connection.modify(self._render("stage_seal"), (sealed.to_json(),), doing=self._doing)

    def check_opened(self) -> str:
        """Refuse to stage what nobody would send; which run of a batch the stage is open for.

        :raises ConfigurationError: no source has opened the stage.
        """
        return self._opened(self.mark() if self.exists() else None).run

    def _opened(self, mark: Mark | None) -> Mark:
        if mark is None:
            raise ConfigurationError(
                f"The stage {self._table} belongs to no batch: nobody would send what is put there; give the source the "
                "sink's stream and database, and transactionMode sendsAtomicWithReceive."
            )
        return mark

    def move(self, claim: str) -> int | None:
        """Send what a claim has staged, and empty the stage; how many messages. None when the stage is not its own.

        :raises QueueError: a destination is not there any more.
        """
        mark = self.mark()
        if mark is None or mark.claim != claim:
            return None
        moved = sum(self._move(destination, mark.tasks) for destination in sorted(mark.destinations))
        self._connection.execute(self._render("stage_clear"), doing=self._doing)
        return moved

    def _move(self, destination: str, tasks: Sequence[str]) -> int:
        dialect = self._connection.dialect
        table = Naming(default_schema=dialect.default_schema).table(destination)
        found = queues.find(self._connection, table)
        if found is None:
            raise QueueError(
                f"The destination {destination} is not there any more, and its messages wait on the stage {self._table}; "
                f"create it again with: sqlqueue create {destination!r}, and start the stream."
            )
        columns = ", ".join(map(dialect.quote, present_columns(columns_of(self._connection, found))))
        statement = self._render("stage_move", queue=dialect.table(table), columns=columns)
        rows, after = 0, LOWEST
        which = (destination, dialect.bind_texts(tasks))
        while (up_to := self._end_of_chunk(which, after)) is not None:
            rows += self._connection.modify(
                statement, (*which, after, up_to), doing=f"sending to {destination}"
            )
            after = up_to
            if up_to == HIGHEST:
                break
        return rows

    def _end_of_chunk(self, which: tuple[str, object], after: int) -> int | None:
        """How far one statement may go: as far as there is, where many row locks never become a table lock."""
        if not self._connection.dialect.escalates:
            return HIGHEST
        last: int | None = self._connection.execute(
            self._render("stage_next"), (*which, after, self._connection.dialect.written), doing=self._doing
        )[0][0]
        return last

    def _render(self, name: str, **identifiers: str) -> str:
        return self._connection.dialect.render(
            name, stage=self._connection.dialect.table(self._table), **identifiers
        )
