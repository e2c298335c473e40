"""A chunk that was addressed, what has become of it so far, and what one transaction writes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.send.compose.composed import Composed
from sqlqueue_spark.send.compose.outcomes import Outcomes
from sqlqueue_spark.send.compose.places import Place
from sqlqueue_spark.send.deliver.destinations import Destination
from sqlqueue_spark.send.deliver.routes import Addressed


@dataclass(kw_only=True)
class Decision:
    """What a transaction writes.

    :param rows: the rows of the chunk that have their outcome in it, by position.
    :param messages: the messages that it inserts, and ``copies`` the copies of events that have failed.
    :param acknowledged: the rows that owe an acknowledgement, and have succeeded, now or before.
    :param keys: the keys that it adds to the outbox.
    """

    rows: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    repeated: int = 0


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Messages that were addressed, and what has become of them so far.

    :param rows: the received rows that send them; None for plain messages, of which each is a row by itself.
    :param failed: the rows that have failed, by position; ``refused`` are copies of events that failed alone.
    :param known: the rows of which home knows that they had their outcome before anything was sent.
    :param sent: messages that another database has, and whether they were new there; copies that failed alone
        in an earlier try are among them, because they do not go there any more.
    :param told: rows whose acknowledgement can be delivered.
    """

    rows: Outcomes | None
    sends: Composed | None
    addressed: Sequence[Addressed]
    failed: Mapping[int, Failure] = field(default_factory=dict)
    refused: Mapping[int, Failure] = field(default_factory=dict)
    known: Collection[int] = ()
    sent: Mapping[int, bool] = field(default_factory=dict)
    told: Mapping[int, Destination | Place] = field(default_factory=dict)

    @cached_property
    def owners(self) -> Sequence[int]:
        """Of each message the position of its row."""
        if self.rows is not None:
            return self.rows.owners
        return range(0 if self.sends is None else len(self.sends))

    def __len__(self) -> int:
        return len(self.owners) if self.rows is None else len(self.rows)

    @property
    def handled(self) -> bool:
        return self.rows is not None and self.rows.handled

    def messages_of(self, row: int) -> range:
        return range(row, row + 1) if self.rows is None else self.rows.messages_of(row)

    def _is_copy(self, message: int) -> bool:
        if self.handled:
            return self.sends is not None and self.sends.is_copy(message)
        return len(self.messages_of(self.owners[message])) > 1

    def goes(self, message: int) -> bool:
        """Whether a message is still to go out."""
        row = self.owners[message]
        left = row not in self.failed and row not in self.known
        return left and message not in self.refused and message not in self.sent

    @cached_property
    def address_of(self) -> Mapping[int, Addressed]:
        """Where each message goes."""
        return {at: each for each in self.addressed for at in each.positions}

    def refusing(self, positions: Iterable[int], failure: Failure) -> Chunk:
        """The chunk, of which these messages are refused. One of several copies fails alone, else its row."""
        copies, failed = dict(self.refused), dict(self.failed)
        for at in positions:
            if self.rows is not None and self._is_copy(at):
                copies[at] = failure
            else:
                failed.setdefault(self.owners[at], failure)
        return replace(self, failed=failed, refused=copies)
