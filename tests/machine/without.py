"""Takes one fix after the other out of the code; the machine must then find what breaks."""

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from unittest import mock

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.handling import received_message
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, STORED_EVENT, STORED_FOR
from sqlqueue_spark.messages.origin import Origin
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import offset, receiver
from sqlqueue_spark.receive.claiming import headroom, next_batch
from sqlqueue_spark.receive.claiming.claim import QueueRows
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.in_transit import Forwarder
from sqlqueue_spark.receive.claiming.stream_scanner import Scanner
from sqlqueue_spark.receive.holding import unfinished_batch
from sqlqueue_spark.receive.holding.settling import OpenClaim, Settling
from sqlqueue_spark.receive.holding.stage_dispatch import StageDispatch
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.receiver import Receiver
from sqlqueue_spark.send.deliver import sends_once
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk
from sqlqueue_spark.send.deliver.destination_tables import Rows
from sqlqueue_spark.send.deliver.outcomes_once import OutcomesOnce
from sqlqueue_spark.send.deliver.sends_once import send_keys
from sqlqueue_spark.send.deliver.tables_of_chunk import Addressed
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.stages.stage import Stage, StageRun
from sqlqueue_spark.tables.stages.stage_mark import Batch, Mark
from tests.machine import without_forwarding as forwarding


@contextlib.contextmanager
def serials() -> Iterator[None]:
    """Two batches of the same rows have the same offset."""

    def same(_: object) -> int:
        return 0

    with mock.patch.object(offset, "next_serial", same), mock.patch.object(next_batch, "next_serial", same):
        yield


@contextlib.contextmanager
def seals() -> Iterator[None]:
    """What stands on the stage goes out, whether a sink has sealed it or not,
    and whether it is all there or not.
    """

    def send(self: Stage, mark: Mark) -> int:
        tasks = list(mark.tasks)
        staged = self.staged(tasks, mark.after)
        moved = 0
        for each in sorted(mark.destinations):
            with self.entered(each, named=False) as to:
                moved += self.move_rows(each, to, tasks, mark.after, staged)
        self._write(mark.done())
        return moved

    with mock.patch.object(Stage, "_send", send):
        yield


@contextlib.contextmanager
def batches_without_rows() -> Iterator[None]:
    """A sink stages nothing where no claim has opened the stage."""
    enter = Stage.enter

    def refuse(self: Stage, batch: Batch, last: StageRun | None) -> StageRun:
        mark = self.mark() if self.exists() else None
        if mark is None or not mark.claim:
            raise ConfigurationError(f"The stage {self.table} belongs to no batch.")
        return enter(self, batch, last)

    with mock.patch.object(Stage, "enter", refuse):
        yield


@contextlib.contextmanager
def patient_settling() -> Iterator[None]:
    """Settling empties the stage, for which it wants the table for itself,
    and gives the rows back at the first error.
    """
    send = StageDispatch.send

    def settle(self: OpenClaim, send: Callable[[QueueSession], int | None]) -> int | None:
        assert self.session is not None
        try:
            for part in self.parts:
                part.delete()
            sent = send(self.session)
            self.session.connection.commit()
        except Exception:
            self.release()
            raise
        return sent

    def send_and_empty(
        self: StageDispatch, session: QueueSession, end: Offset, *, deleting: int
    ) -> int | None:
        sent = send(self, session, end, deleting=deleting)
        if sent is not None:
            assert end.stage is not None
            Stage(session.connection, end.stage).clear()
        return sent

    with (
        mock.patch.object(OpenClaim, "settle", settle),
        mock.patch.object(StageDispatch, "send", send_and_empty),
    ):
        yield


@contextlib.contextmanager
def one_source_a_stage() -> Iterator[None]:
    """Two sources of one stream stage into each other's batches."""

    def enter(self: Stage, batch: Batch, _: StageRun | None) -> StageRun:
        return StageRun(name=self._opened(self.mark()).run, batch=batch, source_seen=True)

    with (
        mock.patch.object(Stage, "hold", return_value=None),
        mock.patch.object(Stage, "holders", return_value=[]),
        mock.patch.object(Stage, "enter", enter),
    ):
        yield


@contextlib.contextmanager
def keys_of_final_addresses() -> Iterator[None]:
    """The outbox knows what goes to the option ``queue`` by its id alone,
    and what goes elsewhere by id and table.
    """

    def by_id(chunk: AddressedChunk, addressed: Sequence[Addressed]) -> dict[int, str]:
        own = chunk.places.away.queue or ""
        found = {}
        for each in addressed:
            for at in each.positions:
                id_ = chunk.sends.ids[at]
                copy = hashlib.sha256(each.known_as.encode()).hexdigest()[:16]
                found[at] = id_ if each.known_as.partition("@")[0] == own else f"{id_}>{copy}"
        return found

    with mock.patch.object(sends_once, "send_keys", by_id):
        yield


@contextlib.contextmanager
def turns_of_claims_ahead() -> Iterator[None]:
    """Late rows always go before what is claimed ahead."""

    def never(_: Scanner) -> bool:
        return False

    def forget(_: Scanner, __: bool) -> None: ...

    with mock.patch.object(Scanner, "_ahead_waited", property(never, forget), create=True):
        yield


@contextlib.contextmanager
def recovery() -> Iterator[None]:
    """A new process leaves alone what is left of the last batch."""
    finish = Receiver._finish

    def finish_own(self: Receiver, start: Offset | None) -> None:
        if self._held is None:
            self._settled = start
        finish(self, start)

    with mock.patch.object(Receiver, "_finish", finish_own):
        yield


@contextlib.contextmanager
def one_transaction() -> Iterator[None]:
    """What is left of a batch is sent in one transaction and deleted in the next."""
    settle = OpenClaim.settle

    def settle_twice(self: OpenClaim, send: Callable[[QueueSession], int | None]) -> int | None:
        if self.settling is Settling.ITS_CLAIM:
            return settle(self, send)
        assert self.session is not None
        sent = send(self.session)
        self.session.connection.commit()
        settle(self, lambda _: None)
        return sent

    with mock.patch.object(OpenClaim, "settle", settle_twice):
        yield


@contextlib.contextmanager
def stage_of_the_offset() -> Iterator[None]:
    """A source that is no longer atomic deletes a batch and leaves on the stage what the batch sends."""
    send = StageDispatch.send

    def send_if_atomic(
        self: StageDispatch, session: QueueSession, end: Offset, *, deleting: int
    ) -> int | None:
        return None if self._own is None else send(self, session, end, deleting=deleting)

    with mock.patch.object(StageDispatch, "send", send_if_atomic):
        yield


@contextlib.contextmanager
def batches_left_to_the_sink() -> Iterator[None]:
    """The stage sends a batch that was begun atomic, though its sink sends it by itself since."""

    def leave(_: StageDispatch, __: Offset, ___: Table) -> None: ...

    with mock.patch.object(StageDispatch, "_leave_to_the_sink", leave):
        yield


@contextlib.contextmanager
def messages_in_transit() -> Iterator[None]:
    """A row on its way to another queue counts as one for this stream."""

    def elsewhere(*_: object) -> frozenset[int]:
        return frozenset()

    with mock.patch.object(Forwarder, "elsewhere", elsewhere):
        yield


@contextlib.contextmanager
def neighbours_that_go() -> Iterator[None]:
    """What was left to neighbours is theirs for ever, whether they take it or not."""
    with mock.patch.object(headroom, "_GONE_LOOKS", 1 << 62):
        yield


@contextlib.contextmanager
def every_queue_of_a_batch() -> Iterator[None]:
    """What is left of a batch over several queues is looked for in the first of them."""
    again = unfinished_batch.locked_again

    def of_the_first(session: QueueSession, wanted: Sequence[Offset]) -> list[QueueRows]:
        return again(session, wanted[:1])

    with mock.patch.object(receiver, "locked_again", of_the_first):
        yield


@contextlib.contextmanager
def queues_off_the_list() -> Iterator[None]:
    """What is left of a batch is looked for in the queues that are read now."""
    named = QueueSession.named

    def of_the_list(self: QueueSession, name: str) -> Queue | None:
        return named(self, name) if self.reads(name) else None

    with mock.patch.object(QueueSession, "named", of_the_list):
        yield


@contextlib.contextmanager
def queues_that_appear() -> Iterator[None]:
    """A pattern is matched once, when the process begins."""

    def never(_: Scanner) -> bool:
        return False

    def forget(_: Scanner, __: bool) -> None: ...

    with mock.patch.object(Scanner, "_matches", property(never, forget), create=True):
        yield


@contextlib.contextmanager
def queues_that_are_gone() -> Iterator[None]:
    """A batch cannot go on if one of its queues is dropped or has another name now."""
    named = QueueSession.named

    def there(self: QueueSession, name: str) -> Queue:
        if (found := named(self, name)) is None:
            raise QueueError(f"The queue {name} is gone.")
        return found

    with mock.patch.object(QueueSession, "named", there):
        yield


@contextlib.contextmanager
def tables_behind_names() -> Iterator[None]:
    """What is left of a batch is looked for under the name of its queue, whatever table has that name."""
    relock = unfinished_batch.relock

    def left(queue: Queue, wanted: Offset) -> QueueRows | None:
        def all_match(_: Queue, rows: Sequence[int]) -> dict[int, str]:
            return {row: wanted.witnesses[row] for row in rows}

        with (
            mock.patch.object(Queue, "identity", return_value=wanted.identity),
            mock.patch.object(Queue, "ids", all_match),
        ):
            return relock(queue, wanted)

    with mock.patch.object(unfinished_batch, "relock", left):
        yield


@contextlib.contextmanager
def origins_of_outcomes() -> Iterator[None]:
    """The outbox knows that a message was handled, and not that it has failed."""
    origins = vars(OutcomesOnce)["origins"].func

    def forgotten(self: OutcomesOnce) -> Sequence[str]:
        return [f"{each}!{uuid.uuid4()}"[-200:] for each in origins(self)]

    with mock.patch.object(OutcomesOnce, "origins", property(forgotten)):
        yield


@contextlib.contextmanager
def ids_of_handled_messages() -> Iterator[None]:
    """The outbox knows a message that was handled by its row alone."""

    def only_origins(self: OutcomesOnce) -> Sequence[str]:
        return [f"{each}!"[-200:] for each in self.origins]

    with mock.patch.object(OutcomesOnce, "ids", property(only_origins)):
        yield


@contextlib.contextmanager
def origins_in_headers() -> Iterator[None]:
    """A row that was moved counts as one that was never seen before."""

    def itself(row_id: str, row_version: int, _: str | None) -> Origin:
        return Origin(row_id.lower(), row_version)

    with mock.patch.object(Origin, "of", itself):
        yield


@contextlib.contextmanager
def rows_that_the_outbox_knows() -> Iterator[None]:
    """After a loss of its claim a batch is settled as Spark says, though the outbox may have forgotten it."""

    def all_of(part: QueueRows, _: SourceOptions) -> QueueRows:
        return part

    with mock.patch.object(receiver, "known_to_the_sink", all_of):
        yield


@contextlib.contextmanager
def outcomes_at_once() -> Iterator[None]:
    """What an outcome sends to each destination is committed by itself."""
    write = sends_once.write

    def each_alone(connection: Connection, rows: Rows) -> None:
        write(connection, rows)
        connection.commit()
        fail_points.step(fail_points.ROWS_INSERTED)

    with mock.patch.object(sends_once, "write", each_alone):
        yield


@contextlib.contextmanager
def messages_of_others() -> Iterator[None]:
    """A function is called for each message, also for one that is only stored here for another database."""

    def own(*_: object) -> bool:
        return False

    with mock.patch.object(received_message, "goes_elsewhere", own):
        yield


@contextlib.contextmanager
def ways_to_the_own_queue() -> Iterator[None]:
    """No function is called for a message on its way to the queue in which it stands."""

    def on_its_way(headers: Mapping[str, str], *_: object) -> bool:
        return not {STORED_FOR, STORED_EVENT, FORWARD_DESTINATION}.isdisjoint(headers)

    with mock.patch.object(received_message, "goes_elsewhere", on_its_way):
        yield


@contextlib.contextmanager
def tables_of_copies() -> Iterator[None]:
    """The outbox knows the copy of an event by its place among the copies,
    not by the table that it goes to.
    """
    keys = send_keys

    def by_place(chunk: AddressedChunk, addressed: Sequence[Addressed]) -> dict[int, str]:
        copies = [each for each in addressed if each.positions and chunk.sends.is_event(each.positions[0])]
        others = [each for each in addressed if each not in copies]
        placed = [replace(each, known_as=f"copy {number}") for number, each in enumerate(copies)]
        return keys(chunk, [*others, *placed])

    with mock.patch.object(sends_once, "send_keys", by_place):
        yield


#: Takes a fix out within a block.
Fix = Callable[[], contextlib.AbstractContextManager[None]]

#: Each fix, and the family in which its absence shows.
FIXES: dict[Fix, str] = {
    serials: "storing",
    turns_of_claims_ahead: "storing",
    recovery: "storing",
    messages_in_transit: "storing",
    neighbours_that_go: "storing",
    every_queue_of_a_batch: "several",
    queues_off_the_list: "several",
    queues_that_appear: "several",
    queues_that_are_gone: "several",
    tables_behind_names: "several",
    seals: "atomic",
    batches_without_rows: "atomic",
    patient_settling: "atomic",
    one_source_a_stage: "atomic",
    one_transaction: "atomic",
    stage_of_the_offset: "atomic",
    batches_left_to_the_sink: "atomic",
    keys_of_final_addresses: "sending",
    tables_of_copies: "sending",
    origins_of_outcomes: "handling",
    ids_of_handled_messages: "handling",
    outcomes_at_once: "handling",
    rows_that_the_outbox_knows: "handling",
    origins_in_headers: "handling",
    messages_of_others: "handling",
    ways_to_the_own_queue: "handling",
    forwarding.waiting_by_an_earlier_try: "forwarding",
    forwarding.marks_of_outcomes: "forwarding",
    forwarding.origins_of_waiting_messages: "forwarding",
    forwarding.putting_back_at_once: "forwarding",
    forwarding.waiting_by_an_earlier_process: "forwarding",
    forwarding.waiting_by_a_task_that_died: "forwarding",
    forwarding.ids_of_what_waits: "forwarding",
    forwarding.notes_of_jobs: "forwarding",
    forwarding.notes_of_what_waits: "forwarding",
}

#: Scenarios in which the absence of a fix shows soon, by their seed, for those that the scenarios of every
#: ``make test`` show late.
SOON: dict[Fix, int] = {
    queues_off_the_list: 9,
    queues_that_appear: 1,
    batches_without_rows: 2,
    keys_of_final_addresses: 3,
    tables_of_copies: 8,
    origins_of_outcomes: 1,
    ids_of_handled_messages: 4,
    outcomes_at_once: 1,
    origins_in_headers: 2,
    forwarding.waiting_by_an_earlier_process: 1,
    forwarding.ids_of_what_waits: 4,
}
