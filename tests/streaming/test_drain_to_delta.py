"""The job that drains a queue into Delta, as a user runs it: by spark-submit,
stopped by signals, wrong now and then.
"""

import os
import re
import signal

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from tests.conftest import GUARDED_ROLE
from tests.support.jobs import Job
from tests.support.messages import body, headers, message_id, row_id
from tests.support.streams import logged, read_delta
from tests.support.waiting import eventually

SECRET = "hunter2"
COLUMNS = (
    "Id",
    "Headers",
    "CAST(Body AS STRING) AS Body",
    "RowVersion",
    "MessageId",
    "MessageType",
    "CAST(SentAt AS STRING) AS SentAt",
)


@pytest.fixture
def job(tmp_path):
    """Start the job against a database; none outlives the test."""
    started = []

    def start(url, *arguments):
        started.append(Job("drain_to_delta", url, tmp_path, "--path", tmp_path / "delta", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def open_transactions(engine):
    return engine.fetch(
        "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND "
        "xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


def assert_clean(engine, queue, tmp_path, runs, sent):
    """Every batch that was begun is done, its rows are gone, no row is held, and the job has said so."""
    assert logged(tmp_path, "offsets") == logged(tmp_path, "commits")
    drained = sum(messages for run in runs for _, messages, _, _ in run.batches)
    assert queue.count() == sent - drained
    eventually(lambda: open_transactions(engine) == [])  # a server takes its time to end a session
    last = runs[-1].batches
    total = sum(messages for _, messages, _, _ in last)
    assert re.fullmatch(
        rf"drained={total} batches={len(last)} seconds=[\d.]+ rate=\d+/s( steady=\d+/s)?", runs[-1].lines[-1]
    )  # fmt: skip
    assert "Traceback" not in runs[-1].report()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.tier("nightly"))],
    ids=["TERM to spark-submit", "a terminal's Ctrl-C"],
)
def test_a_signal_stops_the_job_between_two_batches(spark, postgresql, job, tmp_path, number):
    """Two runs over one checkpoint, the first one with 20 messages a batch. Each message is in Delta once."""
    queue = postgresql.create_queue()
    began = spark.sql("SELECT current_timestamp()").first()[0]
    sent = queue.insert(30).stop
    settings = ("--set", "source.maxMessagesPerTrigger=20", "--set", "source.pollInterval=100ms")

    runs = [job(postgresql.url, *settings)]
    runs[0].goes_on(lambda: len(runs[0].batches) == 2)
    assert [(batch, messages, waiting) for batch, messages, waiting, _ in runs[0].batches] == [
        (0, 20, 10),
        (1, 10, 0),
    ]
    sent = queue.insert(2000, start=sent).stop  # a hundred batches, and the test does not wait for them all
    runs[0].goes_on(lambda: len(runs[0].batches) > 2)
    if number == signal.SIGTERM:
        runs[0].process.send_signal(number)
    else:
        os.killpg(runs[0].process.pid, number)
    assert runs[0].ended() == 0, runs[0].report()
    assert runs[0].report().count("Stops after the batch under way.\n") == 1
    # Ctrl-C may have hit a program that Java had started for a moment.
    if number == signal.SIGTERM or "stopped within a batch" not in runs[0].report():
        assert_clean(postgresql, queue, tmp_path, runs, sent)
    assert queue.count() > 0

    sent = queue.insert(5, start=sent).stop
    runs.append(job(postgresql.url, "--available-now", "--show", "2"))
    assert runs[1].ended() == 0, runs[1].report()
    assert queue.count() == 0
    assert f"rows in Delta: {sent}" in runs[1].lines

    frame = read_delta(spark, tmp_path)
    expected = [
        (
            str(row_id(n)),
            headers(n),
            body(n).decode(),
            n + 1,
            message_id(n),
            "Shop.Messages.OrderPlaced",
            "2025-11-20 08:15:30.123456",
        )
        for n in range(sent)
    ]
    found = frame.selectExpr(*COLUMNS).orderBy("RowVersion", "Id")
    assert_df_equality(found, spark.createDataFrame(expected, found.schema))
    others = ("CorrelationId", "ReplyToAddress", "Recoverable", "Expires")
    assert frame.where(" OR ".join(f"{name} IS NOT NULL" for name in others)).count() == 0
    now = F.current_timestamp()
    assert frame.where(F.col("IngestedAt").between(F.lit(began), now)).count() == sent


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments,sentence",
    [
        (
            (),
            (
                rf"The user '{GUARDED_ROLE}' may not receive from orders@\S+, for it lacks SELECT, "
                r"UPDATE, DELETE; .*"
            ),
        ),
        (
            ("--set", "source.user=guarded"),
            rf"The database at \S+ refused the login of user '{GUARDED_ROLE}'; check user and password\.",
        ),
        (
            ("--queue", "nowhere"),
            (
                r"There is no queue table nowhere@\[public\] in this database; create it with: sqlqueue "
                r"create 'nowhere', or .*\."
            ),
        ),
    ],
    ids=["the role may do nothing", "the password is wrong", "the table is missing"],
)
def test_a_job_that_lacks_something_says_one_sentence_and_no_secret(
    postgresql, guarded_url, job, arguments, sentence
):
    """Before it starts Spark."""
    postgresql.create_queue()
    url = guarded_url.replace("open%20sesame", SECRET) if "refused the login" in sentence else guarded_url
    failed = job(url, "--available-now", *arguments)
    assert failed.ended() == 1
    # spark-submit shows all that the program says on its own standard output.
    assert re.fullmatch(f"Error: {sentence}", failed.lines[-1])
    assert len(failed.lines) == 1
    assert "sesame" not in failed.report()
    assert SECRET not in failed.report()
    assert not re.search(r"Traceback|^\s+at \w+", failed.report(), re.MULTILINE)
