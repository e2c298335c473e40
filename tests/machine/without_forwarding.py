"""Takes the fixes of store-and-forward out of the code, one after the other."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from unittest import mock

from psycopg import sql

from sqlqueue_spark import fail_points
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send import parking
from sqlqueue_spark.send.databases_down import RemoteDatabases
from sqlqueue_spark.send.outcomes import Decided, Keys, Outcomes
from sqlqueue_spark.send.parking import Parking
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.delayed import DelayedTable, Forwarded

_INSERT = """
INSERT INTO {} (id, headers, body)
SELECT m.id, left(d.headers, m.kept) || m.rest, d.body
FROM {} AS d JOIN unnest({}::tid[], {}::uuid[], {}::int[], {}::text[]) AS m (place, id, kept, rest) ON d.ctid = m.place
"""


@contextlib.contextmanager
def parked_by_an_earlier_try() -> Iterator[None]:
    """A batch that runs again does not know what it has parked, and sends it."""

    def nothing(_: Parking, __: object) -> set[int]:
        return set()

    with mock.patch.object(Parking, "parked_before", nothing):
        yield


@contextlib.contextmanager
def origins_of_parked_messages() -> Iterator[None]:
    """A message that is parked adds no key to the outbox."""
    decide = Outcomes.decide

    def forget(self: Outcomes, keys: Keys, known: Collection[str]) -> Decided:
        found = decide(self, keys, known)
        parked = {keys.origins[at] for its in self.parked(found.accepted).values() for at in its}
        return found._replace(origins=[each for each in found.origins if each not in parked])

    with mock.patch.object(Outcomes, "decide", forget):
        yield


@contextlib.contextmanager
def putting_back_at_once() -> Iterator[None]:
    """What is put back is inserted in one transaction and deleted in the next."""

    class InTwo(DelayedTable):
        def send(
            self,
            to: Table,
            columns: Sequence[str],  # noqa: ARG002 -- as the other
            messages: Sequence[Forwarded],
            ids: Sequence[str],
        ) -> None:
            queue, table = map(self.connection.dialect.table, (to, self.table))
            rows, kept, rests = zip(*((due.row, kept, rest) for due, kept, rest in messages), strict=True)
            place, *others = (
                sql.Literal(list(map(str, each))).as_string() for each in (rows, ids, kept, rests)
            )
            self.connection.execute(_INSERT.format(queue, table, place, *others))
            self.connection.commit()
            fail_points.step(fail_points.PARKED_SENT)
            self.connection.execute(f"DELETE FROM {table} WHERE ctid = ANY ({place}::tid[])")

    with mock.patch.object(parking, "DelayedTable", InTwo):
        yield


@contextlib.contextmanager
def parked_by_an_earlier_process() -> Iterator[None]:
    """The driver looks only for messages that its own process has parked."""
    begin = RemoteDatabases.__init__

    def forget(self: RemoteDatabases, options: SinkOptions, home: ConnectionOptions, queue: str) -> None:
        begin(self, options, home, queue)
        self._awaited.clear()

    with mock.patch.object(RemoteDatabases, "__init__", forget):
        yield


@contextlib.contextmanager
def parked_by_a_task_that_died() -> Iterator[None]:
    """The driver knows of what is parked only from tasks that say so, and a task that dies says nothing."""
    note = RemoteDatabases.note

    def note_parked(self: RemoteDatabases, sent: Sent) -> None:
        note(self, replace(sent, repeated=0))

    with mock.patch.object(RemoteDatabases, "note", note_parked):
        yield
