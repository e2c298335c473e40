"""A mistake in a user's own program is said when a frame is made, in few lines, at each door of Spark."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.quick_java import quick
from tests.support.spark_home import spark_home

#: How many lines a mistake may take.
MOST_LINES = 40

#: Each mistake ends its own try, because a JVM takes seconds to start.
PROGRAM = """
import os, sys, traceback
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
right = {{"url": {url!r}, "queue": "orders"}}
mistakes = {{
    "queue": {{"queue": "ordrs"}},
    "option": {{"quue": "orders"}},
    "password": {{"url": {guarded!r}, "password": "guess"}},
    "url": {{"url": ""}},
}}
makers = {{
    "stream": lambda given: spark.readStream.format("sqlqueue").options(**given).load(),
    "read": lambda given: spark.read.format("sqlqueue").options(**given).load(),
}}
for maker, made in makers.items():
    for name, mistake in mistakes.items():
        try:
            _ = made({{**right, **mistake}})
            said = "nothing"
        except Exception:
            said = traceback.format_exc()
        _ = print("####", maker, name, said, sep="\\n", flush=True)
"""


def by_python(program: Path) -> list[str]:
    return [sys.executable, str(program)]


def by_spark_submit(program: Path) -> list[str]:
    return [str(spark_home() / "bin" / "spark-submit"), str(program)]


def by_pyspark(program: Path) -> list[str]:
    return ["sh", "-c", f"{spark_home()}/bin/pyspark < {program}"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "door",
    [
        by_python,
        *(pytest.param(each, marks=pytest.mark.tier("nightly")) for each in (by_spark_submit, by_pyspark)),
    ],
)
def test_a_mistake_is_said_in_few_lines_before_a_query_starts(postgresql, guarded_url, tmp_path, door):
    """Our sentence stands at the end; for what is read Spark adds the line with its state."""
    postgresql.create_queue()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(url=postgresql.url, guarded=guarded_url))
    run = subprocess.run(
        door(program), env=os.environ | quick() | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    where = postgresql.url.rpartition("@")[2]
    said = {
        "queue": "There is no queue table ordrs@[public] in this database; create it with: sqlqueue "
        "create 'ordrs', or correct the queue name or its schema.",
        "option": "There is no option 'quue'; did you mean queue?",
        "password": f"The database at {where} refused the login of user 'guarded'; check user and password.",
        "url": "The option url is required; set it to: `postgresql://…`; "
        "for SQL Server `mssql://…` or an ODBC connection string.",
    }
    found = {}
    for each in run.stdout.split("####\n")[1:]:
        maker, name, *lines = each.rstrip().splitlines()
        assert len(lines) <= MOST_LINES, each
        found[maker, name] = re.split(r"sqlqueue_spark\.errors\.\w+: ", lines[-2])[-1]
    assert found == {(maker, name): text for maker in ("stream", "read") for name, text in said.items()}
