"""What a chunk writes in another database: its outbox knows the messages by their sends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlqueue_spark.send.deliver.chunk import Chunk, Decision
from sqlqueue_spark.send.deliver.destinations import Rows
from sqlqueue_spark.send.deliver.routes import Addressed, Routes
from sqlqueue_spark.send.deliver.sends import in_tables, inserted_rows, send_keys
from sqlqueue_spark.send.sent import Sent


class Elsewhere:
    """The messages of a chunk for another database: its outbox knows them by their sends."""

    def __init__(self, routes: Routes, chunk: Chunk, addressed: Sequence[Addressed]) -> None:
        self._routes = routes
        self.chunk = chunk
        self.addressed = [each for each in addressed if each.positions]
        self.keys = send_keys(chunk, self.addressed, remembered=routes.remembers)

    def asked(self) -> Iterable[str]:
        return self.keys.values()

    def decide(self, known: Collection[str]) -> Decision:
        first: dict[str, int] = {}
        for at, key in self.keys.items():
            if key not in known:
                first.setdefault(key, at)
        reached = {at for each in self.addressed if each.to is not None for at in each.positions}
        new = {key: at for key, at in first.items() if at in reached}
        return Decision(messages=sorted(new.values()), keys=list(new))

    def lost(self, known: Collection[str]) -> Iterator[Addressed]:
        """The messages whose table cannot be reached, and which were not sent before either."""
        for each in self.addressed:
            left = [at for at in each.positions if self.keys[at] not in known]
            if each.to is None and left:
                yield each.only(left)

    def messages(self, decision: Decision) -> Iterator[tuple[Addressed, Sequence[int]]]:
        return in_tables(self.addressed, decision.messages)

    def message_rows(self, to: Addressed, positions: Sequence[int]) -> list[Rows]:
        return inserted_rows(self._routes, self.chunk, to, positions)

    def beside(self, _: Decision) -> list[Rows]:
        return []

    def acknowledged(self, _: Decision) -> list[Rows]:
        return []

    def counted(self, decision: Decision) -> Sent:
        assert self.chunk.sends is not None
        return Sent(delayed=self.chunk.sends.delays(decision.messages))
