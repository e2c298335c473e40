"""``make soak``: the searching machine for a time, then real Spark that is killed all the time,
and what both proved.

Everything is random but told: the seed and the command stand in the report, ``build/soak/report.txt`` (for
people, with the story of each failure) and ``report.json``. A failure does not stop the rest; the exit code
is 1 if there is any.
"""

import argparse
import os
import random
import shlex
import shutil
import signal
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click

from tests.machine import soak_machine, soak_spark
from tests.machine.soak_report import Soak
from tests.support import versions

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

FOLDER = Path(__file__).parents[2] / "build" / "soak"
#: The machine's share of the given minutes; the rest is for Spark.
_MACHINE = 0.7


def main(minutes: float, scenarios: int | None, only: str | None, seed: int) -> int:
    """:param scenarios: if given, the machine plays this number of them, however long that takes."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    began = time.monotonic()
    soak = Soak(
        command=_command(),
        seed=seed,
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions.lines()[:3],
    )
    if only != "spark":
        share = 1.0 if only == "machine" else _MACHINE
        click.echo(f"seed {seed}; the machine searches ...")
        soak.machine = soak_machine.run(FOLDER, seed, seconds=60 * minutes * share, scenarios=scenarios)
        soak.machine_seconds = time.monotonic() - began
    if only != "machine":
        share = 1.0 if only == "spark" else 1 - _MACHINE
        click.echo("Spark is killed and started again ...")
        try:
            soak.spark = soak_spark.run(FOLDER / "spark", random.Random(seed), seconds=60 * minutes * share)  # noqa: S311
        except Exception:  # noqa: BLE001 -- what the machine proved is written all the same
            soak.troubles.append(f"The part with Spark came to no end:\n{traceback.format_exc()}")
    soak.seconds = time.monotonic() - began
    soak.write(FOLDER)
    click.echo(soak.summary())
    for number, failure in enumerate(soak.failures, 1):
        click.echo(f"\n-- failure {number} --\n{failure}")
    click.echo(f"\n{FOLDER / 'report.txt'}")
    return 1 if soak.failures else 0


def _command() -> str:
    return shlex.join(["python", "-m", "tests.machine.soak", *sys.argv[1:]])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=sys.modules[__name__].__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--scenarios", type=int, help="the machine plays this number, however long it takes")
    parser.add_argument("--only", choices=["machine", "spark"])
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)) >> 1)
    return parser.parse_args()


def _terminated(*_: object) -> NoReturn:
    """End as by an error, so that the servers and the Spark program that were started end too."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main(**vars(_arguments())))
