"""``kill -9`` of a store-and-forward job while the other server is down, and while it comes back:
every message arrives once.
"""

import signal

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.delayed import DelayedRows
from tests.support.gate import gated
from tests.support.jobs import Job
from tests.support.messages import body, headers
from tests.support.stored import numbers_in, store
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.parametrize("engine", ["postgresql"], indirect=True),
]


@pytest.fixture
def outgoing(engine, elsewhere):
    """The queue in which senders store what goes to billing, with all that its job needs."""
    for each in (engine, elsewhere):
        outbox_tables.create(ConnectionOptions.parse({"url": each.url}), "Shop.Forward")
    engine.create_queue("error")
    DelayedRows(engine, "outgoing").create()
    return engine.create_queue("outgoing")


@pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.tier("nightly"))])
def test_a_job_that_is_killed_while_the_other_server_is_down_and_comes_back(
    engine, elsewhere, outgoing, tmp_path, monkeypatch, twice
):
    """Started while it is down, ``twice`` or not; started again when it is back."""
    billing, waiting = elsewhere.create_queue("billing"), DelayedRows(engine, "outgoing")
    small = ("--set", "source.maxMessagesPerTrigger=30", "--set", "sink.retryInterval=300ms")

    with gated(elsewhere.url) as gate:
        monkeypatch.setenv("SQLQUEUE_SINK_URL", gate.url)

        def job():
            return Job("store_and_forward", engine.url, tmp_path, *small)

        gate.shut()
        runs = []
        store(outgoing, range(40))
        if twice:
            runs.append(job())
            try:
                runs[0].goes_on(lambda: waiting.count() >= 20)
            finally:
                runs[0].kill()

        store(outgoing, range(40, 60))
        back = job()
        runs.append(back)
        try:
            back.goes_on(lambda: waiting.count() == 60)
            gate.open()
            back.goes_on(lambda: billing.count() > 0)
        finally:
            back.kill()
        assert "put_back queue=outgoing database=sink.url rows=60" in back.report()

        # One line for the database that is down, said before Spark started; no task has tried it.
        lines = [each for each in runs[0].report().splitlines() if "No database answers" in each]
        assert [each.partition(": ")[0] for each in lines] == [
            "database_down database=sink.url retry_interval=0.3s"
        ]

        last = job()
        runs.append(last)
        try:
            last.goes_on(lambda: billing.count() >= 60 and outgoing.count() == 0)
            eventually(lambda: waiting.count() == 0)
            last.process.send_signal(signal.SIGTERM)
            assert last.ended() == 0, last.report()
        finally:
            last.kill()
    assert sorted(numbers_in(billing)) == list(range(60))
    assert sorted((row.headers, row.body) for row in billing.rows()) == sorted(
        (headers(number), body(number)) for number in range(60)
    )
    assert (engine.queue("error").count(), outgoing.count(), waiting.count()) == (0, 0, 0)
    assert [each.report().count("Traceback") for each in runs] == [0] * len(runs)
