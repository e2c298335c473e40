"""What Spark writes into the checkpoint for a micro-batch: the exact rows, and how to prove that they are the same.

A RowVersion alone proves nothing: a truncated or restored table hands out the same numbers again. So an offset
carries the table's identity and the row ids of some dozens of witnesses spread over the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import NO_TRANSACTION, RECEIVE_ONLY
from sqlqueue_spark.row_set import RowSet

#: An offset as Spark knows it.
Json = dict[str, Any]

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Offset:
    """The rows of one micro-batch. ``live`` rows are emitted and deleted, ``expired`` rows are only deleted.

    In mode ``none`` they are the rows that a look saw. Those that others held were neither emitted nor deleted, and may
    stand in a later batch again. ``serial`` counts on from batch to batch, so that two batches of the same rows have
    different offsets. A fail-over or a restore can bring back rows that were settled, and Spark would take the offset that
    it knows already for no news.
    """

    queue: str
    identity: str
    live: RowSet
    expired: RowSet
    witnesses: Mapping[int, str] = field(default_factory=dict)
    mode: str = RECEIVE_ONLY
    serial: int = 0
    #: In mode ``sendsAtomicWithReceive`` the stage: the table on which what the batch sends waits until it is settled.
    stage: str = ""

    @property
    def claimed(self) -> int:
        """How many rows there are, with the expired ones."""
        return len(self.live) + len(self.expired)

    @property
    def taken(self) -> bool:
        """Whether workers take the rows from the table when they read them, so that settling deletes none."""
        return self.mode == NO_TRANSACTION

    def to_json(self) -> Json:
        """The offset as Spark writes it. Equal offsets give equal texts."""
        own: Json = {} if self.mode == RECEIVE_ONLY else {"mode": self.mode}
        if self.serial:  # the first versions wrote none
            own["serial"] = self.serial
        if self.stage:
            own["stage"] = self.stage
        return {
            "version": VERSION,
            **own,
            "queue": self.queue,
            "table": self.identity,
            "rows": len(self.live),
            "live": self.live.encode(),
            "expired": self.expired.encode() if len(self.expired) else "",
            "witnesses": {str(row_version): row_id for row_version, row_id in self.witnesses.items()},
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self | None:
        """Read an offset; None for the offset before the first batch.

        :raises ConfigurationError: this is no offset of ours, or a newer version wrote it.
        """
        if given == INITIAL:
            return None
        if given.get("version") != VERSION or "live" not in given:
            raise ConfigurationError(
                f"The checkpoint holds an offset that this version of sqlqueue cannot read (version "
                f"{given.get('version')!r}, expected {VERSION}); use the version that wrote it, or a new checkpoint."
            )
        return cls(
            queue=given["queue"],
            identity=given["table"],
            live=RowSet.decode(given["live"]),
            expired=RowSet.decode(given["expired"]) if given["expired"] else RowSet(),
            witnesses={int(row_version): row_id for row_version, row_id in given["witnesses"].items()},
            mode=given.get("mode", RECEIVE_ONLY),
            serial=given.get("serial", 0),
            stage=given.get("stage", ""),
        )


def next_serial(start: Mapping[str, Any]) -> int:
    """The serial of the batch that follows an offset."""
    return int(start.get("serial", 0)) + 1


#: The offset before the first batch.
INITIAL: Json = {"version": VERSION}
