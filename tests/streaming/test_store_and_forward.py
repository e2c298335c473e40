"""The store-and-forward job, with Spark: what it says, and what it notes beside its checkpoint."""

import json
import re
import threading

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline.running import program
from sqlqueue_spark.tables.database_facts import identity
from tests.support.delayed import DelayedRows
from tests.support.gate import gated
from tests.support.messages import row_id
from tests.support.stored import create_home, create_outbox, numbers_in, store
from tests.support.waiting import eventually

pytestmark = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


@pytest.fixture
def job(spark, engine, tmp_path, monkeypatch):
    """Run the job as its command, in the session that the tests share, until nothing is left.

    Returns exit code, lines and complaints.
    """
    monkeypatch.setattr(program, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(url, *arguments, ends=True):
        given = (
            *("--queue", "outgoing", "--endpoint", "Shop.Forward", "--error-queue", "error"),
            *(
                "--checkpoint",
                str(tmp_path / "checkpoint"),
                *(["--available-now"] if ends else []),
                *arguments,
            ),
        )
        environment = {"SQLQUEUE_URL": engine.url, "SQLQUEUE_SINK_URL": url}
        result = CliRunner(env=environment).invoke(main, ["store-and-forward", *given])
        return result.exit_code, result.stdout.splitlines(), result.stderr

    return run


def test_a_row_that_goes_nowhere_ends_the_job_and_is_named(engine, elsewhere, job, caplog):
    """Before its batch is logged; with a localQueue it goes there.

    A database that is down is said in one line, and its messages wait.
    """
    name = engine.url.rpartition("/")[2]
    outgoing, billing = engine.create_queue("outgoing"), elsewhere.create_queue("billing")
    store(outgoing, range(3))
    store(outgoing, [3], to=None)
    with gated(elsewhere.url) as gate:
        code, lines, said = job(gate.url, "--create")
        assert code == 1
        assert [re.sub("[^ ]*OutboxData.*", "…", line) for line in lines if line.startswith("created")] == [
            "created table=outgoing.Delayed@[public]@[" + name + "]",
            "created queue=error@[public]@[" + name + "]",
            "created …",
            "created …",
        ]
        assert said == (
            "Error: A message has neither the header $.store-and-forward.destination nor "
            "$.store-and-forward.eventtype, so it does not go to the other database; name a handler for "
            "these messages, or a queue of this database as localQueue. It is the row with RowVersion 4, Id "
            f"{row_id(3)}, Queue outgoing@[public].\n"
        )
        assert outgoing.count() == 4

        local = engine.create_queue("local")
        gate.shut()
        code, lines, said = job(gate.url, "--local-queue", "local")
    assert (code, said) == (0, "")
    assert (numbers_in(local), outgoing.count()) == ([3], 0)
    assert lines[0] == "storing and forwarding queue=outgoing"
    assert [line.split("s sent=")[1] for line in lines if line.startswith("batch=")] == [
        "1 repeated=0 handled=1 waiting=3"
    ]
    down = [each.getMessage() for each in caplog.records if each.getMessage().startswith("database_down")]
    assert [each.split(" rows for it wait")[0] for each in down] == [
        "database_down database=sink.url retry_interval=10s:"
    ]
    # They had gone out before the other row was met, which only the other database can know. So they wait,
    # and arrive once all the same.
    waiting = DelayedRows(engine, "outgoing")
    assert (waiting.count(), billing.count()) == (3, 3)

    code, lines, said = job(elsewhere.url, "--local-queue", "local")
    assert (code, said, sorted(numbers_in(billing)), waiting.count()) == (0, "", [0, 1, 2], 0)
    assert [line.split("s sent=")[1] for line in lines if line.startswith("batch=")] == ["0 repeated=3"]


def test_a_job_does_not_begin_under_another_database_while_rows_wait_for_the_old_one(
    engine, elsewhere, third, job, tmp_path
):
    """Another url of the same database is no other one."""
    for each in (elsewhere, third):
        create_outbox(each, "Shop.Forward")
    outgoing = create_home(engine, "Shop.Forward", "outgoing")
    billing, wrong = (each.create_queue("billing") for each in (elsewhere, third))
    waiting = DelayedRows(engine, "outgoing")
    with gated(elsewhere.url) as gate:
        gate.shut()
        store(outgoing, range(2))
        assert (job(gate.url)[0], waiting.count()) == (0, 2)
        # That url was never reached, so it may be corrected.
        assert (job(elsewhere.url)[0], sorted(numbers_in(billing))) == (0, [0, 1])
        gate.open()
        assert job(gate.url)[0] == 0
        gate.shut()
        store(outgoing, [2])
        assert (job(gate.url)[0], waiting.count()) == (0, 1)
        there = gate.url.rpartition("@")[2]
        code, _, said = job(third.url)
    note = tmp_path / "checkpoint" / "sqlqueue-job.json"
    assert (code, said) == (1, (
        f"Error: The option sink.url was '{there}' and is '{third.url.rpartition('@')[2]}' now, and the last "
        "run has left messages that may then be sent twice; run the job as it was until it ends, with "
        f"availableNow, or delete the file {note} to accept that.\n"
    ))  # fmt: skip
    assert (waiting.count(), wrong.count()) == (1, 0)
    assert (job(elsewhere.url)[0], sorted(numbers_in(billing)), waiting.count()) == (0, [0, 1, 2], 0)
    store(outgoing, [3])
    assert (job(third.url)[0], billing.count(), numbers_in(wrong)) == (0, 3, [3])


def test_a_database_is_noted_that_answers_at_last(engine, elsewhere, job, tmp_path):
    """Before anything is sent there: a job that dies then does not begin under another one."""
    create_outbox(elsewhere, "Shop.Forward")
    elsewhere.create_queue("billing")
    outgoing = create_home(engine, "Shop.Forward", "outgoing")
    note = tmp_path / "checkpoint" / "sqlqueue-job.json"

    def noted():
        return json.loads(note.read_text())["means"]["sink.url"]["database"] if note.exists() else None

    def comes_back():
        eventually(lambda: DelayedRows(engine, "outgoing").count() == 1)
        unknown.append(noted())
        gate.open()
        eventually(lambda: elsewhere.queue("billing").count() == 1)
        known.append(noted())
        stop.touch()

    stop = tmp_path / "stop"
    unknown: list[str | None] = []
    known: list[str | None] = []
    store(outgoing, [0])
    with gated(elsewhere.url) as gate:
        gate.shut()
        thread = threading.Thread(target=comes_back)
        thread.start()
        until = ("--set", f"source.stopFile={stop}", "--set", "sink.retryInterval=200ms")
        assert job(gate.url, *until, ends=False)[0] == 0
        thread.join()
    target = Target.of(ConnectionOptions.parse({"url": elsewhere.url}))
    with connect(target) as connection, connection.transaction():
        assert (unknown, known) == ([None], [identity(connection)])


def test_a_job_does_not_begin_under_other_schemas_after_a_run_that_has_failed(
    engine, elsewhere, job, tmp_path
):
    create_outbox(elsewhere, "Shop.Forward")
    elsewhere.create_queue("billing")
    outgoing, local = create_home(engine, "Shop.Forward", "outgoing"), engine.create_queue("local")
    other = ("--local-queue", "local", "--set", "sink.endpoint.billing.schema=sales")
    store(outgoing, [0], to=None)
    assert job(elsewhere.url)[0] == 1
    code, _, said = job(elsewhere.url, *other)
    assert (code, said) == (1, (
        "Error: The option sink.endpoint.billing.schema was not set and is 'sales' now, and the last run "
        "has left messages that may then be sent twice; run the job as it was until it ends, with "
        f"availableNow, or delete the file {tmp_path / 'checkpoint' / 'sqlqueue-job.json'} to accept that.\n"
    ))  # fmt: skip
    assert (outgoing.count(), local.count()) == (1, 0)
    (tmp_path / "checkpoint" / "sqlqueue-job.json").unlink()
    assert job(elsewhere.url, *other)[0] == 0
    assert (outgoing.count(), numbers_in(local)) == (0, [0])
