"""The store-and-forward job, with Spark: what it says, and what it does with messages that name no other database."""

import re

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.pipeline.running import program
from tests.support.delayed import DelayedRows
from tests.support.gate import gated
from tests.support.messages import row_id
from tests.support.stored import numbers_in, store

pytestmark = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


@pytest.fixture
def job(spark, engine, tmp_path, monkeypatch):
    """Run the job as its command, in the session that the tests share, until nothing is left. Returns exit code, lines and complaints."""
    monkeypatch.setattr(program, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(url, *arguments):
        given = (
            *("--queue", "outgoing", "--endpoint", "Shop.Forward", "--error-queue", "error"),
            *("--checkpoint", str(tmp_path / "checkpoint"), "--available-now", *arguments),
        )
        environment = {"SQLQUEUE_URL": engine.url, "SQLQUEUE_SINK_URL": url}
        result = CliRunner(env=environment).invoke(main, ["store-and-forward", *given])
        return result.exit_code, result.stdout.splitlines(), result.stderr

    return run


def test_a_row_that_goes_nowhere_ends_the_job_and_is_named(engine, elsewhere, job, caplog):
    """Before its batch is logged; with a localQueue it goes there. A database that is down is said in one line, and its messages wait."""
    name = engine.url.rpartition("/")[2]
    outgoing, billing = engine.create_queue("outgoing"), elsewhere.create_queue("billing")
    store(outgoing, range(3))
    store(outgoing, [3], to=None)
    code, lines, said = job(elsewhere.url, "--create")
    assert code == 1
    assert [re.sub("[^ ]*OutboxData.*", "…", line) for line in lines if line.startswith("created")] == [
        "created table=outgoing.Delayed@[public]@[" + name + "]",
        "created queue=error@[public]@[" + name + "]",
        "created …",
        "created …",
    ]
    assert said == (
        "Error: A message has neither the header $.store-and-forward.destination nor $.store-and-forward.eventtype, so it does not go to the "
        "other database; name a handler for such messages, or a queue of this database as localQueue. It is the row with "
        f"RowVersion 4, Id {row_id(3)}, Queue outgoing@[public].\n"
    )
    assert outgoing.count() == 4

    local = engine.create_queue("local")
    with gated(elsewhere.url) as gate:
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
    # They had gone out before the other row was met, which only the other database can know. So they wait, and arrive once all the same.
    waiting = DelayedRows(engine, "outgoing")
    assert (waiting.count(), billing.count()) == (3, 3)

    code, lines, said = job(elsewhere.url, "--local-queue", "local")
    assert (code, said, sorted(numbers_in(billing)), waiting.count()) == (0, "", [0, 1, 2], 0)
    assert [line.split("s sent=")[1] for line in lines if line.startswith("batch=")] == ["0 repeated=3"]
