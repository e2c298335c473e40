"""Does with passwords what users do, by Python, SQL and a job, and writes down what Spark shows of it.

The environment says in LOGINS which urls and passwords there are: some right, some wrong.
"""

import argparse
import contextlib
import io
import json
import os
import traceback
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.pipeline import as_outgoing
from sqlqueue_spark.pipeline.declared import jobs
from tests.support.sparks import start_spark

#: What a user of SQL may say, and then look at.
_STATEMENTS = (
    "CREATE OR REPLACE TEMPORARY VIEW looked USING sqlqueue OPTIONS (url '{url}', queue 'orders')",
    "CREATE TEMP VIEW apart USING sqlqueue OPTIONS (url '{bare}', password '{password}', queue 'orders')",
    "CREATE OR REPLACE TEMPORARY VIEW wrong USING sqlqueue OPTIONS (url '{wrong}', queue 'orders')",
    "CREATE OR REPLACE TEMPORARY VIEW mistyped USING sqlqueue OPTIONS (url '{url}', queu 'orders')",
    *(f"SELECT * FROM {name}" for name in ("looked", "apart", "wrong", "mistyped")),
    *(f"DESCRIBE EXTENDED {name}" for name in ("looked", "apart")),
    "SHOW CREATE TABLE looked",
    "SHOW TABLE EXTENDED LIKE '*'",
    *(f"EXPLAIN EXTENDED SELECT * FROM {name}" for name in ("looked", "apart")),
    "SELECT * FROM looked JOIN nowhere",
)
_PAGES = ("environment", "SQL", "StreamingQuery", "jobs", "stages", "executors", "storage")


def main(folder: Path) -> None:
    logins = json.loads(os.environ["LOGINS"])
    spark = start_spark(folder, events=folder / "events", ui=True)
    spark.sparkContext.setLogLevel("INFO")
    for said in _STATEMENTS:
        tried(partial(by_sql, spark, said.format(**logins)))
    by_python(spark, folder, logins)
    by_job(spark, folder, logins)
    for name, text in shown(spark):
        (folder / f"ui-{name}.txt").write_text(text)
    spark.stop()


def say(*what: object) -> None:
    print(*what, flush=True)  # noqa: T201 -- what a program says is looked at


def tried(act: Callable[[], object]) -> None:
    """Print an error as Python does."""
    try:
        act()
    except (PySparkException, SqlQueueError):
        say(traceback.format_exc())


def by_sql(spark: SparkSession, statement: str) -> None:
    frame = spark.sql(statement)
    explained(frame)
    say(frame.collect())


def explained(frame: DataFrame) -> None:
    """Print all forms of a plan."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for mode in ("extended", "cost", "formatted"):
            frame.explain(mode)
    say(said.getvalue(), frame)


def by_python(spark: SparkSession, folder: Path, logins: dict[str, str]) -> None:
    ways = {
        "url": {"url": logins["url"]},
        "option": {"url": logins["bare"], "password": logins["password"]},
        "token": {"url": logins["bare"], "accessToken": logins["token"]},
        "wrong": {"url": logins["wrong"]},
        "nowhere": {"url": logins["nowhere"]},
        "unreadable": {"url": logins["unreadable"]},
        "unknown": {"url": logins["url"], "passwort": logins["password"]},
    }
    for name, login in ways.items():

        def streamed(name: str = name, login: dict[str, str] = login) -> None:
            given = {"queue": "orders", "lockTimeout": "5s", **login}
            read = spark.readStream.format("sqlqueue").options(**given).load()
            sink = SqlQueueSink(
                queue="billing",
                endpoint="Telling",
                options={**login, "endpoint.other.url": logins["elsewhere"]},
            )
            say(sink, repr(sink))
            checkpoint = str(folder / "checkpoints" / name)
            writer = (
                as_outgoing(read, "orders")
                .writeStream.foreachBatch(sink)
                .option("checkpointLocation", checkpoint)
            )
            query = writer.trigger(availableNow=True).start()
            query.explain(extended=True)
            say("ended", query.awaitTermination(60))
            say(query.lastProgress, query.exception())

        def written(login: dict[str, str] = login) -> None:
            rows = spark.createDataFrame([("{}", "other")], "Body string, Destination string")
            given = {"queue": "billing", "outbox": "none", "endpoint.other.url": logins["elsewhere"], **login}
            rows.write.format("sqlqueue").mode("append").options(**given).save()

        def peeked(login: dict[str, str] = login) -> None:
            explained(spark.read.format("sqlqueue").options(queue="orders", **login).load())

        for act in (streamed, written, peeked):
            tried(act)


def by_job(spark: SparkSession, folder: Path, logins: dict[str, str]) -> None:
    for number, login in enumerate(({"url": logins["url"]}, {"url": logins["wrong"]})):
        given = {
            "checkpoint": str(folder / f"job-{number}"),
            "availableNow": "true",
            "handler": f"{__name__}:handle",
        }
        sections = {
            "source": {**login, "queue": "handled"},
            "sink": {"url": logins["elsewhere"], "errorQueue": "error", "endpoint": "Telling"},
            "handle": given,
        }
        tried(partial(handled, spark, sections))


def handled(spark: SparkSession, sections: Mapping[str, Mapping[str, str]]) -> None:
    say(jobs.handle.understood(sections).start(spark))


def handle(_: object) -> None:
    raise ValueError("no")


def shown(spark: SparkSession) -> list[tuple[str, str]]:
    """The pages of Spark's UI and what its REST API tells, by a name."""
    context = spark.sparkContext
    assert context.uiWebUrl is not None
    open_ = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    rest = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"

    def page(url: str) -> str:
        with open_(url, timeout=30) as answer:
            return str(answer.read().decode())

    found = [(name, page(f"{context.uiWebUrl}/{name}/")) for name in _PAGES]
    asked = (
        "environment",
        "sql?details=true&planDescription=true&length=1000",
        "jobs",
        "stages?details=true",
    )
    found += [(f"rest-{each.partition('?')[0]}", page(f"{rest}/{each}")) for each in asked]
    executions = json.loads(dict(found)["rest-sql"])
    found += [
        (f"sql-{each['id']}", page(f"{context.uiWebUrl}/SQL/execution/?id={each['id']}"))
        for each in executions
    ]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    main(parser.parse_args().folder)
