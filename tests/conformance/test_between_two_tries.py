"""What changes between two tries of a batch, as an option or a name, neither loses nor doubles a message."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.messages.message import MESSAGE_ID
from sqlqueue_spark.send.sent import Sent
from tests.support.crossing import crossing, drained, drained_twice, number_of
from tests.support.delayed import DelayedRows
from tests.support.driver import BATCH_WRITTEN, Crash, at_step, crash
from tests.support.gate import gated
from tests.support.messages import message_id, message_ids, row_id
from tests.support.outcomes import options as of_outcomes
from tests.support.outcomes import outcome, outgoing, settle
from tests.support.sending import OUTBOXES, batch, ids_in, options, send, sent_all, steps
from tests.support.stored import create_home, create_outbox, numbers_in

pytestmark = [pytest.mark.tier("all", variants="nightly"), pytest.mark.needs("reads_json_as_documented")]


@pytest.fixture
def orders(engine):
    return create_home(engine, "Sales", "orders")


@pytest.fixture(params=["one database", "two databases"])
def there(request, engine, orders):
    """The database of the queue billing, which is not there yet."""
    if request.param == "one database":
        return engine
    elsewhere = request.getfixturevalue("elsewhere")
    create_outbox(elsewhere, "Sales")
    return elsewhere


def leads(engine, there):
    return {} if there is engine else {"endpoint.billing.url": there.url}


def rename(engine, before, after):
    """Take a queue away, with what is in it."""
    if engine.name == "postgresql":
        engine.execute(f'ALTER TABLE "{before}" RENAME TO "{after}"')
    else:
        engine.execute(f"EXEC sp_rename '{before}', '{after}'")


# -- a destination that comes or goes -------------------------------------------------------------


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_plain_messages_to_a_destination_that_comes_are_in_error_alone(engine, orders, there, outbox):
    given = options(engine, outbox=outbox, errorQueue="error", queue="billing", **leads(engine, there))
    assert send(given, batch(range(3))) == (0, 0)
    billing = there.create_queue("billing")
    assert send(given, batch(range(5))) == (2, 3)
    assert send(given, batch(range(5))) == (0, 5)
    assert (ids_in(engine.queue("error")), ids_in(billing)) == (message_ids(range(3)), message_ids([3, 4]))


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("died", [False, True])
def test_plain_messages_to_a_destination_that_goes_are_delivered_alone(engine, orders, there, outbox, died):
    billing = there.create_queue("billing")
    given = options(engine, outbox=outbox, errorQueue="error", queue="billing", **leads(engine, there))
    if died:
        with steps(), at_step(fail_points.CHUNK_SENT, crash), pytest.raises(Crash):
            send(given, batch(range(3)))
    else:
        assert send(given, batch(range(3))) == (3, 0)
    rename(there, "billing", "gone")
    assert send(given, batch(range(5))) == (0, 3)
    assert send(given, batch(range(5))) == (0, 5)
    rename(there, "gone", "billing")
    assert (ids_in(billing), ids_in(engine.queue("error"))) == (message_ids(range(3)), message_ids([3, 4]))


KINDS: dict[str, dict[str, Any]] = {
    "passed on": {"to": ["billing"]},
    "handled": {"handler": lambda each: [outgoing("billing", number_of(each))]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_rows_to_a_destination_that_comes_are_in_one_place(engine, orders, there, outbox, kind):
    orders.insert(3)
    sink = {"endpoint": "Sales", "outbox": outbox, **leads(engine, there)}
    error = engine.queue("error")
    with crossing(engine, orders, sink, **KINDS[kind]) as job:
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            job.trigger()
        job.crash()
        # What a handler sends to another database is only stored: its destination is not looked for yet.
        stored = kind == "handled" and there is not engine
        assert numbers_in(error) == ([] if stored else [0, 1, 2])
        billing = there.create_queue("billing")
        drained_twice(job)
    assert (numbers_in(billing), numbers_in(error)) == (([0, 1, 2], []) if stored else ([], [0, 1, 2]))
    assert orders.count() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("step", [fail_points.CHUNK_SENT, BATCH_WRITTEN])
def test_rows_to_a_destination_that_goes_are_in_one_place(engine, orders, there, outbox, kind, step):
    billing = there.create_queue("billing")
    orders.insert(3)
    sink = {"endpoint": "Sales", "outbox": outbox, **leads(engine, there)}
    error = engine.queue("error")
    with crossing(engine, orders, sink, **KINDS[kind]) as job:
        if kind == "handled" and there is not engine:
            assert job.trigger()  # what is stored goes on in the batch behind it
        with at_step(step, crash, on={2 if step == fail_points.CHUNK_SENT else 1}), pytest.raises(Crash):
            job.trigger()  # in two tasks
        job.crash()
        assert numbers_in(billing) == [0, 1, 2]
        rename(there, "billing", "gone")
        drained_twice(job)
        rename(there, "gone", "billing")
    assert (numbers_in(billing), numbers_in(error), orders.count()) == ([0, 1, 2], [], 0)


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_of_copies_for_two_databases_each_is_in_one_place_though_a_destination_comes(
    engine, orders, elsewhere, outbox
):
    """One copy goes out at the first try; the other fails alone, and does not go out at the next."""
    create_outbox(elsewhere, "Sales")
    near = engine.create_queue("near")
    orders.insert(3)
    sink = {"endpoint": "Sales", "outbox": outbox, "endpoint.billing.url": elsewhere.url}
    with crossing(engine, orders, sink, to=["near", "billing"]) as job:
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            job.trigger()
        job.crash()
        billing = elsewhere.create_queue("billing")
        drained_twice(job)
    assert (numbers_in(near), numbers_in(billing), numbers_in(engine.queue("error"))) == (
        [0, 1, 2],
        [],
        [0, 1, 2],
    )


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("rows", ["plain", "received", "copies"])
def test_what_failed_and_comes_again_in_a_new_batch_is_in_error_alone(engine, orders, there, outbox, rows):
    """Its claim was lost, or the checkpoint is a new one, so the row is free again."""
    near, url = engine.create_queue("near"), leads(engine, there)
    given = options(engine, outbox=outbox, errorQueue="error", **url)
    orders.insert(3)
    frame = pa.RecordBatch.from_pylist(
        [
            {"Headers": json.dumps({MESSAGE_ID: message_id(number)}), "Body": b"{}", "Destination": to}
            | (
                {}
                if rows == "plain"
                else {"Queue": "orders", "RowVersion": number, "Id": str(row_id(number))}
            )
            for number in range(1, 4)
            for to in (("near", "billing") if rows == "copies" else ("billing",))
        ]
    )
    sent = 3 if rows == "copies" else 0
    assert sent_all(given, frame) == Sent(sent=sent, failed=3)
    billing = there.create_queue("billing")
    assert sent_all(given, frame) == Sent(repeated=3 + sent)
    assert (near.count(), billing.count(), engine.queue("error").count()) == (sent, 0, 3)


# -- an option, or a name -------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["direct", "stored"])
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_storing_that_is_switched_between_two_tries_doubles_no_plain_message(
    engine, orders, elsewhere, first, outbox
):
    """The job of the queue in which they are stored has the same endpoint, and so the same outbox there."""
    create_outbox(elsewhere, "Sales")
    billing, stored = elsewhere.create_queue("billing"), engine.create_queue("outgoing")
    direct = {"outbox": outbox, "endpoint.billing.url": elsewhere.url, "queue": "billing"}
    ways = [direct, {**direct, "storeAndForward": "outgoing"}]
    for way in ways if first == "direct" else reversed(ways):
        assert send(options(engine, **way), batch(range(3))) == (3, 0)
        assert send(options(engine, **way), batch(range(3))) == (0, 3)
    sink = {"endpoint": "Sales", "endpoint.billing.url": elsewhere.url}
    with crossing(engine, stored, sink, handler=lambda _: ()) as job:
        assert drained(job).repeated == 3
    assert (ids_in(billing), stored.count()) == (message_ids(range(3)), 0)


@pytest.mark.parametrize("first", ["own queue", "storeAndForward"])
def test_storing_that_is_switched_between_two_tries_doubles_no_answer(engine, orders, elsewhere, first):
    create_outbox(elsewhere, "Sales")
    billing, stored = elsewhere.create_queue("billing"), engine.create_queue("outgoing")
    own = {"endpoint": "Sales", "endpoint.billing.url": elsewhere.url}
    ways = [own, {**own, "storeAndForward": "outgoing"}]
    one, other = ways if first == "own queue" else ways[::-1]
    orders.insert(3)
    with crossing(engine, orders, one, **KINDS["handled"]) as job:
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            job.trigger()
        job.crash()
        job.begin(other)
        drained_twice(job)
    with crossing(engine, stored, own, handler=lambda _: ()) as job:
        drained_twice(job)
    assert (numbers_in(billing), orders.count(), stored.count()) == ([0, 1, 2], 0, 0)


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_queue_that_is_renamed_between_two_tries_has_no_outcome_again(engine, orders, outbox):
    """Under a pattern that matches both names, say: a row is known by what moves with its table."""
    engine.create_queue("billing")
    given = of_outcomes(engine, outbox=outbox)
    rows = [(1, [outgoing("billing", 10)], None), (2, [], {"ExceptionType": "Wrong", "Message": "it is"})]

    def tried(queue):
        return settle(given, *(outcome(at, *its, fails=why, Queue=queue) for at, its, why in rows))

    assert tried("orders") == (1, 0, 1)
    rename(engine, "orders", "orders 2")
    assert tried("orders 2") == (0, 2, 0)
    assert (numbers_in(engine.queue("billing")), numbers_in(engine.queue("error"))) == ([10], [2])


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_queue_that_is_renamed_between_two_tries_passes_nothing_on_again(engine, orders, outbox):
    """What went out is known at its destination; what failed, by its origin."""
    billing = engine.create_queue("billing")
    orders.insert(2)
    orders.insert_row(id=row_id(3), headers="no JSON", body=b'{"order":2}')
    sink = {"endpoint": "Sales", "outbox": outbox}
    with crossing(engine, orders, sink, to=["billing"]) as job:
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            job.trigger()
        job.crash()
    rename(engine, "orders", "orders 2")
    with crossing(engine, engine.queue("orders 2"), sink, to=["billing"]) as job:
        drained_twice(job)
    assert (numbers_in(billing), numbers_in(engine.queue("error"))) == ([0, 1], [2])
    assert json.loads(engine.queue("error").rows()[0].headers)["sqlqueue.RawHeaders"] == "no JSON"


#: Options that decide where a message goes, or what is asked, as they are in two runs.
SWITCHED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "errorQueue": ({}, {"errorQueue": "fails"}),
    "errorQueue elsewhere": ({}, {"errorQueue": "there"}),
    "auditQueue": ({}, {"auditQueue": "audit"}),
    "storeAndForward": ({}, {"storeAndForward": "outgoing"}),
    "outboxEndpoint": ({}, {"outboxEndpoint": "Sales"}),
    "outboxEndpoint of others": ({"outboxEndpoint": "Sales"}, {"outboxEndpoint": "Other"}),
}
ROUTES = {"near": [0, 3], "billing": [1, 4], "gone": [2, 5]}


def begin(job, sink, *, outboxEndpoint=None, **more):  # noqa: N803 -- the name of the option
    job.options = replace(job.options, outbox_endpoint=outboxEndpoint)
    job.begin({**sink, **more})


def left_in(job, gate, left):
    """Run a batch that sends, and leave it begun, or logged and not settled, or let what has arrived wait."""
    dies = at_step(BATCH_WRITTEN, crash) if left != "logged" else contextlib.nullcontext()
    with dies, contextlib.suppress(Crash):
        job.trigger()
    job.crash()
    if left == "waiting":
        gate.shut()
        job.databases.look()
        drained(job)
        job.crash()
        gate.open()


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("left", ["begun", "logged", "waiting"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    "kind,switched",
    [
        *(("handled", each) for each in SWITCHED),
        *(("passed on", each) for each in SWITCHED if each not in ("auditQueue", "errorQueue elsewhere")),
    ],
)
def test_an_option_that_is_switched_between_two_runs_leaves_each_message_in_one_place(
    engine, orders, elsewhere, kind, switched, first, left
):
    """So the note of a job needs none of these. What is stored is passed on by a job of its own."""
    near, stored, fails, audit = map(engine.create_queue, ("near", "outgoing", "fails", "audit"))
    billing, there = map(elsewhere.create_queue, ("billing", "there"))
    create_outbox(elsewhere, "Sales")
    create_outbox(engine, "Other")
    waiting = DelayedRows(engine, "orders")
    DelayedRows(engine, "outgoing").create()
    orders.insert(6)
    to = {number: [address] for address, numbers in ROUTES.items() for number in numbers}
    answers = {"handler": lambda each: [outgoing(one, number_of(each)) for one in to[number_of(each)]]}
    does = answers if kind == "handled" else {"to": to.__getitem__}
    ways = SWITCHED[switched]
    with gated(elsewhere.url) as gate:
        sink = {"endpoint": "Sales", "endpoint.billing.url": gate.url, "endpoint.there.url": gate.url}
        with crossing(engine, orders, sink, **does) as job:
            begin(job, sink, **ways[first])
            left_in(job, gate, left)
            assert left != "waiting" or "storeAndForward" in ways[first] or waiting.count() > 0
            begin(job, sink, **ways[1 - first])
            job.databases.look()
            drained_twice(job)
        with crossing(engine, stored, sink, handler=lambda _: ()) as job:
            drained_twice(job)
    assert (numbers_in(near), numbers_in(billing)) == (ROUTES["near"], ROUTES["billing"])
    wrong = [number for each in (engine.queue("error"), fails, there) for number in numbers_in(each)]
    assert (sorted(wrong), orders.count(), stored.count()) == (ROUTES["gone"], 0, 0)
    assert (waiting.count(), len(set(numbers_in(audit)))) == (0, audit.count())
