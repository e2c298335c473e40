"""The received rows of a chunk, and what each of them is known by.

A row that is *handled* has one outcome, the first that is committed: all that it sends goes out together, or
it fails. A row that is *passed on* is a message that goes to its destinations, and known there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import Owed, owed_by
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.origin import Origin

#: When a received message was processed; NULL where the frame does not tell.
TIMES = pa.schema([(name, pa.timestamp("us", tz="UTC")) for name in ("ProcessingStarted", "ProcessingEnded")])
#: What a stored row is known by that is no message: the origin of the row that it tells of, and what it is.
#: The failure of a message that was not received has the key of that failure in the place of an origin.
FAILED, ACKNOWLEDGED, AUDITED = "failed", "acknowledged", "audited"
_RESULT = re.compile(
    rf"(?:[0-9a-f-]{{36}}--?[0-9]+(?:\+[0-9]+)?(?:-[0-9a-f-]+)?/(?P<kind>{FAILED}|{ACKNOWLEDGED}|{AUDITED})"
    rf"|[!-~]*>(?:[0-9a-v]{{10}}|[0-9a-f]{{32}})/(?P<plain>{FAILED})).*",
    re.DOTALL,
)
_COLUMNS = ("queues", "row_versions", "row_ids", "ids", "headers", "bodies", "times")


@dataclass(frozen=True, kw_only=True)
class Received:
    """Received rows.

    :param handled: whether they are handled; else they are passed on.
    :param on_their_way: whether they were only stored in their queue for another one.
    :param queues: the address of the queue of each; ``row_versions`` and ``row_ids`` say which row it was.
    :param ids: the message id of each, ``headers`` and ``bodies`` those of the frame.
    :param stores: whether their queue stores what becomes of them in another database.
    :param times: when each was processed (:data:`TIMES`).
    :param moved: the origins of those that we have moved, by their positions.
    :param stored: those that we have stored for another database, and what each is known by there.
    """

    handled: bool
    on_their_way: bool = False
    queues: pa.Array
    row_versions: pa.Array
    row_ids: pa.Array
    ids: pa.Array
    headers: pa.Array
    bodies: pa.Array
    times: pa.RecordBatch
    stores: bool = True
    moved: Mapping[int, Origin]
    stored: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, kept: Sequence[int]) -> Received:
        """The rows at these positions alone, which are in ascending order."""
        its = pa.array(kept, pa.int32())
        return replace(
            self,
            **{name: getattr(self, name).take(its) for name in _COLUMNS},
            moved={number: self.moved[at] for number, at in enumerate(kept) if at in self.moved},
            stored={number: self.stored[at] for number, at in enumerate(kept) if at in self.stored},
        )

    def queue(self, position: int) -> str:
        return self.queues[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def row_id(self, position: int) -> str:
        return self.row_ids[position].as_py()  # type: ignore[no-any-return] # pyarrow has no types

    def origin(self, position: int) -> Origin:
        """What a row is known by."""
        if position in self.moved:
            return self.moved[position]
        return Origin(self.row_id(position).lower(), self.row_versions[position].as_py())

    @cached_property
    def origin_texts(self) -> pa.Array:
        """The key of the origin of each row (:attr:`Origin.key`)."""
        return self._texts_of(self.moved)

    @cached_property
    def first_texts(self) -> pa.Array:
        """The key of each row's origin as it was before we moved it: by it is known what no move undoes."""
        return self._texts_of({at: each._replace(moves=0) for at, each in self.moved.items()})

    def _texts_of(self, moved: Mapping[int, Origin]) -> pa.Array:
        texts = pc.binary_join_element_wise(
            pc.utf8_lower(self.row_ids), self.row_versions.cast(pa.string()), "-"
        )
        if not moved:
            return texts
        keys = [moved[at].key if at in moved else None for at in range(len(self))]
        return pc.coalesce(pa.array(keys, pa.string()), texts)

    @cached_property
    def owed(self) -> Mapping[int, Owed]:
        """The acknowledgements of rows that ServiceControl has put back. A row that we stored owes none."""
        return {at: each for at, each in owed_by(self.headers).items() if at not in self.stored}

    def result(self, position: int) -> str | None:
        """What a row is that we stored for another database as the result of a row; None for any other."""
        told = _RESULT.fullmatch(self.stored.get(position, ""))
        return told and (told["kind"] or told["plain"])

    @cached_property
    def texts(self) -> Sequence[str | None]:
        """The headers."""
        return self.headers.to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def bodies_of(self, positions: Sequence[int]) -> pa.Array:
        return self.bodies.take(pa.array(positions, pa.int32()))
