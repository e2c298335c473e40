"""Searches a family of scenarios for one that breaks a promise, and shrinks it."""

import contextlib
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import randoms

from sqlqueue_spark.embedded import EmbeddedServer
from tests.machine.invariants import ended
from tests.machine.query import Broken, protocol
from tests.machine.scenario import Scenario, run
from tests.machine.shards import SHARDS
from tests.machine.shrinking import shortened
from tests.machine.world import World, opened_world

_TIDY = 150
_ROUND = 1_000


class _Enough(Exception):
    """Time is up."""


@dataclass
class Searched:
    """What a search did, and the shortest story of a broken promise if it found one."""

    examples: int = 0
    seconds: float = 0.0
    found_after: int | None = None
    found_seconds: float | None = None
    #: How many scenarios of each kind.
    kinds: Counter[str] = field(default_factory=Counter)
    story: str = ""
    scenario: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)


@dataclass
class Played:
    """What was played without finding a broken promise."""

    scenarios: int = 0
    #: How often each fault befell the streams.
    faults: Counter[str] = field(default_factory=Counter)
    #: How many messages were sent.
    sent: int = 0
    #: Where they ended.
    ended: Counter[str] = field(default_factory=Counter)


def search(
    world: World,
    shard: str,
    examples: int,
    *,
    seed_: int | None = None,
    until: float | None = None,
    shrink: bool = True,
) -> Searched:
    """Play this number of scenarios of a family, or fewer if one breaks a promise.

    :param seed_: which scenarios to play; None plays the same ones each time.
    :param until: the second of ``time.monotonic`` at which to stop, unless something was found.
    :param shrink: whether to shorten a story that breaks a promise.
    """
    done = Searched()
    found: list[Scenario] = []
    began = time.monotonic()

    def play(scenario: Scenario) -> None:
        if until is not None and done.found_after is None and time.monotonic() > until:
            raise _Enough
        done.examples += 1
        done.kinds[scenario.setup.kind] += 1
        if done.examples % _TIDY == 0:
            world.tidy()
        try:
            query = run(world, scenario)
            done.sent += len(world.ledger.sent)
            done.ended += ended(world, query)
        except Broken as error:
            if done.found_after is None:
                done.found_after, done.found_seconds = done.examples, time.monotonic() - began
            done.story, done.scenario = str(error), str(scenario)
            found.append(scenario)
            raise
        finally:
            done.faults += world.faults

    played = settings(
        max_examples=examples,
        deadline=None,
        derandomize=seed_ is None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        print_blob=False,
    )(given(randoms(use_true_random=True).map(SHARDS[shard]().throw))(play))
    if seed_ is not None:
        played = seed(seed_)(played)
    # A story may go another way when it is played again (Flaky). Then it is told as it went first.
    with protocol(), contextlib.suppress(_Enough, Broken, Flaky):
        played()
    if found and shrink:
        with protocol():
            shortest, done.story = shortened(world, found[0], done.story)
        done.scenario = str(shortest)
    done.seconds = time.monotonic() - began
    return done


def play_for(world: World, shard: str, *, seconds: float, seed_: int) -> Played:
    """Play scenarios of a family for a time; each seed gives other scenarios.

    :param shard: a name of ``SHARDS``.
    :raises Broken: a promise is broken; the text is the shortest story that was found,
        and how to play it again.
    """
    played = Played()
    until = time.monotonic() + seconds
    round_ = 0
    while time.monotonic() < until:
        done = search(world, shard, _ROUND, seed_=seed_ * 1_000 + round_, until=until)
        if done.found_after is not None:
            raise Broken(f"{done.story}\n\nTo play it again:\n{done.scenario}")
        played.scenarios += done.examples
        played.faults += done.faults
        played.sent += done.sent
        played.ended += done.ended
        round_ += 1
    return played


@contextlib.contextmanager
def own_world() -> Iterator[World]:
    """A world on a server of its own."""
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-machine-"))
    try:
        with EmbeddedServer(folder / "data", settings=SERVER) as server, opened_world(server.url()) as world:
            yield world
    finally:
        shutil.rmtree(folder, ignore_errors=True)


SERVER = {"fsync": "off", "max_connections": "100", "autovacuum": "off", "timezone": "Asia/Kolkata"}


def main(shard: str, examples: str, *seeds: str) -> None:
    """Play a family's scenarios and print what was found. Without a seed they are the same ones each time."""
    logging.disable(logging.CRITICAL)
    with own_world() as world:
        found = search(world, shard, int(examples), seed_=int(seeds[0]) if seeds else None)
    after = "nothing" if found.found_after is None else f"scenario {found.found_after}"
    sys.stdout.write(f"{shard}: {found.examples} played in {found.seconds:.0f} s, found: {after}\n")
    if found.found_after is not None:
        sys.stdout.write(f"{found.story}\n\nTo play it again:\n{found.scenario}\n")
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
