"""What became of each message of the pipelines with real Spark: from Delta, the destination, and what receivers took.

Nothing may be lost, whatever befell the pipelines; nothing may be twice in one place. A message of the atomic pipeline is
in the destination or with a receiver, never in both; of the pipeline with an outbox it is in the destination once.

Between two Delta streams and receivers only one thing makes a message come twice: a death or a cut freed the rows of a
batch that was in Delta and not yet settled, and somebody else took them. So a message that is in two places must have
been in such a batch: a fault (or an error that ended the query) fell between its claim and its settling. Spark's logs
say when that was: a batch is claimed after the one before it was logged, and settled before the one after it is.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from tests.support import delta
from tests.support.drivers.endless import BILLING, DRAINING, FORWARDING, ORDERS
from tests.support.messages import number_of

#: Seconds: a file's time and ours are read at different moments.
_SLACK = 1.0
_NUMBERS = """
SELECT ('x' || right(headers::json ->> 'NServiceBus.MessageId', 12))::bit(48)::bigint, count(*) FROM {} GROUP BY 1
"""


@dataclass(frozen=True)
class Outcome:
    """Of one queue: how many messages were sent, where they ended, and what is wrong with it."""

    queue: str
    sent: int
    ended: Counter[str]
    failures: list[str]


@dataclass(frozen=True)
class Disturbance:
    """Between these seconds of the clock somebody may have lost his locks."""

    began: float
    ended: float


def outcomes(url: str, folder: Path, disturbances: Sequence[Disturbance]) -> list[Outcome]:
    """:param folder: of the program :mod:`tests.support.drivers.endless`."""
    with psycopg.connect(url) as connection:
        sent = {queue: _sent(connection, queue) for queue in (ORDERS, *FORWARDING)}
        handled = {queue: _handled(connection, queue) for queue in sent}
        left = {queue: _count(connection, queue) for queue in sent}
        numbers = sql.SQL(_NUMBERS).format(sql.Identifier(BILLING))
        billed = {int(n): int(count) for n, count in connection.execute(numbers)}
    found = [_drained(folder, sent[ORDERS], handled[ORDERS], left[ORDERS], disturbances)]
    found += [_forwarded(queue, sent[queue], handled[queue], left[queue], billed) for queue in FORWARDING]
    strange = set(billed) - sent[FORWARDING[0]] - sent[FORWARDING[1]]
    if strange:
        found[-1].failures.append(f"{BILLING} has messages that nobody sent: {_some(strange)}")
    return found


def _forwarded(
    queue: str, sent: set[int], handled: Counter[int], left: int, billed: Mapping[int, int]
) -> Outcome:
    there = sent & billed.keys()
    taken = sent & handled.keys()
    failures = _failures(
        queue,
        lost=sent - there - taken,
        left=left,
        **{
            f"in {BILLING} more than once": {n for n in there if billed[n] > 1},
            f"both in {BILLING} and with a receiver": there & taken,
            "with receivers more than once": {n for n in taken if handled[n] > 1},
        },
    )
    ended = Counter({f"in {BILLING}": len(there - taken), "with a receiver": len(taken)})
    return Outcome(queue, len(sent), +ended, failures)


def _drained(
    folder: Path, sent: set[int], handled: Counter[int], left: int, disturbances: Sequence[Disturbance]
) -> Outcome:
    places: dict[int, list[str]] = defaultdict(list)
    excused: set[int] = set()
    ended = Counter[str]()
    for name in DRAINING:
        disturbed = disturbed_batches(folder / name / "checkpoint", disturbances)
        for batch, ids in delta.by_batch(folder / name / "delta", "Id").items():
            numbers = list(map(number_of, ids))
            for n in numbers:
                places[n].append(f"Delta table {name}")
            if batch in disturbed:
                excused.update(numbers)
    for n, times in handled.items():
        places[n] += ["a receiver"] * times
    twice = {n for n, where in places.items() if len(where) > 1}
    for n in sent:
        where = places.get(n)
        if where is not None:
            ended[
                where[0] if n not in twice else "in two places, after a death or a cut freed its batch"
            ] += 1
    failures = _failures(
        ORDERS,
        lost=sent - places.keys(),
        left=left,
        **{
            "from nobody": places.keys() - sent,
            "in one place more than once": {n for n in twice if len(set(places[n])) < len(places[n])},
            "in two places, and nothing befell their batches": twice - excused,
        },
    )
    return Outcome(ORDERS, len(sent), ended, failures)


def disturbed_batches(checkpoint: Path, disturbances: Sequence[Disturbance]) -> set[int]:
    """The batches of which somebody may have lost the locks between claim and settling."""
    times = {int(file.name): file.stat().st_mtime for file in (checkpoint / "offsets").glob("[0-9]*")}
    found = set()
    for batch in times:
        began, ended = times.get(batch - 1, 0.0) - _SLACK, times.get(batch + 1, float("inf")) + _SLACK
        if any(each.began < ended and each.ended > began for each in disturbances):
            found.add(batch)
    return found


def _failures(queue: str, *, lost: set[int], left: int, **wrong: set[int]) -> list[str]:
    found = [f"{queue}: {left} rows are still in the queue"] if left else []
    # What is left in the queue is not lost.
    if lost and not left:
        found.append(f"{queue}: {len(lost)} messages are LOST: {_some(lost)}")
    found += [
        f"{queue}: {len(each)} messages are {what}: {_some(each)}" for what, each in wrong.items() if each
    ]
    return found


def _some(numbers: set[int]) -> str:
    ordered = sorted(numbers)
    return ", ".join(map(str, ordered[:20])) + (", ..." if len(ordered) > 20 else "")


def _sent(connection: psycopg.Connection, queue: str) -> set[int]:
    found = connection.execute("SELECT first, last FROM sent WHERE queue = %s", [queue]).fetchall()
    return {n for first, last in found for n in range(first, last + 1)}


def _handled(connection: psycopg.Connection, queue: str) -> Counter[int]:
    found = connection.execute("SELECT number FROM handled WHERE queue = %s", [queue]).fetchall()
    return Counter(n for (n,) in found)


def _count(connection: psycopg.Connection, queue: str) -> int:
    statement = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(queue))
    found = connection.execute(statement).fetchone()
    assert found is not None
    return int(found[0])
