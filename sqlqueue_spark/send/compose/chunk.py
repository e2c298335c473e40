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
        if self.rows is None:
            return range(row, row + 1)
        first = bisect.bisect_left(self.owners, row)
        return range(first, bisect.bisect_right(self.owners, row, first))

    def failing(self, failures: Mapping[int, Failure]) -> Self:
        """The same chunk, but these rows have failed too."""
        return replace(self, failed={**failures, **self.failed})

    def only(self, kept: range) -> Self:
        """The rows at these positions alone, and what they send."""
        first = bisect.bisect_left(self.owners, kept.start)
        messages = range(first, bisect.bisect_left(self.owners, kept.stop, first))
        return replace(
            self,
            sends=self.sends.only(messages),
            rows=None if self.rows is None else self.rows.only(kept),
            owners=[self.owners[at] - kept.start for at in messages],
            failed={at - kept.start: each for at, each in self.failed.items() if at in kept},
        )
