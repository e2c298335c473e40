"""Finds out what became of each message of the pipelines with real Spark: it asks Delta,
the destination and the receivers.

Nothing may be lost, whatever befell the pipelines, and nothing may be twice in one place. The queue of the
pipeline with an outbox has no other consumer: each of its messages must be in the destination once.

Where streams and receivers share a queue, only one thing makes a message come twice: a death or a cut freed
the rows of a batch that was written or staged and not yet settled, and a receiver took them. So a message
that is in two places must have been in that batch: a fault (or an error that ended the query) fell between
the batch's claim and its settling. Spark's logs say when that was: a batch is claimed after the one before it
was logged, and settled before the one after it is logged.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from sqlqueue_spark.receive.offset import Offset
from tests.support import delta
from tests.support.drivers.endless import ATOMIC, BILLING, DRAINING, FORWARDING, OPTIMISTIC, ORDERS
from tests.support.messages import number_of

#: A file's time and ours may differ by these seconds, because they are read at different moments.
_SLACK = 1.0
TWICE = "in two places, after a death or a cut freed the rows of their batch"
_NUMBERS = """
SELECT ('x' || right(headers::json ->> 'NServiceBus.MessageId', 12))::bit(48)::bigint, count(*) FROM {}
  GROUP BY 1
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one queue: how many messages were sent, where they ended, and what is wrong."""

    queue: str
    sent: int
    ended: Counter[str]
    failures: list[str]
    #: How many batches were logged, and how many of them something befell.
    #: A message of any other must be in one place only.
    batches: int
    disturbed: int


@dataclass(frozen=True)
class Disturbance:
    """A time, between these seconds of the clock, in which a pipeline may have lost its locks."""

    began: float
    ended: float
    #: The pipeline that may have lost them; any, if none is named.
    pipeline: str = ""


@dataclass(frozen=True)
class Known:
    """What the database says of a queue."""

    sent: set[int]
    #: How often receivers took each message, and the RowVersion under which they took it.
    handled: Counter[int]
    row_versions: dict[int, int]
    left: int


@dataclass
class Log:
    """A query's log of offsets: its batches, and those that something befell."""

    offsets: dict[int, Path]
    disturbed: set[int]

    def rows_at_risk(self) -> set[int]:
        """The RowVersions of the disturbed batches.

        The third line of a file is the offset of the query's only source.
        """
        found = set[int]()
        for batch in self.disturbed:
            offset = Offset.from_json(json.loads(self.offsets[batch].read_text().splitlines()[2]))
            found |= set() if offset is None else set(offset.live.rows())
        return found


def outcomes(url: str, folder: Path, disturbances: Sequence[Disturbance]) -> list[Outcome]:
    """:param folder: the folder of the program :mod:`tests.support.drivers.endless`."""
    with psycopg.connect(url) as connection:
        known = {queue: _known(connection, queue) for queue in (ORDERS, *FORWARDING)}
        numbers = sql.SQL(_NUMBERS).format(sql.Identifier(BILLING))
        billed = {int(n): int(count) for n, count in connection.execute(numbers)}
    logs = {
        name: log_of(
            folder / name / "checkpoint", [each for each in disturbances if each.pipeline in ("", name)]
        )
        for name in (*DRAINING, *FORWARDING)
    }
    found = [drained(folder, known[ORDERS], logs)]
    found += [forwarded(queue, known[queue], logs[queue], billed) for queue in FORWARDING]
    strange = set(billed) - known[ATOMIC].sent - known[OPTIMISTIC].sent
    found[-1].failures.extend(_failures(BILLING, {"from nobody": strange}))
    return found


def forwarded(queue: str, known: Known, log: Log, billed: Mapping[int, int]) -> Outcome:
    there, taken = known.sent & billed.keys(), known.sent & known.handled.keys()
    both, at_risk = there & taken, log.rows_at_risk()
    failures = _lost_or_left(queue, known, there | taken) + _failures(
        queue,
        {
            f"in {BILLING} more than once": {n for n in there if billed[n] > 1},
            "with receivers more than once": {n for n in taken if known.handled[n] > 1},
            f"both in {BILLING} and with a receiver, and nothing befell their batches": {
                n for n in both if known.row_versions[n] not in at_risk
            },
        },
    )
    ended = Counter(
        {f"in {BILLING}": len(there - both), "with a receiver": len(taken - both), TWICE: len(both)}
    )
    return Outcome(queue, len(known.sent), +ended, failures, len(log.offsets), len(log.disturbed))


def drained(folder: Path, known: Known, logs: Mapping[str, Log]) -> Outcome:
    places: dict[int, list[str]] = defaultdict(list)
    excused: set[int] = set()
    for name in DRAINING:
        for batch, ids in delta.by_batch(folder / name / "delta", "Id").items():
            numbers = list(map(number_of, ids))
            for n in numbers:
                places[n].append(f"in the Delta table {name}")
            if batch in logs[name].disturbed:
                excused.update(numbers)
    for n in known.handled.elements():
        places[n].append("with a receiver")
    twice = {n for n, where in places.items() if len(where) > 1}
    failures = _lost_or_left(ORDERS, known, places.keys()) + _failures(
        ORDERS,
        {
            "from nobody": places.keys() - known.sent,
            "in one place more than once": {n for n in twice if len(set(places[n])) < len(places[n])},
            "in two places, and nothing befell their batches": twice - excused,
        },
    )
    ended = Counter(TWICE if n in twice else places[n][0] for n in known.sent & places.keys())
    batches = [len(logs[name].offsets) for name in DRAINING]
    disturbed = [len(logs[name].disturbed) for name in DRAINING]
    return Outcome(ORDERS, len(known.sent), ended, failures, sum(batches), sum(disturbed))


def log_of(checkpoint: Path, disturbances: Sequence[Disturbance]) -> Log:
    """A query's log. A batch is disturbed when its pipeline may have lost its locks between the batch's
    claim and its settling.
    """
    offsets = {int(file.name): file for file in (checkpoint / "offsets").glob("[0-9]*")}
    times = {batch: file.stat().st_mtime for batch, file in offsets.items()}
    found = set()
    for batch in times:
        began, ended = times.get(batch - 1, 0.0) - _SLACK, times.get(batch + 1, float("inf")) + _SLACK
        if any(each.began < ended and each.ended > began for each in disturbances):
            found.add(batch)
    return Log(offsets, found)


def _lost_or_left(queue: str, known: Known, found: Collection[int]) -> list[str]:
    if known.left:
        return [f"{queue}: {known.left} rows are still in the queue"]
    return _failures(queue, {"LOST": known.sent.difference(found)})


def _failures(queue: str, wrong: Mapping[str, Collection[int]]) -> list[str]:
    return [
        f"{queue}: {len(numbers)} messages are {what}: {_some(numbers)}"
        for what, numbers in wrong.items()
        if numbers
    ]


def _some(numbers: Collection[int]) -> str:
    ordered = sorted(numbers)
    return ", ".join(map(str, ordered[:20])) + (", ..." if len(ordered) > 20 else "")


def _known(connection: psycopg.Connection, queue: str) -> Known:
    sent = connection.execute("SELECT first, last FROM sent WHERE queue = %s", [queue]).fetchall()
    handled = connection.execute(
        "SELECT number, row_version FROM handled WHERE queue = %s", [queue]
    ).fetchall()
    left = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(queue))).fetchone()
    assert left is not None
    return Known(
        sent={n for first, last in sent for n in range(first, last + 1)},
        handled=Counter(n for n, _ in handled),
        row_versions=dict(handled),
        left=int(left[0]),
    )
