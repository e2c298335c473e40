"""Takes one fix after the other out of the code; the machine must then find what breaks."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive import destructive_read, held_claim, offset
from sqlqueue_spark.receive.claim import delete
from sqlqueue_spark.receive.held_claim import HeldClaim
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.scanner import Scanner
from sqlqueue_spark.receive.stage_lifecycle import StageLifecycle
from sqlqueue_spark.send.message_builder import Composed
from sqlqueue_spark.send.sender import Sender
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.stage import Run, Stage
from sqlqueue_spark.tables.stage_mark import Batch, Mark


@contextlib.contextmanager
def serials() -> Iterator[None]:
    """Two batches of the same rows have the same offset."""

    def same(_: object) -> int:
        return 0

    with (
        mock.patch.object(offset, "next_serial", same),
        mock.patch.object(held_claim, "next_serial", same),
        mock.patch.object(destructive_read, "next_serial", same),
    ):
        yield


@contextlib.contextmanager
def seals() -> Iterator[None]:
    """What stands on the stage goes out, whether a sink has sealed it or not, and whether it is all there or not."""

    def send(self: Stage, mark: Mark) -> int:
        moved = sum(
            self._move(to, list(mark.tasks), mark.after, settling=True) for to in sorted(mark.destinations)
        )
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
            raise ConfigurationError(f"The stage {self._table} belongs to no batch.")
        return enter(self, batch, last)

    with mock.patch.object(Stage, "enter", refuse):
        yield


@contextlib.contextmanager
def patient_settling() -> Iterator[None]:
    """Settling empties the stage, for which it wants the table for itself, and gives the rows back at the first error."""
    send = StageLifecycle.send

    def settle(self: HeldClaim, send: Callable[[], None]) -> None:
        try:
            if not self.deleted:
                delete(self.queue, self.rows)
            send()
            self.queue.connection.commit()
        except Exception:
            self.release()
            raise

    def send_and_empty(self: StageLifecycle, queue: Queue, end: Offset, *, deleting: int) -> None:
        send(self, queue, end, deleting=deleting)
        if self._sent is not None:
            Stage(queue.connection, Table.from_text(end.stage)).clear()

    with (
        mock.patch.object(HeldClaim, "settle", settle),
        mock.patch.object(StageLifecycle, "send", send_and_empty),
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
    placed, own = Sender._placed, [""]

    def remember(self: Sender, chunk: Composed) -> Any:
        own[0] = self._options.queue or ""
        return placed(self, chunk)

    def keys(self: Composed, address: str, positions: Sequence[int]) -> list[str]:
        ids = [self.ids[at] for at in positions]
        if address.partition("@")[0] == own[0]:
            return ids
        copy = hashlib.sha256(address.encode()).hexdigest()[:16]
        return [f"{each}>{copy}" for each in ids]

    with mock.patch.object(Sender, "_placed", remember), mock.patch.object(Composed, "keys", keys):
        yield


@contextlib.contextmanager
def turns_of_claims_ahead() -> Iterator[None]:
    """Late rows always go before what is claimed ahead."""

    def never(_: Scanner[Any]) -> bool:
        return False

    def forget(_: Scanner[Any], __: bool) -> None: ...

    with mock.patch.object(Scanner, "_ahead_waited", property(never, forget), create=True):
        yield


#: Takes a fix out within a block.
Fix = Callable[[], contextlib.AbstractContextManager[None]]

#: Each fix, and the family in which its absence shows.
FIXES: dict[Fix, str] = {
    serials: "storing",
    turns_of_claims_ahead: "storing",
    seals: "atomic",
    batches_without_rows: "atomic",
    patient_settling: "atomic",
    one_source_a_stage: "atomic",
    keys_of_final_addresses: "sending",
}
