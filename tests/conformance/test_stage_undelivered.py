"""What a destination does not take any more when its batch is settled goes to the error queue, in the same transaction."""

import json

import pytest

from sqlqueue_spark import fail_points
from tests.support.driver import at_step, crash
from tests.support.error_rows import EXCEPTION, full
from tests.support.forwarding import forwarding, staged
from tests.support.messages import body, message_ids
from tests.support.sending import ids_in, steps

pytestmark = [
    pytest.mark.needs("reads_json_as_documented"),
    pytest.mark.provokes("lock timeout"),
]

CHECK = {
    "postgresql": "ALTER TABLE {table} ADD CHECK (headers NOT LIKE '%000000000003%')",
    "sqlserver": "ALTER TABLE {table} ADD CHECK (Headers NOT LIKE '%000000000003%')",
}
SETTLING = (fail_points.COMMIT_LOGGED, fail_points.DELETED, fail_points.COMMITTED)


@pytest.fixture
def billing(engine):
    return engine.create_queue("billing")


@pytest.fixture
def shipping(engine):
    return engine.create_queue("shipping")


@pytest.fixture
def error(engine):
    return engine.create_queue("error")


@pytest.fixture
def pipeline(engine, queue, billing, shipping, error):
    """Sends odd rows to shipping and even ones to billing."""
    with forwarding(
        engine, queue, "billing", "shipping", errorQueue="error", maxMessagesPerTrigger="6"
    ) as stream:
        stream.sink_says = {"errorQueue": "error"}
        yield stream


def failed_in(error):
    return sorted(json.loads(row.headers)["NServiceBus.MessageId"] for row in error.rows())


def test_messages_of_a_destination_that_was_dropped_after_staging_fail(
    engine, queue, billing, shipping, error, pipeline
):
    queue.insert(6)
    assert pipeline.trigger()
    billing.execute("DROP TABLE {table}")
    pipeline.drain()
    assert (failed_in(error), ids_in(shipping)) == (message_ids([1, 3, 5]), message_ids([0, 2, 4]))
    assert (queue.count(), staged(engine)) == (0, 0)
    row = error.rows()[0]
    headers = json.loads(row.headers)
    assert (headers["NServiceBus.FailedQ"], headers["NServiceBus.ProcessingEndpoint"]) == (
        full(engine, "billing") if engine.name == "postgresql" else headers["NServiceBus.FailedQ"],
        "billing",
    )
    assert headers[f"{EXCEPTION}ExceptionType"] == "sqlqueue_spark.errors.QueueError"
    assert (row.body, row.expires) == (body(1), None)


def test_a_message_that_its_destination_refuses_since_it_was_staged_fails_alone(
    engine, queue, billing, shipping, error, pipeline
):
    queue.insert(6)
    assert pipeline.trigger()
    billing.execute(CHECK[engine.name])
    pipeline.drain()
    assert failed_in(error) == message_ids([3])
    assert (ids_in(billing), ids_in(shipping)) == (message_ids([1, 5]), message_ids([0, 2, 4]))


@pytest.mark.parametrize("step", SETTLING)
def test_each_message_fails_once_if_the_process_dies_while_it_settles(
    engine, queue, billing, shipping, error, pipeline, step
):
    queue.insert(12)
    with steps():
        assert pipeline.trigger()
        billing.execute("DROP TABLE {table}")
        with at_step(step, crash) as crashes:
            pipeline.drain()
    assert crashes == [1]
    assert failed_in(error) == message_ids([1, 3, 5, 7, 9, 11])
    assert ids_in(shipping) == message_ids([0, 2, 4, 6, 8, 10])
    assert queue.count() == 0


def test_without_an_error_queue_of_the_source_messages_wait_for_the_destination(
    engine, queue, billing, shipping, error
):
    queue.insert(2)
    with forwarding(engine, queue, "billing", "shipping", commandTimeout="1s") as stream:
        assert stream.trigger()
        billing.execute("DROP TABLE {table}")
        with pytest.raises(Exception, match=r"The destination billing@.* is not there any more"):
            stream.trigger()
        again = engine.create_queue("billing")
        stream.drain()
    assert (ids_in(again), error.count()) == (message_ids([1]), 0)
