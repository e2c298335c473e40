"""What becomes of one row that a neighbour has taken, in the transaction in which it took it."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from uuid import UUID, uuid4

from tests.support.neighbour import wire_headers
from tests.support.neighbour.addresses import UnknownQueueError
from tests.support.neighbour.counts import Counts
from tests.support.neighbour.habits import Habits
from tests.support.neighbour.handling import Handler, Handling, Message
from tests.support.neighbour.wire import Taken, Wire
from tests.support.neighbour.wire_headers import NullHeadersError, PoisonError


class StandsStillError(Exception):
    """A row that the endpoint can neither handle nor move: it goes back, and is the next one again."""


class Receiver:
    """The life of one receiver, a row at a time."""

    def __init__(
        self,
        wire: Wire,
        counts: Counts,
        habits: Habits,
        own_address: str,
        handler: Handler | None,
        *,
        second: Callable[[], int],
        pause: Callable[[int], None],
        failures: Counter[str],
        handled: list[UUID],
        dice: random.Random,
    ) -> None:
        """Nothing is taken before :meth:`receive`.

        :param second: in which second of its life the endpoint is.
        :param pause: waits as long as handling takes; it is told the row's RowVersion.
        :param failures: how often the handler has failed on a message id, of all receivers.
        :param handled: takes the ids of the rows that were handled.
        """
        self._wire, self._counts, self._habits, self._dice = wire, counts, habits, dice
        self._own_address, self._own_place = own_address, wire.place(own_address)
        self._handler = handler
        self._second, self._pause = second, pause
        self._failures, self._handled = failures, handled

    def receive(self) -> bool:
        """Take a row and do with it what an endpoint does; False if none was free.

        :raises StandsStillError: the row has gone back.
        """
        taken = self._wire.take()
        if taken is None:
            self._wire.rollback()
            self._counts.empty += 1
            return False
        try:
            self._settle(taken)
        except (StandsStillError, UnknownQueueError) as error:
            self._wire.rollback()
            self._counts.stood_still += 1
            raise StandsStillError from error
        return True

    def _settle(self, taken: Taken) -> None:
        if taken.body is None and self._wire.refuses_null:
            raise StandsStillError
        body = taken.body or b""
        if taken.expired:
            self._wire.commit()
            self._counts.expired += 1
            return
        try:
            headers = wire_headers.read(taken.headers)
        except NullHeadersError as error:
            raise StandsStillError from error
        except PoisonError:
            self._wire.insert(self._habits.error_queue, taken.id, taken.headers or "", body)
            self._wire.commit()
            self._counts.poison += 1
            return
        destination = headers.get(wire_headers.FORWARD_DESTINATION)
        if destination is not None:
            del headers[wire_headers.FORWARD_DESTINATION]
            if self._wire.place(destination) != self._own_place:
                self._wire.insert(destination, uuid4(), wire_headers.write(headers), body)
                self._wire.commit()
                self._counts.moved_on += 1
                return
        message = Message(
            id=taken.id,
            row_version=taken.row_version,
            message_id=headers.get(wire_headers.MESSAGE_ID) or str(taken.id),
            headers=headers,
            body=body,
        )
        if self._failures and self._failures[message.message_id] > self._habits.immediate_retries:
            retries = int(message.headers.get(wire_headers.RETRIES, "0"))
            if retries < self._habits.delayed_retries:
                self._try_later(message, retries + 1)
            else:
                self._give_up(message)
        else:
            self._handle(message)

    def _handle(self, message: Message) -> None:
        """Whatever the handler sends counts only once the transaction is committed."""
        sent = Counts()
        handling = Handling(message, self._own_address, self._wire, sent)
        try:
            self._pause(message.row_version)
            if self._handler is not None:
                self._handler(handling)
            if self._habits.replies:
                handling.reply(self._habits.replies)
            if self._habits.publishes:
                handling.publish(self._habits.publishes)
        except self._wire.lost:
            raise
        except Exception:  # noqa: BLE001 -- as an endpoint does, which tries again and then moves the message to error
            # Before the row is free, because the receiver that takes it next goes by it.
            self._failures[message.message_id] += 1
            self._wire.rollback()
            self._counts.failures += 1
            return
        if self._habits.rolls_back and self._dice.random() < self._habits.rolls_back:
            self._wire.rollback()
            self._counts.rolled_back += 1
            return
        self._wire.commit()
        self._counts.handled += 1
        self._counts.replied += sent.replied
        self._counts.published += sent.published
        self._counts.sent += sent.sent
        self._counts.by_second[self._second()] += 1
        if self._habits.remembers:
            self._handled.append(message.id)

    def _try_later(self, message: Message, number: int) -> None:
        after = self._habits.delayed_retries_increase * number
        headers = {
            **message.headers,
            wire_headers.RETRIES: str(number),
            wire_headers.RETRIES_TIMESTAMP: wire_headers.now(),
            wire_headers.DELIVER_AT: wire_headers.now(after),
            wire_headers.FORWARD_DESTINATION: self._own_address,
        }
        self._wire.delay(wire_headers.write(headers), message.body, after)
        del self._failures[message.message_id]
        self._wire.commit()
        self._counts.retried_later += 1

    def _give_up(self, message: Message) -> None:
        headers = {
            **message.headers,
            "NServiceBus.FailedQ": self._own_address,
            "NServiceBus.ExceptionInfo.ExceptionType": "System.InvalidOperationException",
            "NServiceBus.ExceptionInfo.Message": "the handler has failed",
            "NServiceBus.TimeOfFailure": wire_headers.now(),
            "NServiceBus.ProcessingEndpoint": self._own_place.table,
        }
        for lost in ("NServiceBus.TimeToBeReceived", wire_headers.RETRIES):
            headers.pop(lost, None)
        self._wire.insert(self._habits.error_queue, uuid4(), wire_headers.write(headers), message.body)
        # As the transport forgets it: when it is put back, it is tried again as often as the first time.
        del self._failures[message.message_id]
        self._wire.commit()
        self._counts.failed += 1


class Pump:
    """How many receives may begin: as many as the last look has said, one where the endpoint stands still.

    That one begins when all others have ended. A real endpoint rests for so long that they have.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._starts = self._under_way = 0
        self._over = False
        #: Whether the last receive has ended with a row that cannot be received.
        self.stands_still = False

    def allow(self, starts: int) -> None:
        """Let this number of receives begin; returns when they have, or when one of them found nothing."""
        with self._changed:
            if self.stands_still:
                self._changed.wait_for(lambda: self._under_way == 0 or self._over)
            self._starts = 1 if self.stands_still else starts
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._starts == 0 or self._over)

    def may_begin(self) -> bool:
        """Wait until a receive may begin, which says when it :meth:`has_ended`;
        False when the endpoint ends.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._starts > 0 or self._over)
            if self._over:
                return False
            self._starts -= 1
            self._under_way += 1
            if self._starts == 0:
                self._changed.notify_all()
            return True

    def has_ended(self) -> None:
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def no_more(self, *, stands_still: bool = False) -> None:
        """A receive has found nothing, or a row that cannot be received:
        the others of this look do not begin.
        """
        with self._changed:
            self._starts = 0
            self.stands_still = self.stands_still or stands_still
            self._changed.notify_all()

    def went_well(self) -> None:
        self.stands_still = False

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
