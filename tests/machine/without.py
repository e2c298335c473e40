"""Takes one fix after the other out of the code; the machine must then find what breaks."""

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive import offset
from sqlqueue_spark.receive.claiming import headroom
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.claiming.in_transit import Forwarder
from sqlqueue_spark.receive.claiming.next_batch import QueueRows
from sqlqueue_spark.receive.claiming.scanner import Scanner
from sqlqueue_spark.receive.holding import held_batch, replay
from sqlqueue_spark.receive.holding.held_batch import HeldBatch
from sqlqueue_spark.receive.holding.open_claim import OpenClaim, Settling
from sqlqueue_spark.receive.holding.replay import Wanted
from sqlqueue_spark.receive.holding.stage_dispatch import StageDispatch
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.send.composed import Composed
from sqlqueue_spark.send.destinations import Destination
from sqlqueue_spark.send.outcomes import Keys, Outcomes
from sqlqueue_spark.send.routes import Routes
from sqlqueue_spark.tables.insert import Why
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.stage import Run, Stage
from sqlqueue_spark.tables.stage_mark import Batch, Mark
from tests.machine import without_forwarding as forwarding


@contextlib.contextmanager
def serials() -> Iterator[None]:
    """Two batches of the same rows have the same offset."""

    def same(_: object) -> int:
        return 0

    with mock.patch.object(offset, "next_serial", same):
        yield


@contextlib.contextmanager
def seals() -> Iterator[None]:
    """What stands on the stage goes out, whether a sink has sealed it or not, and whether it is all there or not."""

    def send(self: Stage, mark: Mark) -> int:
        tasks = list(mark.tasks)
        moved = sum(self.move_rows(to, tasks, mark.after) for to in sorted(mark.destinations))
        self._write(mark.done())
        return moved

    with mock.patch.object(Stage, "_send", send):
        yield


@contextlib.contextmanager
def batches_without_rows() -> Iterator[None]:
    """A sink stages nothing where no claim has opened the stage."""
    enter = Stage.enter

    def refuse(self: Stage, batch: Batch, last: Run | None) -> Run:
        mark = self.mark() if self.exists() else None
        if mark is None or not mark.claim:
            raise ConfigurationError(f"The stage {self.table} belongs to no batch.")
        return enter(self, batch, last)

    with mock.patch.object(Stage, "enter", refuse):
        yield


@contextlib.contextmanager
def patient_settling() -> Iterator[None]:
    """Settling empties the stage, for which it wants the table for itself, and gives the rows back at the first error."""
    send = StageDispatch.send

    def settle(self: OpenClaim, send: Callable[[], None]) -> None:
        try:
            for part in self.parts:
                part.delete()
            send()
            self.session.connection.commit()
        except Exception:
            self.release()
            raise

    def send_and_empty(self: StageDispatch, session: QueueSession, end: Offset, *, deleting: int) -> None:
        send(self, session, end, deleting=deleting)
        if self._sent is not None:
            Stage(session.connection, Table.from_text(end.stage)).clear()

    with (
        mock.patch.object(OpenClaim, "settle", settle),
        mock.patch.object(StageDispatch, "send", send_and_empty),
    ):
        yield


@contextlib.contextmanager
def one_source_a_stage() -> Iterator[None]:
    """Two sources of one stream stage into each other's batches."""

    def enter(self: Stage, batch: Batch, _: Run | None) -> Run:
        return Run(name=self._opened(self.mark()).run, batch=batch, source_seen=True)

    with (
        mock.patch.object(Stage, "hold", return_value=None),
        mock.patch.object(Stage, "holders", return_value=[]),
        mock.patch.object(Stage, "enter", enter),
    ):
        yield


@contextlib.contextmanager
def keys_of_final_addresses() -> Iterator[None]:
    """The outbox knows what goes to the option ``queue`` by its id alone, and what goes elsewhere by id and table."""
    placed, own = Routes.placed, [""]

    def remember(self: Routes, chunk: Composed) -> Any:
        own[0] = self.options.queue or ""
        return placed(self, chunk)

    def keys(self: Composed, address: str, positions: Sequence[int], _: object = None) -> list[str]:
        ids = [self.ids[at] for at in positions]
        if address.partition("@")[0] == own[0]:
            return ids
        copy = hashlib.sha256(address.encode()).hexdigest()[:16]
        return [f"{each}>{copy}" for each in ids]

    with mock.patch.object(Routes, "placed", remember), mock.patch.object(Composed, "keys", keys):
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
    finish = HeldBatch.finish

    def finish_own(self: HeldBatch, start: Offset | None) -> None:
        if self._held is None:
            self._settled = start
        finish(self, start)

    with mock.patch.object(HeldBatch, "finish", finish_own):
        yield


@contextlib.contextmanager
def one_transaction() -> Iterator[None]:
    """What is left of a batch is sent in one transaction and deleted in the next."""
    settle = OpenClaim.settle

    def settle_twice(self: OpenClaim, send: Callable[[], None]) -> None:
        if self.settling is Settling.ITS_CLAIM:
            settle(self, send)
            return
        send()
        self.session.connection.commit()
        settle(self, lambda: None)

    with mock.patch.object(OpenClaim, "settle", settle_twice):
        yield


@contextlib.contextmanager
def stage_of_the_offset() -> Iterator[None]:
    """A source that is no longer atomic deletes a batch and leaves on the stage what the batch sends."""
    send = StageDispatch.send

    def send_if_atomic(self: StageDispatch, session: QueueSession, end: Offset, *, deleting: int) -> None:
        if self._own is not None:
            send(self, session, end, deleting=deleting)

    with mock.patch.object(StageDispatch, "send", send_if_atomic):
        yield


@contextlib.contextmanager
def batches_left_to_the_sink() -> Iterator[None]:
    """The stage sends a batch that was begun atomic, though its sink sends it by itself since."""

    def leave(_: StageDispatch, __: Offset) -> None: ...

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
    again = replay.locked_again

    def of_the_first(session: QueueSession, wanted: Sequence[Wanted]) -> list[QueueRows]:
        return again(session, wanted[:1])

    with mock.patch.object(held_batch, "locked_again", of_the_first):
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
def origins_of_outcomes() -> Iterator[None]:
    """The outbox knows that a message was handled, and not that it has failed."""

    def only_handled(self: Outcomes, queue: Callable[[str], str]) -> Keys:
        found = keys(self, queue)
        unheard_of = [f"{each}!{uuid.uuid4()}" for each in found.origins]
        return Keys([each[-200:] for each in unheard_of], found.ids)

    keys = Outcomes.keys
    with mock.patch.object(Outcomes, "keys", only_handled):
        yield


@contextlib.contextmanager
def ids_of_handled_messages() -> Iterator[None]:
    """The outbox knows a message that was handled by its row alone."""

    def only_origins(self: Outcomes, queue: Callable[[str], str]) -> Keys:
        found = keys(self, queue)
        return Keys(found.origins, [f"{each}!"[-200:] for each in found.origins])

    keys = Outcomes.keys
    with mock.patch.object(Outcomes, "keys", only_origins):
        yield


@contextlib.contextmanager
def outcomes_at_once() -> Iterator[None]:
    """What an outcome sends to each destination is committed by itself."""

    def each_alone(
        self: Routes, connection: Connection, to: Destination, chunk: Composed, positions: Sequence[int]
    ) -> list[Why[int]]:
        done = insert(self, connection, to, chunk, positions)
        connection.commit()
        fail_points.step(fail_points.ROWS_INSERTED)
        return done

    insert = Routes.insert
    with mock.patch.object(Routes, "insert", each_alone):
        yield


@contextlib.contextmanager
def tables_of_copies() -> Iterator[None]:
    """The outbox knows the copy of an event by its place among the copies, not by the table that it goes to."""

    def by_place(
        self: Composed, address: str, positions: Sequence[int], final: Callable[[str], str] = str
    ) -> list[str]:
        if positions and self.is_copy(positions[0]):
            places = [to for to, its in self.destinations() if self.is_copy(its[0])]
            address = f"copy {places.index(self.destination(positions[0]))}"
        return keys(self, address, positions, final)

    keys = Composed.keys
    with mock.patch.object(Composed, "keys", by_place):
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
    forwarding.parked_by_an_earlier_try: "forwarding",
    forwarding.origins_of_parked_messages: "forwarding",
    forwarding.putting_back_at_once: "forwarding",
    forwarding.parked_by_an_earlier_process: "forwarding",
    forwarding.parked_by_a_task_that_died: "forwarding",
}

#: Scenarios in which the absence of a fix shows soon, by their seed, for those that the scenarios of every ``make test`` show late.
SOON: dict[Fix, int] = {
    queues_off_the_list: 9,
    batches_without_rows: 2,
    keys_of_final_addresses: 3,
    tables_of_copies: 8,
    origins_of_outcomes: 1,
    ids_of_handled_messages: 4,
    forwarding.origins_of_parked_messages: 2,
    forwarding.parked_by_an_earlier_try: 2,
}
