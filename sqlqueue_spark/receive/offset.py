"""What Spark writes into the checkpoint for a micro-batch: the exact rows, and what proves them the same.

A RowVersion alone proves nothing: a truncated or restored table hands out the same numbers again. So an
offset carries the table's identity and the row ids of some dozens of witnesses spread over the claim.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ATOMIC, NO_TRANSACTION, RECEIVE_ONLY, SourceOptions
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables.stages.stage_name import table_of

#: An offset as Spark knows it.
Json = dict[str, Any]

VERSION = 1
#: What a stream over several queues writes, however many of them a batch has rows of.
JOINT_VERSION = 2
#: The offset before the first batch, as Spark knows it. To us it is None.
INITIAL: Json = {"version": VERSION}

#: What an offset says of the rows of one queue, and of the batch.
_OF_A_QUEUE = ("queue", "table", "rows", "live", "expired", "witnesses")
_OF_THE_BATCH = ("mode", "serial", "stage")


class Offset:
    """The rows of one micro-batch. ``live`` rows are emitted and deleted, ``expired`` rows are only deleted.

    In mode ``none`` they are the rows that a look saw. Those that others held were neither emitted nor
    deleted, and may stand in a later batch again. ``serial`` counts on from batch to batch, so that two
    batches of the same rows have different offsets. A fail-over or a restore can bring back rows that were
    settled, and Spark would take the offset that it knows already for no news.

    A *joint* offset names the rows of several queues: each of its ``parts`` those of one, ordered by name.
    Queues that the batch has no rows of are not in it.

    An offset keeps its JSON as it was read: Spark and the stage know a batch by it. Two offsets are equal
    where their JSON is. Its rows are decoded when they are first asked for: a million scattered ones take a
    second.
    """

    def __init__(
        self,
        *,
        queue: str,
        identity: str,
        live: RowSet,
        expired: RowSet,
        witnesses: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._read(
            {
                "version": VERSION,
                "queue": queue,
                "table": identity,
                "rows": len(live),
                "live": live.encode(),
                "expired": expired.encode() if len(expired) else "",
                "witnesses": {str(row_version): row_id for row_version, row_id in witnesses.items()},
            }
        )

    @classmethod
    def joint_of(cls, parts: "Sequence[Offset]") -> Self:
        """The joint offset of these rows. The parts' own modes, serials and stages do not count."""
        its = [part.to_json() for part in sorted(parts, key=lambda part: part.queue)]
        queues = [{key: each[key] for key in _OF_A_QUEUE} for each in its]
        return cls._of({"version": JOINT_VERSION, "queues": queues})

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self | None:
        """Read an offset; None for the offset before the first batch.

        :raises ConfigurationError: this is no offset of ours, or a newer version wrote it.
        """
        if given == INITIAL:
            return None
        version = given.get("version")
        if (version == VERSION and "live" in given) or (version == JOINT_VERSION and "queues" in given):
            return cls._of(dict(given))
        raise ConfigurationError(
            f"The checkpoint holds an offset that this version of sqlqueue cannot read (version {version!r}, "
            f"expected {VERSION} or {JOINT_VERSION}); use the version that wrote it, or a new checkpoint "
            "(a state that the query keeps is lost)."
        )

    @classmethod
    def if_ours(cls, given: object) -> Self | None:
        """Read an offset; None also for anything else, as what another source of the query has written."""
        try:
            return cls.from_json(given) if isinstance(given, Mapping) else None
        except (ConfigurationError, KeyError, TypeError, AttributeError, ValueError):
            return None

    @classmethod
    def _of(cls, json: Json) -> Self:
        offset = cls.__new__(cls)
        offset._read(json)  # noqa: SLF001 -- its own
        return offset

    def _read(self, json: Json) -> None:
        self._json = json
        self.mode: str = json.get("mode", RECEIVE_ONLY)
        self.serial: int = json.get("serial", 0)  # the first versions wrote none
        #: In mode ``sendsAtomicWithReceive`` the table where what the batch sends waits for its settling.
        self.stage = Table.from_text(json["stage"]) if json.get("stage") else None
        self.joint = json["version"] == JOINT_VERSION
        if self.joint:
            batch = {"version": VERSION, **{key: json[key] for key in _OF_THE_BATCH if key in json}}
            self._parts = tuple(self._of({**batch, **part}) for part in json["queues"])
            #: For logs and errors.
            self.queue: str = ", ".join(part.queue for part in self._parts) or "several queues"
            return
        self.queue = json["queue"]
        self.identity: str = json["table"]
        #: The ids of some dozens of rows, by RowVersion.
        self.witnesses = {int(row_version): str(row_id) for row_version, row_id in json["witnesses"].items()}

    def to_json(self) -> Json:
        """The offset as Spark writes it. Equal offsets give equal texts."""
        return dict(self._json)

    def saying(self, **more: str | int) -> Self:
        """The offset of the same rows that says this, too."""
        return self._of({**self._json, **more})

    @property
    def parts(self) -> "tuple[Offset, ...]":
        """The rows of each queue that the batch has rows of."""
        return self._parts if self.joint else (self,)

    @cached_property
    def live(self) -> RowSet:
        return RowSet.decode(self._json["live"])

    @cached_property
    def expired(self) -> RowSet:
        return RowSet.decode(self._json["expired"]) if self._json["expired"] else RowSet()

    @property
    def claimed(self) -> int:
        """How many rows there are, with the expired ones."""
        return sum(len(part.live) + len(part.expired) for part in self.parts)

    @property
    def empty(self) -> bool:
        """Whether there are no rows; decodes none."""
        if self.joint:
            return all(part.empty for part in self._parts)
        return not (self._json.get("rows") or self._json["expired"])

    @property
    def taken(self) -> bool:
        """Whether workers take the rows from the table when they read them, so that settling deletes none."""
        return self.mode == NO_TRANSACTION

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offset) and self._json == other._json

    def __hash__(self) -> int:
        return hash((self._json.get("queue"), self.serial))

    def __repr__(self) -> str:
        return f"Offset({self._json})"


def batch_offset(start: Offset | None, parts: Sequence[Offset], options: SourceOptions) -> Offset:
    """The offset of the batch after ``start``: that of its one queue, or for several queues a joint one."""
    own: dict[str, str | int] = {"serial": next_serial(start)}
    if options.transaction_mode != RECEIVE_ONLY:
        own["mode"] = options.transaction_mode
    if stage := stage_of(options):
        own["stage"] = stage.to_text()
    (rows,) = [Offset.joint_of(parts)] if options.several else parts
    return rows.saying(**own)


def stage_of(options: SourceOptions) -> Table | None:
    """The stage of a stream; None where its mode needs none."""
    return table_of(options) if options.transaction_mode == ATOMIC else None


def to_json(offset: Offset | None) -> Json:
    """An offset as Spark writes it, also the one before the first batch."""
    return dict(INITIAL) if offset is None else offset.to_json()


def next_serial(start: Offset | None) -> int:
    return 1 if start is None else start.serial + 1
