"""Handles the messages of a record batch one after the other, in this process."""

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from sqlqueue_spark.errors import WrongAnswer
from sqlqueue_spark.handling.handler_calls import Handler, Seen, Watch
from sqlqueue_spark.handling.outcome_columns import Outcome, failed, outcome_columns
from sqlqueue_spark.handling.received_message import ReceivedMessage, received

#: Outcomes are given away when the first of them is this old, or when they have this many bytes.
_OLDEST_SECONDS = 0.05
_MOST_BYTES = 4 << 20


class BatchHandler:
    """Calls a handler for each message, and makes the message's outcome of what it answers or raises."""

    def __init__(self, handler: Handler, seen: Seen | None = None) -> None:
        self._handler = handler
        self._watch = Watch(handler.limits.timeout, seen)

    def outcomes(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The columns of the outcomes, part by part, so that little is lost when the process dies."""
        seen = self._watch.seen
        with self._watch.alarms():
            part: list[tuple[ReceivedMessage | None, Outcome]] = []
            size, due = 0, time.monotonic() + _OLDEST_SECONDS
            its = received(messages, self._handler.naming)
            for position in range(messages.num_rows):
                seen.position = position  # to read the headers of one may take all the time or memory, too
                message = next(its)
                outcome = self._outcome(message)
                part.append((message, outcome))
                for each in outcome.sends or ():
                    size += len(each.body)
                if size > _MOST_BYTES or time.monotonic() > due:
                    yield self._columns(part)
                    self._watch.listen()
                    part, size, due = [], 0, time.monotonic() + _OLDEST_SECONDS
            if part:
                yield self._columns(part)

    def _outcome(self, message: ReceivedMessage | None) -> Outcome:
        if message is None:
            return Outcome()
        try:
            sends, started = self._handler.answers(message, self._watch)
            ended = max(started, time.time_ns())  # the clock may have been set back
            return Outcome(sends, None, started // 1_000, ended // 1_000)
        except BaseException as error:  # noqa: BLE001 -- a handler is a user's, and may raise anything
            return self._failed(error, message)

    def _failed(self, error: BaseException, message: ReceivedMessage | None) -> Outcome:
        return failed(error, message, self._handler.limits, self._handler.packages)

    def _columns(self, part: Sequence[tuple[ReceivedMessage | None, Outcome]]) -> pa.RecordBatch:
        try:
            return outcome_columns([outcome for _, outcome in part])
        except Exception:  # noqa: BLE001 -- pyarrow raises many kinds; each message is tried below
            return outcome_columns([self._holdable(*each) for each in part])

    def _holdable(self, message: ReceivedMessage | None, outcome: Outcome) -> Outcome:
        """The outcome, or a failure where no column can hold what the message sends."""
        try:
            outcome_columns([outcome])
        except Exception as error:  # noqa: BLE001 -- see above
            wrong = WrongAnswer(
                f"The handler answered what no row can hold: {error}; "
                "give texts of Unicode, and bodies below 2 GB."
            )
            return self._failed(wrong, message)
        return outcome
