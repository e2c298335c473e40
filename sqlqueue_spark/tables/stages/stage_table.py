"""The table of a stage, ``<stream>.Outgoing``: its creation, and how its rows reach their destinations.

Rows go out when a batch is settled, or as a rehearsal. The sink rehearses before it seals the stage, in a
transaction that is rolled back. So it finds what a destination refuses while the batch can still run again.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.engines.dialect import Load
from sqlqueue_spark.engines.driver_errors import Doing
from sqlqueue_spark.engines.statements import Parameters
from sqlqueue_spark.errors import ConfigurationError, Duplicate, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.messages.outgoing import lasting
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.plain_text import for_shell, logger
from sqlqueue_spark.row_set import HIGHEST
from sqlqueue_spark.tables import queue_table, queues
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations, NotAllowed
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.delayed import SUFFIX as DELAYED
from sqlqueue_spark.tables.insert import filled, insert
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.rights import RECEIVER, remedy_command
from sqlqueue_spark.tables.stages.stage_name import SUFFIX
from sqlqueue_spark.tables.table_code import check_went_in

log = logger(__name__)


class Gone(QueueError):
    """A destination is not there any more."""


class StageTable(BaseTable):
    called = "the stage"
    word = "stage"
    doing = "staging in"
    creating = ("stage_create", "stage_storage", "stage_index")
    index = ("mark", "_task_idx")

    def __init__(
        self, connection: Connection, table: Table, options: SourceOptions | SinkOptions | None = None
    ) -> None:
        """:param options: those of its stream, where messages leave the stage."""
        super().__init__(connection, table)
        self._options = options

    @property
    def error_queue(self) -> str | None:
        """Where messages go that cannot be sent any more."""
        return None if self._options is None else self._options.error_queue

    def name_of_lock(self) -> str:
        """The table's name as the database spells it; on SQL Server an option may spell it otherwise."""
        found = queue_table.find(self.connection, self.table)
        table = self.table if found is None else found.table
        return self.connection.dialect.table(replace(table, catalog=None))

    def needed(self, *, writing: bool) -> str:  # noqa: ARG002 -- who uses a stage does both
        stream = self.table.table.removesuffix(SUFFIX)
        return (
            "a stage needs SELECT, INSERT and UPDATE on its table, and TRUNCATE (on SQL Server ALTER) to "
            f"be emptied; {remedy_command(self.connection.dialect, RECEIVER, '--stream', stream)} writes "
            "the statements."
        )

    def load(self, statement: str, rows: Load) -> int:
        with self._rights_explained(writing=True):
            return self.connection.load(self.render(statement), rows, doing=self._of(""))

    def staged(self, tasks: Sequence[str], after: int) -> Mapping[tuple[str, str], int]:
        """How many messages each of these tasks has staged for each destination, in rows above ``after``."""
        if not tasks:
            return {}
        found = self.execute("stage_count", tasks=self.connection.dialect.bind_texts(tasks), after=after)
        return {(task, destination): int(count) for task, destination, count in found}

    def move_rows(
        self,
        destination: str,
        to: QueueTable,
        tasks: Sequence[str],
        after: int,
        staged: Mapping[tuple[str, str], int],
        *,
        settling: bool = True,
    ) -> int:
        """Move what these tasks have staged for a destination, and return how many messages that were.

        :param to: the table of the destination.
        :param after: rows up to this number do not count.
        :param staged: what :meth:`staged` counts for these tasks.
        :param settling: whether the batch is done; else this is a rehearsal, which the caller rolls back.
        :raises QueueError: the destination refuses a message.
        """
        which, doing = self._which(destination, tasks), Doing("sending to", destination)
        statement = self.render("stage_move", **filled(self.connection.dialect, to))
        # Where many row locks never become a table lock, one statement may move all rows.
        next_ = self._next if self.connection.dialect.escalates else lambda *_: HIGHEST
        rows, done_to = 0, after
        with self._refusals_told(destination, settling=settling):
            while done_to < HIGHEST and (up_to := next_(which, done_to)) is not None:
                bound = {**which, "after": done_to, "up_to": up_to}
                rows += self.connection.modify(statement, bound, doing=doing)
                done_to = up_to
            wanted = sum(count for (_, to), count in staged.items() if to == destination)
            return check_went_in(rows, wanted, destination)

    @contextlib.contextmanager
    def entered(self, destination: str, *, named: bool) -> Iterator[QueueTable]:
        """Gives the table of a destination, to which the block may send.

        :param named: whether a message has named it, and no option.
        :raises QueueError: it is not there any more, or may not be reached.
        """
        if (found := queue_table.find(self.connection, Table.from_text(destination))) is None:
            raise self._gone(destination)
        if not named:
            yield found
            return
        assert self._options is not None, "who sends what is staged knows its stream's options"
        naming = self._options.naming(self.connection.dialect)
        ends = [] if self.error_queue is None else [naming.table(self.error_queue)]
        there = (queue_table.find(self.connection, each) for each in ends)
        allowed = AllowedDestinations(self._options, tuple(filter(None, there)))
        with allowed.into(self.connection, found):
            yield found

    def fail_rows(self, destination: str, tasks: Sequence[str], after: int, error: SqlQueueError) -> int:
        """Send what these tasks have staged for a destination to the error queue; returns how many that is.

        :raises SqlQueueError: there is no error queue, or it refuses a message.
        """
        options = self._options
        if options is None or options.error_queue is None:
            if not isinstance(error, NotAllowed):
                raise error
            with self._refusals_told(destination, settling=True):
                raise error
        naming, failure = options.naming(self.connection.dialect), Failure.of(error)
        own = Table.from_text(destination).full_address(quoted=naming.quoted_addresses)
        to = queues.get(self.connection, options.error_queue, naming).table
        which, rows = self._which(destination, tasks), 0
        with self._refusals_told(options.error_queue, settling=True):
            while (up_to := self._next(which, after)) is not None:
                found = self.execute("stage_rows", **which, after=after, up_to=up_to)
                headers = []
                for id_, text, _ in found:  # a delayed message has failed for the queue to which it was to go
                    later = (parse_headers(text) or {}).get(FORWARD_DESTINATION)
                    failed_for = naming.written(later or own)
                    headers.append(failed_headers(text, failure, *failed_for, row_id=str(id_)))
                bodies = pa.array([body for *_, body in found], pa.binary())
                rows += insert(self.connection, to, lasting(headers, bodies))
                after = up_to
        log.warning("not_sent destination=%s rows=%d error_queue=%s: %s", destination, rows, to.name, error)
        return rows

    def try_row(self, destination: str, to: QueueTable, tasks: Sequence[str]) -> None:
        """Send one message of what these tasks have staged for a destination, as :meth:`move_rows`."""
        statement = self.render("stage_try", **filled(self.connection.dialect, to))
        with self._refusals_told(destination, settling=False):
            bound = self._which(destination, tasks)
            took = self.connection.modify(statement, bound, doing=Doing("sending to", destination))
            check_went_in(took, 1, destination)

    def _which(self, destination: str, tasks: Sequence[str]) -> Parameters:
        return {"destination": destination, "tasks": self.connection.dialect.bind_texts(tasks)}

    def _next(self, which: Parameters, after: int) -> int | None:
        """The last of the next rows, as many as one statement returns."""
        count = self.connection.dialect.written
        last: int | None = self.execute("stage_next", **which, after=after, count=count)[0][0]
        return last

    def _gone(self, destination: str) -> Gone:
        table = Table.from_text(destination)
        owner = replace(table, table=table.table.removesuffix(DELAYED))
        create = "create" if owner == table else "delayed create"
        pasted = for_shell(self.connection.dialect.address(owner))
        left, then = f"wait on the stage {self.table}", "start the stream"
        if self.error_queue is not None:
            left, then = f"go to {self.error_queue}", "put them back"
        return Gone(
            f"The destination {destination} is not there any more, and its messages {left}; "
            f"create it again with: sqlqueue {create} {pasted}, and {then}."
        )

    @contextlib.contextmanager
    def _refusals_told(self, destination: str, *, settling: bool) -> Iterator[None]:
        """In this block an error says that a destination refuses what the stage has for it."""
        try:
            yield
        except SqlQueueError as error:
            if isinstance(error, TryAgain) and not isinstance(error, Duplicate):
                raise
            kind = ConfigurationError if isinstance(error, ConfigurationError) else QueueError
            taken = "A row with that Id is there already: " if isinstance(error, Duplicate) else ""
            if settling:
                remedy = "take it away" if taken else "Mend the table or the rights to it"
                raise kind(
                    f"The destination {destination} refuses a message of a batch that is done: {error} Its "
                    f"messages wait on the stage {self.table}, and its rows in the queue. {taken}{remedy}, "
                    "and start the stream."
                ) from error
            remedy = (
                "leave the column Id out of the frame, and each message gets a new one"
                if taken
                else "Mend the table or the rights to it, or send elsewhere"
            )
            raise kind(
                f"The destination {destination} refuses a message that this batch sends: {error} Nothing of "
                f"the batch was sent, and its rows stay in the queue. {taken}{remedy}; the batch then runs "
                "again."
            ) from error
