"""A chunk whose messages have their tables, what has become of it so far, and what is written of it next."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.database_of_address import Place
from sqlqueue_spark.send.deliver.destination_tables import Destination
from sqlqueue_spark.send.deliver.tables_of_chunk import Addressed


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
class AddressedChunk(Chunk):
    """A chunk on its way.

    :param refused: copies of events that failed alone.
    :param known: the rows of which home knows that they had their outcome before anything was sent.
    :param sent: messages that another database has, and whether they were new there; copies that failed alone
        in an earlier try are among them, because they do not go there any more.
    :param told: rows whose acknowledgement can be delivered.
    """

    addressed: Sequence[Addressed]
    refused: Mapping[int, Failure] = field(default_factory=dict)
    known: Collection[int] = ()
    sent: Mapping[int, bool] = field(default_factory=dict)
    told: Mapping[int, Destination | Place] = field(default_factory=dict)

    def goes(self, message: int) -> bool:
        """Whether a message is still to go out."""
        row = self.owners[message]
        left = row not in self.failed and row not in self.known
        return left and message not in self.refused and message not in self.sent

    @cached_property
    def address_of(self) -> Mapping[int, Addressed]:
        """Where each message goes."""
        return {at: each for each in self.addressed for at in each.positions}

    def only(self, kept: range) -> Self:
        """The rows at these positions alone, what they send, and what has become of it."""
        its = self.messages_within(kept)
        parts = [replace(to, positions=_moved(to.positions, its)) for to in self.addressed]
        return replace(
            super().only(kept),
            addressed=[each for each in parts if each.positions],
            refused={at - its.start: each for at, each in self.refused.items() if at in its},
            known=_moved(self.known, kept),
            sent={at - its.start: each for at, each in self.sent.items() if at in its},
            told={at - kept.start: each for at, each in self.told.items() if at in kept},
        )

    def refusing(self, positions: Iterable[int], failure: Failure) -> Self:
        """The chunk, of which these messages are refused. One of several copies fails alone, else its row."""
        copies, failed = dict(self.refused), dict(self.failed)
        for at in positions:
            row = self.owners[at]
            if self.sends.is_event(at) if self.handled else len(self.messages_of(row)) > 1:
                copies[at] = failure
            else:
                failed.setdefault(row, failure)
        return replace(self, failed=failed, refused=copies)


def _moved(positions: Iterable[int], kept: range) -> list[int]:
    """Positions within a chunk as positions within this range of it. Others are left out."""
    return [at - kept.start for at in positions if at in kept]
