"""Which locks each step of the protocol holds: a pipeline is driven to each of them, and a session looks.

What is expected stands beside the step, as a value, and for SQL Server with the words of
docs/sqlserver-locking.md.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.tables.stages.stage import Stage
from tests.support.driver import at_step, streaming
from tests.support.forwarding import STAGE, forwarding
from tests.support.waiting import eventually
from tests.verdict.places import Place
from tests.verdict.probes import Facts, Probe, Verdict

#: How many rows a claim has.
ROWS = 7
#: Readers send what is smaller before anybody can look.
LARGE = 4_000_000
#: A look for neighbours, which comes four times a second, has locks of its own and belongs to no step.
ALONE = {"claimAhead": "false", "neighbourHeadroom": "0"}
STEPS = (
    "idle",
    "claimed",
    "slice being read",
    "settling",
    "settled",
    "staging",
    "sealed",
    "settling a stage",
)

#: The locks of all sessions of a program, as a report says them: ``{"orders: RowShareLock": 1}``.
Locks = Mapping[str, object]
Snapshot = Callable[[str], Locks]
#: A step (its name), and what a program holds at it.
Still = Callable[[str, str], tuple[str, Locks]]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The locks of a step: one of these. ``says`` has the words for them."""

    locks: tuple[Locks, ...]
    says: str


def verdicts(place: Place, look: Snapshot, expected: Mapping[str, Expected]) -> list[Verdict]:
    """Drive pipelines through all steps and judge what is held at each."""

    def still(step: str, program: str) -> tuple[str, Locks]:
        """What is held while the pipeline stands: a session that has just closed may take a moment to end."""

        def as_expected() -> tuple[Locks, ...]:
            seen = look(program)
            return (seen,) if seen in expected[step].locks else ()

        with suppress(AssertionError):
            return step, eventually(as_expected, within=timedelta(seconds=5))[0]
        return step, look(program)

    seen = dict(_receiving(place, still)) | dict(_forwarding(place, still))
    return [each.verdict(seen, place.where) for each in probes(expected)]


def probes(expected: Mapping[str, Expected]) -> Iterator[Probe[Mapping[str, Locks]]]:
    for step in STEPS:
        told = expected[step]

        def found(seen: Mapping[str, Locks], step: str = step) -> Facts:
            return seen[step]

        yield Probe(
            id=f"locks:{step.replace(' ', '-')}",
            rule=f"What is held when the pipeline is at this step ({step}): {told.says}",
            done=f"A pipeline with a batch of {ROWS} rows is stopped at the step; "
            "another session lists its locks.",
            expected=told.locks,
            look=found,
        )


def _receiving(place: Place, still: Still) -> Iterator[tuple[str, Locks]]:
    queue = place.new_queue("orders")
    options = {**ALONE, "maxBytesPerTrigger": "1g", "maxConcurrency": "1", **place.login}
    with streaming(place.engine, queue, commit=True, **options) as stream:
        assert not stream.trigger()
        yield still("idle", stream.name)
        queue.insert(ROWS, size=LARGE)
        assert stream.construct()
        yield still("claimed", stream.name)
        reader = SliceReader(Target.of(stream.options))
        (task,) = stream.tasks()
        batches = reader.rows(task)
        next(batches)
        yield still("slice being read", stream.name)
        for _ in batches:
            pass
        stream.done += 1
        seen: list[tuple[str, Locks]] = []
        with at_step(fail_points.DELETED, lambda: seen.append(still("settling", stream.name))):
            assert not stream.trigger()
        yield from seen
        yield still("settled", stream.name)


def _forwarding(place: Place, still: Still) -> Iterator[tuple[str, Locks]]:
    source, _ = place.new_queue("source"), place.new_queue("billing")
    with connect(place.target()) as connection, connection.transaction():
        Stage(connection, Table(table=STAGE, schema=place.engine.default_schema)).create()
    source.insert(ROWS)
    with forwarding(place.engine, source, **ALONE, **place.login) as stream:
        stream.sink_says = place.login
        seen: list[tuple[str, Locks]] = []
        assert stream.construct()
        with at_step(fail_points.ROWS_STAGED, lambda: seen.append(still("staging", stream.name))):
            stream.run()
        yield from seen
        yield still("sealed", stream.name)
        seen.clear()
        with at_step(fail_points.DELETED, lambda: seen.append(still("settling a stage", stream.name))):
            assert not stream.trigger()
        yield from seen
