"""What a chunk writes in one database: messages that the outbox there knows by their sends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.send.deliver.chunk import Chunk, Decision
from sqlqueue_spark.send.deliver.destinations import Rows
from sqlqueue_spark.send.deliver.routes import Addressed, Routes
from sqlqueue_spark.send.deliver.sends import in_tables, inserted_rows, send_keys
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import Why


class RolledBack(SqlQueueError):
    """The transaction of a chunk is rolled back, because tables refuse some of its messages."""

    def __init__(self, refused: Sequence[Why[int]]) -> None:
        super().__init__("; ".join(str(error) for _, error in refused))
        self.refused = refused


class Work:
    """The messages of a chunk for another database than that of its rows."""

    def __init__(self, routes: Routes, chunk: Chunk, addressed: Sequence[Addressed]) -> None:
        self._routes = routes
        self.chunk = chunk
        self.addressed = addressed
        # What handled rows send is known by their outcomes.
        self.keys = {} if chunk.handled else send_keys(chunk, addressed, remembered=routes.remembers)

    def asked(self) -> Iterable[str]:
        """The keys for which the outbox is asked."""
        return self.keys.values()

    def earlier_origins(self) -> Mapping[str, str]:
        """The keys by which version 0.2.0 may have known outcomes, each with the present key."""
        return {}

    def decide(self, known: Collection[str]) -> Decision:
        """What is to be written where the outbox knows these keys.

        :raises RolledBack: a table cannot be reached, and messages for it were not sent before either.
        """
        lost: list[Why[int]] = []
        first: dict[str, int] = {}
        for each in self.addressed:
            left = [at for at in each.positions if self.keys[at] not in known]
            if each.to is None and left:
                assert each.error is not None, "nothing is sent to a database that is down"
                lost.append((left, each.error))
            for at in left:
                first.setdefault(self.keys[at], at)
        if lost:
            raise RolledBack(lost)
        return Decision(messages=sorted(first.values()), keys=set(first))

    def messages(self, decision: Decision) -> Iterator[tuple[Addressed, Sequence[int]]]:
        return in_tables(self.addressed, decision.messages)

    def message_rows(self, to: Addressed, positions: Sequence[int]) -> list[Rows]:
        return inserted_rows(self._routes, self.chunk, to, positions)

    def beside(self, _: Decision) -> list[Rows]:
        return []

    def acknowledged(self, _: Decision) -> Iterable[Rows]:
        return []

    def counted(self, decision: Decision) -> Sent:
        assert self.chunk.sends is not None
        return Sent(delayed=self.chunk.sends.delays(decision.messages))
