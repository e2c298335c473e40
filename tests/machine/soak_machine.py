"""The searching machine for minutes or hours: its shards by turns, random seeds,
two processes with a server each.

Each process plays a round of one shard after another and writes a line a round into a file of its own. A
round that breaks a promise is written there whole, with its seed, and the next one begins: one hole does not
hide another. A process that dies has lost its last round only, and its death is a failure too.
"""

import argparse
import itertools
import json
import logging
import math
import os
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.machine.search import Searched, own_world, search
from tests.machine.shards import SHARDS
from tests.machine.world import World

PROCESSES = 2
#: Most scenarios of a round. Hypothesis begins each round with the simplest scenario,
#: and remembers all that it has played.
ROUND = 200
#: When a shard has failed so often in a process, its stories are not shortened any more,
#: because that takes minutes.
_SHRUNK = 2
_TIME_TO_SHRINK = 60  # seconds
#: A process ends after this number of rounds, one after the other, that played nothing at all.
_PATIENCE = 5
_ROOT = Path(__file__).parents[2]
_SEEDS = 1 << 31


@dataclass
class Round:
    """What one process did in one round of one shard."""

    shard: str
    seed: int
    examples: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    #: The story of a broken promise, and how to play it again; or what went wrong with the machine itself.
    failure: str = ""

    def line(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def read(cls, line: str) -> "Round":
        found = cls(**json.loads(line))
        found.kinds, found.faults, found.ended = map(Counter, (found.kinds, found.faults, found.ended))
        return found


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one process has to do: play for these seconds, or until this number of scenarios is done."""

    number: int
    seed: int
    said: Path
    seconds: float | None = None
    scenarios: int | None = None

    def command(self) -> list[str]:
        much = (
            ["--seconds", str(self.seconds)]
            if self.scenarios is None
            else ["--scenarios", str(self.scenarios)]
        )
        given = ["--number", str(self.number), "--seed", str(self.seed), "--said", str(self.said)]
        return [sys.executable, "-m", "tests.machine.soak_machine", *given, *much]


def run(folder: Path, seed: int, *, seconds: float | None, scenarios: int | None) -> list[Round]:
    """Run the processes to their ends; returns the rounds of all processes, in no order.

    :param scenarios: if given, the processes play this number in all, however long that takes.
    """
    each = None if scenarios is None else math.ceil(scenarios / PROCESSES)
    shares = [
        Share(number=n, seed=seed, said=folder / f"machine-{n}.jsonl", seconds=seconds, scenarios=each)
        for n in range(PROCESSES)
    ]
    children = [_start(share) for share in shares]
    try:
        for child in children:
            child.wait()
    finally:
        for child in children:
            child.kill()
            child.wait()
    return [
        each for share, child in zip(shares, children, strict=True) for each in _said(share, child.returncode)
    ]


def _start(share: Share) -> subprocess.Popen[bytes]:
    share.said.unlink(missing_ok=True)
    with share.said.with_suffix(".err").open("wb") as err:
        return subprocess.Popen(
            share.command(),
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            stdin=subprocess.DEVNULL,
            stderr=err,
        )


def _said(share: Share, code: int) -> list[Round]:
    lines = share.said.read_text().splitlines() if share.said.exists() else []
    rounds = [Round.read(line) for line in lines]
    if code != 0:
        complaint = share.said.with_suffix(".err").read_text(errors="replace")[-3000:]
        rounds.append(
            Round("none", share.seed, failure=f"Process {share.number} ended with code {code}:\n{complaint}")
        )
    return rounds


# -- in one process ------------------------------------------------------------------------------------


def play(share: Share) -> None:
    """Play round after round, each in its turn, until the share is done."""
    logging.disable(logging.CRITICAL)
    random_ = random.Random(f"{share.seed}-{share.number}")  # noqa: S311 -- it may be guessed
    names = sorted(SHARDS)
    until = None if share.seconds is None else time.monotonic() + share.seconds
    shards = itertools.cycle(names[share.number % len(names) :] + names[: share.number % len(names)])
    failures = Counter[str]()
    done = broken = 0
    with share.said.open("w") as said:
        while not _enough(share, done, until) and broken < _PATIENCE:
            # Some rounds have a server of their own, so that what befell one server does not befall
            # the rounds after them.
            with own_world() as world:
                for shard in itertools.islice(shards, 5 * len(names)):
                    most = ROUND if share.scenarios is None else min(ROUND, share.scenarios - done)
                    seed = random_.randrange(_SEEDS)
                    in_time = until is None or until - time.monotonic() > _TIME_TO_SHRINK
                    played = _round(
                        world, shard, seed, most, until, shrink=in_time and failures[shard] < _SHRUNK
                    )
                    done += played.examples
                    failures[shard] += bool(played.failure)
                    broken = 0 if played.examples else broken + 1
                    said.write(played.line() + "\n")
                    said.flush()
                    if _enough(share, done, until) or not played.examples:
                        break


def _enough(share: Share, done: int, until: float | None) -> bool:
    if share.scenarios is not None:
        return done >= share.scenarios
    return until is not None and time.monotonic() > until


def _round(world: World, shard: str, seed: int, most: int, until: float | None, *, shrink: bool) -> Round:
    again = f"python -m tests.machine.search {shard} {most} {seed}"
    try:
        done = search(world, shard, most, seed_=seed, until=until, shrink=shrink)
    except Exception:  # noqa: BLE001 -- whatever it is goes into the report, and the next round begins
        return Round(shard, seed, failure=f"The machine itself failed in: {again}\n{traceback.format_exc()}")
    return _told(shard, seed, done, again)


def _told(shard: str, seed: int, done: Searched, again: str) -> Round:
    found = ""
    if done.found_after is not None:
        story = f"{done.story.strip()}\n\nTo play it again:\n{done.scenario}"
        found = f"Found in scenario {done.found_after} of: {again}\n{story}"
    return Round(
        shard=shard,
        seed=seed,
        examples=done.examples,
        seconds=done.seconds,
        kinds=done.kinds,
        faults=done.faults,
        sent=done.sent,
        ended=done.ended,
        failure=found,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    parser.add_argument("--number", required=True, type=int)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--said", required=True, type=Path)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--scenarios", type=int)
    play(Share(**vars(parser.parse_args())))
