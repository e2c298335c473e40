"""Runs the programs under ``jobs/`` as a user does."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from sqlqueue_spark.engines.hosts import location
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline.running.changed_options import NOTE
from sqlqueue_spark.tables.database_facts import identity
from tests.support.drivers.death import kill_session, processes_of
from tests.support.quick_java import quick
from tests.support.spark_home import python_path
from tests.support.sparks import delta_jars
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
LINE = re.compile(
    r"batch=(\d+) messages=(\d+) rate=\d+/s waiting=(\d+) oldest=(\d+)s(?: sent=\d+(?: repeated=\d+)?)?"
)
_LOGGING = "-Dlog4j2.configurationFile=conf/log4j2.properties"
LONG = timedelta(seconds=120)
T = TypeVar("T")


def reached_before(checkpoint: Path, option: str, url: str) -> None:
    """Make the note of a job that has reached the database of an option, and that has left nothing."""
    with connect(Target.of(ConnectionOptions.parse({"url": url}))) as connection, connection.transaction():
        means = {option: {"leads": location(url), "database": identity(connection)}}
    checkpoint.mkdir(exist_ok=True)
    (checkpoint / NOTE).write_text(json.dumps({"means": means, "nothingLeft": True}))


class Job:
    """``spark-submit`` of one of the programs under ``jobs/``, in a session of its own."""

    def __init__(self, program: str, url: str, folder: Path, *arguments: object) -> None:
        self.said = folder / f"job-{len(list(folder.glob('job-*.txt')))}.txt"
        self.complained = self.said.with_suffix(".err")
        environment = (
            os.environ
            | quick(_LOGGING, temporary=folder)
            | {"PYTHONPATH": python_path(), "SQLQUEUE_URL": url}
        )
        # The tests of the wheel and of the demo let Spark find Delta's jars by itself, which takes seconds.
        settings = {
            "spark.jars.packages": "",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "",  # Java does not start with two collectors
            **delta_jars(),
        }
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--properties-file", "conf/spark-defaults.conf"),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            f"jobs/{program}.py",
            *("--config", f"conf/{program}.toml", "--checkpoint", str(folder / "checkpoint")),
            *map(str, arguments),
        ]
        with self.said.open("wb") as out, self.complained.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    @property
    def lines(self) -> list[str]:
        return self.said.read_text().splitlines()

    @property
    def batches(self) -> list[tuple[int, ...]]:
        """The numbers of each progress line: batch, messages, waiting, age of the oldest."""
        found = [LINE.fullmatch(line) for line in self.lines if line.startswith("batch=")]
        assert all(found), self.report()
        return [tuple(map(int, match.groups())) for match in found if match]

    def report(self) -> str:
        return self.said.read_text() + self.complained.read_text()

    def goes_on(self, look: Callable[[], T]) -> T:
        """Wait until ``look`` finds something, and fail if the job ends before."""

        def looked() -> T:
            assert self.process.poll() is None, self.report()
            return look()

        return eventually(looked, within=LONG)

    def kill(self) -> None:
        """Kill whatever is left of the job."""
        kill_session(self.process.pid)
        self.process.wait()

    def ended(self) -> int:
        """Wait until no process of the job is left; returns the exit code."""
        code = self.process.wait(LONG.total_seconds())
        eventually(lambda: not processes_of(self.process.pid))
        return code
