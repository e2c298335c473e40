"""A chunk: messages that go out in one transaction in each database, and the received rows behind them."""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.send.compose.composed import Composed
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.received import Received


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Messages, each sent by a row.

    :param places: what reads the addresses that they go to.
    :param sends: all messages.
    :param rows: the received rows that send them; None for plain messages, of which each is a row by itself.
    :param owners: of each message the position of its row, in ascending order.
    :param failed: the rows that have failed, by their positions. Nothing of what they send goes out.
    """

    places: Places
    sends: Composed
    rows: Received | None = None
    owners: Sequence[int]
    failed: Mapping[int, Failure] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.owners) if self.rows is None else len(self.rows)

    @property
    def handled(self) -> bool:
        return self.rows is not None and self.rows.handled

    def messages_of(self, row: int) -> range:
        """The positions of the messages that a row sends."""
        rows = range(row, row + 1)
        return rows if self.rows is None else self.messages_within(rows)

    def messages_within(self, rows: range) -> range:
        """The positions of the messages that these rows send."""
        first = bisect.bisect_left(self.owners, rows.start)
        return range(first, bisect.bisect_left(self.owners, rows.stop, first))

    def failing(self, failures: Mapping[int, Failure]) -> Self:
        """The same chunk, but these rows have failed too."""
        return replace(self, failed={**failures, **self.failed})

    def halves(self) -> tuple[Self, Self]:
        """The first half of the rows and the second, each with what it sends."""
        middle = len(self) // 2
        return self.only(range(middle)), self.only(range(middle, len(self)))

    def only(self, kept: range) -> Self:
        """The rows at these positions alone, and what they send."""
        messages = self.messages_within(kept)
        return replace(
            self,
            sends=self.sends.only(messages),
            rows=None if self.rows is None else self.rows.only(kept),
            owners=[self.owners[at] - kept.start for at in messages],
            failed={at - kept.start: each for at, each in self.failed.items() if at in kept},
        )
