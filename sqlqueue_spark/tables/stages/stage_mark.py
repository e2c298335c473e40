"""The mark of a stage: whose the stage is, and which of its rows count.

A stage has at most one mark, which is one of these:

- a *claim's*: opened by the source for the batch of a claim, then sealed by the sink;
- a *batch's*: of a batch in which the source had no rows (a watermark, another source's rows); the sink
  writes it sealed;
- *idle*: all that counted has gone out, and no row on the stage counts. It still tells the last batch.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sqlqueue_spark.row_set import LOWEST


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a sink knows of the micro-batch that it is given."""

    #: The streaming query's id, which it keeps over restarts; empty where Spark does not tell.
    query: str = ""
    number: int = -1
    #: Which run of the query this is; it changes with each start.
    attempt: str = ""


#: Stands in a mark where no sink has told of a batch.
NO_BATCH = Batch()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Whose the stage is, and which tasks' rows count."""

    #: The claim's digest; empty where the stage is no claim's.
    claim: str = ""
    #: The claim's queue; empty where an earlier version did not say.
    queue: str = ""
    #: A name of this run, which changes whenever the stage is opened, and when all has gone out.
    run: str = ""
    #: If set, a sink of this transaction mode sends the batch by itself, and no row of the stage counts.
    mode: str = ""
    #: The last batch that a sink has told of.
    batch: Batch = NO_BATCH
    sealed: bool = False
    #: How many messages each task has staged; None where an earlier version did not say.
    tasks: Mapping[str, int | None] = field(default_factory=dict)
    #: Where they go: tables as texts (:meth:`Table.to_text`).
    destinations: tuple[str, ...] = ()
    #: Those of them that a message has named, and no option.
    named: tuple[str, ...] = ()
    #: Rows up to this number are older than the mark.
    after: int = LOWEST

    @property
    def waits(self) -> bool:
        """Whether messages of a batch without a claim wait to be sent."""
        return self.sealed and not self.claim

    @property
    def idle(self) -> bool:
        """Whether no row on the stage counts, nor will."""
        return not self.claim and not self.sealed

    def done(self) -> "Mark":
        """The idle mark, for when all that counts has gone out, or nothing is to count any more.

        It has a new run, because a sink that outlived its driver may still try to seal for the run before.
        """
        return Mark(batch=self.batch, run=str(uuid.uuid4()))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Mark":
        """Read a mark. One version wrote neither seals nor counts: its mark is sealed if it has tasks."""
        given = json.loads(text)
        tasks = given["tasks"]
        return cls(
            claim=given["claim"],
            queue=given.get("queue", ""),
            run=given["run"],
            mode=given.get("mode", ""),
            batch=Batch(**given.get("batch", {})),
            sealed=given.get("sealed", bool(tasks)),
            tasks=dict(tasks) if isinstance(tasks, dict) else dict.fromkeys(tasks),
            destinations=tuple(given["destinations"]),
            named=tuple(given.get("named", ())),
            after=given.get("after", LOWEST),
        )
