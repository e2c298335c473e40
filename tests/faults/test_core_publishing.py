"""Events while processes die, subscribers' queues are dropped and subscriptions come and go:
each copy arrives once.
"""

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY, ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from tests.support.driver import BATCH_WRITTEN, Crash, at_step, crash
from tests.support.forwarding import NAME, forwarding, staged
from tests.support.messages import message_ids
from tests.support.outcomes import frame, outcome, outgoing, sent_to, settled_all
from tests.support.outcomes import options as outcome_options
from tests.support.sending import batch, composed, ids_in, options, steps, watched
from tests.support.stages import gives_way
from tests.support.subscriptions import SubscriptionRows

pytestmark = [
    pytest.mark.needs("reads_json_as_documented"),
    gives_way,
]

#: The type of the messages in the queue.
TYPE = "Shop.Messages.OrderPlaced"
COUNT = 12
_SENDING = (
    fail_points.SUBSCRIBERS_FOUND,
    fail_points.ROWS_INSERTED,
    fail_points.IDS_INSERTED,
    fail_points.CHUNK_SENT,
)
STEPS = [
    *(("optimistic", step) for step in (*_SENDING, fail_points.IDS_CHECKED, BATCH_WRITTEN)),
    *(("pessimistic", step) for step in (*_SENDING, BATCH_WRITTEN)),
    *(
        ("atomic", step)
        for step in (
            *(
                fail_points.SUBSCRIBERS_FOUND,
                fail_points.ROWS_STAGED,
                fail_points.STAGE_SEALED,
                BATCH_WRITTEN,
            ),
            *(fail_points.COMMIT_LOGGED, fail_points.DELETED, fail_points.COMMITTED),
        )
    ),
]


@pytest.fixture
def routing(engine, queue):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return SubscriptionRows(engine).create()


@pytest.fixture
def error(engine, routing):
    return engine.create_queue("error")


@pytest.fixture
def five(engine, routing):
    """Five queues that have subscribed."""
    queues = [engine.create_queue(f"Subscriber{number}") for number in range(5)]
    for each in queues:
        routing.add(each, TYPE)
    return queues


def publishing(engine, queue, kind, **says):
    mode = ATOMIC if kind == "atomic" else RECEIVE_ONLY
    return forwarding(engine, queue, transactionMode=mode, **says)


def set_up(stream, kind, **says):
    stream.publishes = True
    stream.sink_says = says
    if kind != "atomic":
        stream.outbox = kind


def run_until_it_dies(stream):
    """Run batches until a step kills the process, or nothing is new."""
    try:
        while stream.trigger():
            pass
    except Crash:
        stream.crash()


@pytest.mark.parametrize("time_", [1, pytest.param(2, marks=pytest.mark.tier("nightly"))])
@pytest.mark.parametrize("kind, step", STEPS)
def test_killed_at_each_step_while_a_subscribers_queue_is_dropped(
    engine, queue, routing, five, error, kind, step, time_
):
    """Four get each event once; what the fifth did not get before it was dropped is in
    the error queue, once.
    """
    queue.insert(COUNT)
    with publishing(engine, queue, kind, errorQueue="error") as stream:
        set_up(stream, kind, errorQueue="error")
        with at_step(step, crash, on=[time_]) as crashes:
            run_until_it_dies(stream)
        assert crashes in ([time_], [])
        assert crashes or time_ > 1
        gone = five[2]
        before = ids_in(gone)
        gone.execute("DROP TABLE {table}")
        after = []
        if kind == "atomic" and stream.done and queue.count():  # what a logged batch has staged waits for it
            after = [engine.create_queue(gone.name)]
        stream.drain()
        stream.crash()
        stream.drain()
    assert [ids_in(each) for each in five if each is not gone] == [message_ids(range(COUNT))] * 4
    found = [*before, *ids_in(error), *(id_ for each in after for id_ in ids_in(each))]
    assert sorted(found) == sorted(message_ids(range(COUNT)))
    assert queue.count() == 0
    if kind == "atomic":
        assert staged(engine) == 0


@pytest.mark.parametrize("kind, step", STEPS)
def test_killed_at_each_step_while_one_subscribes_and_one_unsubscribes(
    engine, queue, routing, five, kind, step
):
    """The subscribers who stay get each event once, and so does one who has subscribed before the batch
    was done. No subscriber gets an event twice.
    """
    new = engine.create_queue("New")
    queue.insert(COUNT)
    with publishing(engine, queue, kind) as stream:
        set_up(stream, kind)
        with at_step(step, crash) as crashes:
            run_until_it_dies(stream)
        assert crashes == [1]
        logged = stream.done > 0
        routing.add(new, TYPE)
        routing.remove(five[4])
        stream.drain()
        stream.crash()
        stream.drain()
    assert [ids_in(each) for each in five[:4]] == [message_ids(range(COUNT))] * 4
    assert ids_in(new) == ([] if logged else message_ids(range(COUNT)))
    left = ids_in(five[4])
    assert len(set(left)) == len(left)
    if kind == "atomic":
        assert left in ([], message_ids(range(COUNT)))


@pytest.mark.parametrize("outbox", ["none", "optimistic", "pessimistic"])
def test_a_queue_that_is_dropped_between_the_look_and_the_insert(engine, routing, five, error, outbox):
    given = options(engine, queue="Subscriber0", outbox=outbox, errorQueue="error")
    destinations = Destinations(given)
    events = batch(range(COUNT), EventType=TYPE)
    dropping = at_step(fail_points.SUBSCRIBERS_FOUND, lambda: five[2].execute("DROP TABLE {table}"))
    with watched(), steps(), Sender(destinations) as sender, dropping:
        done = sender.send(composed(given, events, destinations=destinations))
    assert done == Sent(sent=4 * COUNT, failed=COUNT)
    assert [ids_in(each) for each in five if each is not five[2]] == [message_ids(range(COUNT))] * 4
    assert ids_in(error) == message_ids(range(COUNT))


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("step", [*_SENDING])
def test_all_that_an_outcome_publishes_goes_out_at_once(engine, queue, routing, five, error, outbox, step):
    given = outcome_options(engine, outbox=outbox)
    received = [outcome(n, outgoing(None, n, EventType=TYPE), outgoing("Subscriber0", n)) for n in range(3)]
    with watched(), at_step(step, crash), steps(), pytest.raises(Crash):
        settled_all(given, frame(received))
    counts = {each.count() for each in five[1:]}
    assert counts in ({0}, {3})
    five[2].execute("DROP TABLE {table}")
    assert settled_all(given, frame(received)).handled == (3 if counts == {0} else 0)
    left = [each for each in five[1:] if each is not five[2]]
    assert [sent_to(each) for each in left] == [[0, 1, 2]] * 3
    assert sorted(sent_to(five[0])) == [0, 0, 1, 1, 2, 2]
    assert sent_to(error) == ([0, 1, 2] if counts == {0} else [])


def test_a_connection_that_breaks_at_the_look_is_opened_again(engine, routing, five):
    given = options(engine, queue="Subscriber0")
    destinations = Destinations(given)
    with Sender(destinations) as sender:
        assert sender.send(composed(given, batch([0]), destinations=destinations)) == Sent(sent=1)
        engine.cut_connections()
        assert sender.send(composed(given, batch([1], EventType=TYPE))) == Sent(sent=5)
    assert [ids_in(each) for each in five] == [message_ids([0, 1])] + [message_ids([1])] * 4
