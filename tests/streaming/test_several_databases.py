"""With Spark, jobs whose options lead to several databases: what belongs to a row stays at home."""

import json

import pytest

from sqlqueue_spark.pipeline.declared import jobs
from tests.support import messages
from tests.support.messages import body, row_id
from tests.support.stored import create_home, numbers_in

pytestmark = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)

RETRY = {
    "ServiceControl.Retry.AcknowledgementQueue": '"public"."error"',
    "ServiceControl.Retry.UniqueMessageId": "31ec6466-6a86-9984-a9d7-1fd6c50fdea8",
}


@pytest.fixture
def orders(engine):
    """The job's queue: two messages, one that ServiceControl has put back, and one that cannot be read."""
    queue = create_home(engine, "Cross", "orders")
    queue.insert(2)
    text = messages.headers(2)[:-1] + "," + json.dumps(RETRY)[1:]
    queue.insert_row(id=row_id(2), headers=text, body=body(2))
    queue.insert_row(id=row_id(3), headers="no JSON", body=body(3))
    return queue


@pytest.fixture
def far(elsewhere):
    """Its queues have the names of those at home."""
    create_home(elsewhere, "Cross", "orders")
    elsewhere.create_queue("billing")
    elsewhere.create_queue("central.error")
    return elsewhere


@pytest.fixture
def run(spark, engine, tmp_path):
    """Run a job in this process until nothing is left."""

    def started(job, sink, **own):
        source = {"url": engine.url, "queue": "orders", "pollInterval": "100ms"}
        given = {"checkpoint": str(tmp_path / "checkpoint"), "availableNow": "true", **own}
        sections = {
            "source": source,
            "sink": {"endpoint": "Cross", "errorQueue": "error", **sink},
            job.name: given,
        }
        job.understood(sections).start(spark)

    return started


@pytest.mark.parametrize("way", ["endpoint.billing.url", "url"])
def test_a_job_that_forwards_to_another_database_leaves_failures_and_acknowledgements_at_home(
    engine, orders, far, run, way
):
    run(jobs.forward, {"queue": "billing", way: far.url})
    error = engine.queue("error")
    told = [json.loads(row.headers) for row in error.rows()]
    assert sorted(each.get("NServiceBus.FailedQ", "acknowledged") for each in told) == [
        '"public"."orders"',
        "acknowledged",
    ]
    assert (sorted(numbers_in(far.queue("billing"))), orders.count()) == ([0, 1, 2], 0)
    assert (far.queue("error").count(), far.queue("orders").count()) == (0, 0)


def test_a_job_that_handles_sends_answers_and_failures_to_other_databases_by_way_of_its_queue(
    spark, engine, orders, far, run, tmp_path, monkeypatch
):
    (tmp_path / "cross_handler.py").write_text(
        "from sqlqueue_spark.handling import Send\n"
        "def handle(message):\n"
        "    number = message.json()['order']\n"
        "    if number == 1:\n"
        "        raise ValueError(number)\n"
        "    return Send('billing', 'Shop.Bill', body={'order': 10 + number})\n"
    )
    spark.sparkContext.addPyFile(str(tmp_path / "cross_handler.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    sink = {f"endpoint.{name}.url": far.url for name in ("billing", "central.error")}
    own = {"handler": "cross_handler:handle", "delayedRetries": "0", "immediateRetries": "0"}
    for _ in range(2):  # what a run stores is received by the next one at the latest
        run(jobs.handle, {**sink, "errorQueue": "central.error"}, **own)
    assert sorted(numbers_in(far.queue("billing"))) == [10, 12]
    assert sorted(numbers_in(far.queue("central.error"))) == [1, 3]
    assert [json.loads(row.headers).keys() & RETRY.keys() for row in engine.queue("error").rows()] == [
        {"ServiceControl.Retry.UniqueMessageId"}
    ]
    assert orders.count() == 0
