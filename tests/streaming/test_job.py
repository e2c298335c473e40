"""The job as a user runs it: by spark-submit, stopped by signals, configured by a file, wrong now and then."""

import os
import re
import signal

import pytest
from chispa import assert_df_equality
from click.testing import CliRunner
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.embedded import GUARDED_ROLE
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline import sentence_of
from tests.support.jobs import ROOT, Job, module_of
from tests.support.messages import body, headers, message_id, row_id
from tests.support.streams import logged, read_delta
from tests.support.waiting import eventually

SECRET = "hunter2"
COLUMNS = "Id", "Headers", "CAST(Body AS STRING) AS Body", "RowVersion", "MessageId", "MessageType", "CAST(SentAt AS STRING) AS SentAt"  # fmt: skip


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
        "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )


def assert_clean(engine, queue, tmp_path, runs, sent):
    """Every batch that was begun is done, its rows are gone, nobody holds a row, and the job has said so."""
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
def test_signals_stop_the_job_between_two_batches(spark, postgresql, job, tmp_path):
    """Three runs over one checkpoint, 20 messages a batch: TERM to spark-submit, a terminal's Ctrl-C, then to the end.
    Each message is in Delta once.
    """
    queue = postgresql.create_queue()
    began = spark.sql("SELECT current_timestamp()").first()[0]
    sent = queue.insert(30).stop
    settings = ("--set", "source.maxMessagesPerTrigger=20", "--set", "source.pollInterval=100ms")

    runs = [job(postgresql.url, *settings)]
    runs[0].goes_on(lambda: len(runs[0].batches) == 2)
    assert [(batch, messages, waiting) for batch, messages, waiting, _ in runs[0].batches] == [(0, 20, 10), (1, 10, 0)]  # fmt: skip
    sent = queue.insert(2000, start=sent).stop  # a hundred batches, which nobody will wait for
    runs[0].goes_on(lambda: len(runs[0].batches) > 2)
    runs[0].process.send_signal(signal.SIGTERM)
    assert runs[0].ended() == 0, runs[0].report()
    assert_clean(postgresql, queue, tmp_path, runs, sent)
    assert queue.count() > 0

    runs.append(job(postgresql.url, *settings))
    runs[1].goes_on(lambda: runs[1].batches)
    os.killpg(runs[1].process.pid, signal.SIGINT)
    assert runs[1].ended() == 0, runs[1].report()
    assert_clean(postgresql, queue, tmp_path, runs, sent)
    assert queue.count() > 0

    sent = queue.insert(5, start=sent).stop
    runs.append(job(postgresql.url, "--available-now", "--show", "2"))
    assert runs[2].ended() == 0, runs[2].report()
    assert queue.count() == 0
    assert f"rows in Delta: {sent}" in runs[2].lines

    frame = read_delta(spark, tmp_path)
    expected = [
        (str(row_id(n)), headers(n), body(n).decode(), n + 1, message_id(n), "Shop.Messages.OrderPlaced", "2025-11-20 08:15:30.123456")
        for n in range(sent)
    ]  # fmt: skip
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
        ((), rf"User '{GUARDED_ROLE}' lacks a right at \S+ while looking at orders@.*\."),
        (
            ("--password", SECRET),
            rf"The database at \S+ refused the login of user '{GUARDED_ROLE}'; check user and password\.",
        ),
        (
            ("--queue", "nowhere"),
            r"There is no queue table nowhere@\[public\] in this database; create it with: sqlqueue create 'nowhere', or .*\.",
        ),
    ],
    ids=["the role may do nothing", "the password is wrong", "the table is missing"],
)
def test_a_failed_job_says_one_sentence_and_no_secret(postgresql, guarded_url, job, arguments, sentence):
    postgresql.create_queue()
    failed = job(guarded_url, "--available-now", *arguments)
    assert failed.ended() == 1
    # spark-submit shows all that the program says on its own standard output.
    assert re.fullmatch(f"error: {sentence}", failed.lines[-1])
    assert len(failed.lines) == 2
    assert "sesame" not in failed.report()
    assert SECRET not in failed.report()
    assert not re.search(r"Traceback|^\s+at \w+", failed.report(), re.MULTILINE)


@pytest.fixture(scope="module")
def program():
    return module_of("drain_to_delta")


@pytest.fixture
def refused(program, monkeypatch):
    """What the job says to arguments that it refuses without starting Spark."""
    monkeypatch.setattr(program, "run", lambda *_: pytest.fail("Spark would start"))

    def run(*arguments):
        environment = {"SQLQUEUE_URL": f"postgresql://me:{SECRET}@127.0.0.1:1/shop", "SQLQUEUE_PASSWORD": SECRET}  # fmt: skip
        result = CliRunner(env=environment).invoke(program.main, [str(each) for each in arguments])
        assert SECRET not in result.output
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    return run


@pytest.mark.parametrize(
    "text,sentence",
    [
        (
            '[sink]\npath = "x"',
            "The configuration {file} has no section [sink]; there are [source], [delta].",
        ),
        ('queue = "orders"', "The configuration {file} has no section [queue]; there are [source], [delta]."),
        ('[source]\nqueeu = "orders"', "There is no option 'queeu'; did you mean queue?"),
        (
            '[source]\nqueue = "orders"\nmaxConcurrency = 0',
            "The option maxConcurrency must be a whole number above 0, not '0'.",
        ),
        (
            '[source]\nqueue = "orders"\n[delta]\npath = "p"\ncheckpont = "c"',
            "There is no option 'checkpont'; did you mean checkpoint?",
        ),
        (
            '[source]\nqueue = "orders"\n[delta]\npath = "p"',
            "The option checkpoint is required; set it to: Folder of the stream's checkpoint; one queue, one Delta table, one checkpoint.",
        ),
        (
            '[source]\nqueue = "orders"\n[delta]\npath = "p"\ncheckpoint = "c"\navailableNow = "maybe"',
            "The option availableNow must be true or false, not 'maybe'.",
        ),
        (
            "[source",
            "The configuration {file} is not valid TOML (Expected ']' at the end of a table declaration (at end of document)); correct it.",
        ),
    ],
)
def test_a_wrong_configuration_is_one_sentence(refused, tmp_path, text, sentence):
    """And exit code 2."""
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    assert refused("--config", file) == f"error: {sentence.format(file=file)}\n"


def test_a_configuration_that_is_no_text_is_refused(refused, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_bytes(b'[source]\nqueue = "\xff"')
    assert refused("--config", file).startswith(f"error: The configuration {file} is not valid TOML (")


@pytest.mark.parametrize(
    "setting,sentence",
    [
        (f"source.password:{SECRET}", "A --set without ="),
        (SECRET, "A --set without ="),
        (f"password={SECRET}", "--set password=…"),
        ("sink.path=x", "--set sink.path=…"),
        ("=", "--set =…"),
    ],
)
def test_a_malformed_setting_is_said_without_its_value(refused, setting, sentence):
    remedy = "cannot be read; write source.KEY=VALUE or delta.KEY=VALUE."
    assert refused("--set", setting) == f"error: {sentence} {remedy}\n"


def test_an_unknown_argument_or_file_is_wrong_usage(refused):
    assert "No such option '--quue'. Did you mean '--queue'?" in refused("--quue", "orders")
    assert "File '/no/such.toml' does not exist." in refused("--config", "/no/such.toml")


def configured(program, file, settings, given):
    flags = {program.PLACES[name]: value for name, value in given.items()}
    return program.configuration(program.SECTIONS, file, settings, flags)


def test_the_command_line_wins_over_settings_and_file(program, tmp_path):
    """And settings win over the file."""
    file = tmp_path / "job.toml"
    file.write_text(
        '[source]\nqueue = "file"\nmaxConcurrency = 3\nclaimAhead = false\nendpoint.B.schema = "t"\n[delta]\npath = "file"\navailableNow = false\n'
    )
    settings = (
        "source.queue=setting",
        "source.maxconcurrency=2",
        "source.maxConcurrency=4",
        "delta.path=a=b.c",
        "source.queue.a.schema=s",
    )
    given = {"queue": "line", "url": "postgresql://x", "available_now": True, "checkpoint": None}
    assert configured(program, file, settings, given) == {
        "source": {
            "queue": "line",
            "maxConcurrency": "4",
            "claimAhead": "false",
            "queue.a.schema": "s",
            "endpoint.B.schema": "t",
            "url": "postgresql://x",
        },
        "delta": {"path": "a=b.c", "availableNow": "true"},
    }


def test_the_configuration_in_conf_lacks_only_a_url(program):
    with pytest.raises(ConfigurationError, match=r"^The option url is required; "):
        program.SourceOptions.parse(configured(program, ROOT / "conf/drain_to_delta.toml", (), {})["source"])
    found = configured(program, ROOT / "conf/drain_to_delta.toml", (), {"url": "postgresql://x"})
    assert program.SourceOptions.parse(found["source"]).queue == "orders"
    assert program.DeltaOptions.parse(found["delta"]).path == "data/orders"


FOREACH = """[STREAM_FAILED] Query terminated: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided \
function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent \
call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "writer.py", line 1, in __call__
    Error: write(x)

"""


@pytest.mark.parametrize(
    "text,sentence",
    [
        ("[STREAM_FAILED] Query terminated: x\nsqlqueue_spark.errors.QueueError: No table.\n  at", "No table."),
        ("An error occurred while calling o44.start.\n: java.io.IOException: Full.\n\tat x", "java.io.IOException: Full."),
        (f"{FOREACH}pyspark.errors.exceptions.captured.AnalysisException: [DELTA_MISMATCH] No.\n- More", "[DELTA_MISMATCH] No."),
        (f"{FOREACH}py4j.protocol.Py4JJavaError: An error occurred while calling o7.save.\n: java.io.IOException: Full.\n\tat x", "java.io.IOException: Full."),
        (f"{FOREACH}KeyError: 'Body'\n\n\tat py4j.x\nCaused by: y", "KeyError: 'Body'"),
        ("\nFirst line.\nSecond line.", "First line."),
        ("", "ValueError"),
    ],
)  # fmt: skip
def test_an_errors_sentence_is_ours_or_its_first_line(text, sentence):
    assert sentence_of(ValueError(text)) == sentence
