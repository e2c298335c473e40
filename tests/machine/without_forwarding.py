"""Takes the fixes of store-and-forward out of the code, one after the other."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from unittest import mock
from uuid import uuid4

from psycopg import sql

from sqlqueue_spark import fail_points
from sqlqueue_spark.pipeline.running import changed_options
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver import outcomes_once
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk, Decision
from sqlqueue_spark.send.deliver.outcomes_once import OutcomesOnce
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting import waiting_rows
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.tables.delayed import DelayedTable, Forwarded
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner
from sqlqueue_spark.tables.queue_table import QueueTable

_INSERT = """
INSERT INTO {} (id, headers, body)
SELECT m.id, left(d.headers, m.kept) || m.rest, d.body
FROM {} AS d JOIN unnest({}::tid[], {}::uuid[], {}::int[], {}::text[]) AS m (place, id, kept, rest)
  ON d.ctid = m.place
"""


@contextlib.contextmanager
def waiting_by_an_earlier_try() -> Iterator[None]:
    """A batch that runs again does not ask home what it knows before it sends elsewhere."""

    def nothing(_: Sender, chunk: AddressedChunk) -> AddressedChunk:
        return chunk

    with mock.patch.object(Sender, "_without_known", nothing):
        yield


@contextlib.contextmanager
def marks_of_outcomes() -> Iterator[None]:
    """The outbox gets the outcomes of rows, and no mark by which it is asked for them."""

    def no_mark(key: str) -> str:
        return f"{key[:100]}!"

    with mock.patch.object(outcomes_once, "mark_of_outcomes", no_mark):
        yield


@contextlib.contextmanager
def origins_of_waiting_messages() -> Iterator[None]:
    """A message that waits adds no key to the outbox."""
    decide = OutcomesOnce.decide

    def forget(self: OutcomesOnce, known: Collection[str]) -> Decision:
        found = decide(self, known)
        waiting = {self.origins[at] for at, each in self.chunk.failed.items() if each.waits_for is not None}
        return replace(found, keys=found.keys - waiting)

    with mock.patch.object(OutcomesOnce, "decide", forget):
        yield


@contextlib.contextmanager
def putting_back_at_once() -> Iterator[None]:
    """What is put back is inserted in one transaction and deleted in the next."""

    class InTwo(DelayedTable):
        def send(
            self,
            to: QueueTable,
            messages: Sequence[Forwarded],
            *,
            anew: bool = False,  # noqa: ARG002 -- as the other
        ) -> None:
            queue, table = map(self.connection.dialect.table, (to.table, self.table))
            ids = [due.id or str(uuid4()) for due, *_ in messages]
            rows, kept, rests = zip(*((due.row, kept, rest) for due, kept, rest in messages), strict=True)
            place, *others = (
                sql.Literal(list(map(str, each))).as_string() for each in (rows, ids, kept, rests)
            )
            self.connection.execute(_INSERT.format(queue, table, place, *others))
            self.connection.commit()
            fail_points.step(fail_points.WAITING_SENT)
            self.connection.execute(f"DELETE FROM {table} WHERE ctid = ANY ({place}::tid[])")

    with mock.patch.object(waiting_rows, "DelayedTable", InTwo):
        yield


@contextlib.contextmanager
def waiting_by_an_earlier_process() -> Iterator[None]:
    """The driver looks only for messages that its own process has let wait."""
    begin = RemoteDatabases.__init__

    def forget(self: RemoteDatabases, places: Places, queue: str) -> None:
        begin(self, places, queue)
        self._may_wait = False

    with mock.patch.object(RemoteDatabases, "__init__", forget):
        yield


@contextlib.contextmanager
def waiting_by_a_task_that_died() -> Iterator[None]:
    """The driver knows of what waits only from tasks that say so, and a task that dies says nothing."""
    note = RemoteDatabases.note

    def note_waiting(self: RemoteDatabases, sent: Sent) -> None:
        note(self, replace(sent, repeated=0))

    with mock.patch.object(RemoteDatabases, "note", note_waiting):
        yield


@contextlib.contextmanager
def notes_of_jobs() -> Iterator[None]:
    """A job begins under other options, whatever its last run has left."""

    def alike(*_: object) -> bool:
        return True

    with mock.patch.object(changed_options, "_alike", alike):
        yield


@contextlib.contextmanager
def notes_of_what_waits() -> Iterator[None]:
    """A job's note is told of rows that have waited only when the job itself puts them back."""
    note = RemoteDatabases.note

    def tell_nothing(self: RemoteDatabases, sent: Sent) -> None:
        with mock.patch.object(self, "on_leaving", return_value=None):
            note(self, sent)

    with mock.patch.object(RemoteDatabases, "note", tell_nothing):
        yield


@contextlib.contextmanager
def ids_of_what_waits() -> Iterator[None]:
    """Outboxes are cleaned though rows wait, or have waited, that these outboxes know."""

    def clean(self: RemoteDatabases, cleaner: OutboxCleaner) -> None:
        cleaner.clean_when_due(self._places.everywhere())

    with mock.patch.object(RemoteDatabases, "clean", clean):
        yield
