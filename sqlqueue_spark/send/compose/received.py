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
TIMES = ("ProcessingStarted", "ProcessingEnded")
#: The columns of received rows: the address of the queue of each, which row it was there, and what it is.
ROWS = pa.schema([
    ("Queue", pa.string()),
    ("RowVersion", pa.int64()),
    ("Id", pa.string()),
    ("MessageId", pa.string()),
    ("Headers", pa.string()),
    ("Body", pa.binary()),
    *((name, pa.timestamp("us", tz="UTC")) for name in TIMES),
])  # fmt: skip
#: What a stored row is known by that is no message: the origin of the row that it tells of, and what it is.
#: The failure of a message that was not received has the key of that failure in the place of an origin.
FAILED, ACKNOWLEDGED, AUDITED = "failed", "acknowledged", "audited"
_RESULT = re.compile(
    rf"(?:[0-9a-f-]{{36}}--?[0-9]+(?:\+[0-9]+)?(?:-[0-9a-f-]+)?/(?P<kind>{FAILED}|{ACKNOWLEDGED}|{AUDITED})"
    rf"|[!-~]*>(?:[0-9a-v]{{10}}|[0-9a-f]{{32}})/(?P<plain>{FAILED})).*",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Received:
    """Received rows.

    :param frame: their columns (:data:`ROWS`).
    :param handled: whether they are handled; else they are passed on.
    :param on_their_way: whether they were only stored in their queue for another one.
    :param stores: whether their queue stores what becomes of them in another database.
    :param moved: the origins of those that we have moved, by their positions.
    :param stored: those that we have stored for another database, and what each is known by there.
    """

    frame: pa.RecordBatch
    handled: bool
    on_their_way: bool = False
    stores: bool = True
    moved: Mapping[int, Origin]
    stored: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.frame)

    def only(self, kept: Sequence[int]) -> Received:
        """The rows at these positions alone, which are in ascending order."""
        return replace(
            self,
            frame=self.frame.take(pa.array(kept, pa.int32())),
            moved={number: self.moved[at] for number, at in enumerate(kept) if at in self.moved},
            stored={number: self.stored[at] for number, at in enumerate(kept) if at in self.stored},
        )

    @cached_property
    def _places(self) -> Sequence[tuple[str, int, str]]:
        """Queue, number and Id of each row: one by one they are slow to ask a column for."""
        columns = (self.frame[name].to_pylist() for name in ("Queue", "RowVersion", "Id"))
        return list(zip(*columns, strict=True))

    def queue(self, position: int) -> str:
        return self._places[position][0]

    def row_id(self, position: int) -> str:
        return self._places[position][2]

    def origin(self, position: int) -> Origin:
        """What a row is known by."""
        _, row_version, row_id = self._places[position]
        return self.moved.get(position, Origin(row_id.lower(), row_version))

    @cached_property
    def origin_texts(self) -> pa.Array:
        """The key of the origin of each row (:attr:`Origin.key`)."""
        return self._texts_of(self.moved)

    @cached_property
    def first_texts(self) -> pa.Array:
        """The key of each row's origin as it was before we moved it: by it is known what no move undoes."""
        return self._texts_of({at: each._replace(moves=0) for at, each in self.moved.items()})

    def _texts_of(self, moved: Mapping[int, Origin]) -> pa.Array:
        row_ids, versions = pc.utf8_lower(self.frame["Id"]), self.frame["RowVersion"].cast(pa.string())
        texts = pc.binary_join_element_wise(row_ids, versions, "-")
        if not moved:
            return texts
        keys = [moved[at].key if at in moved else None for at in range(len(self))]
        return pc.coalesce(pa.array(keys, pa.string()), texts)

    @cached_property
    def owed(self) -> Mapping[int, Owed]:
        """The acknowledgements of rows that ServiceControl has put back. A row that we stored owes none."""
        return {at: each for at, each in owed_by(self.frame["Headers"]).items() if at not in self.stored}

    def result(self, position: int) -> str | None:
        """What a row is that we stored for another database as the result of a row; None for any other."""
        told = _RESULT.fullmatch(self.stored.get(position, ""))
        return told and (told["kind"] or told["plain"])

    @cached_property
    def texts(self) -> Sequence[str | None]:
        """The headers."""
        return self.frame["Headers"].to_pylist()  # type: ignore[no-any-return] # pyarrow has no types

    def bodies_of(self, positions: Sequence[int]) -> pa.Array:
        return self.frame["Body"].take(pa.array(positions, pa.int32()))
