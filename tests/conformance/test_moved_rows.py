"""A row that we move is known as the row that it was; headers of one hop end with the hop."""

import json
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, ORIGIN
from sqlqueue_spark.messages.outgoing import derived_ids
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.sent import Sent
from tests.support import messages
from tests.support.crossing import crossing, drained, drained_twice, number_of
from tests.support.delayed import DelayedRows, move
from tests.support.driver import BATCH_WRITTEN, Crash, at_step, crash
from tests.support.error_rows import full
from tests.support.gate import gated
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import failure, outgoing
from tests.support.sending import OUTBOXES, batch, ids_in, options, send
from tests.support.stored import create_home, create_outbox, numbers_in

pytestmark = [pytest.mark.tier("all", variants="nightly"), pytest.mark.needs("reads_json_as_documented")]

HOUR = timedelta(hours=1)
RETRIES = "NServiceBus.Retries"


@pytest.fixture
def orders(engine):
    return create_home(engine, "Cross", "orders")


@pytest.fixture
def far(elsewhere):
    create_outbox(elsewhere, "Cross")
    return elsewhere.create_queue("billing")


@pytest.fixture
def gate(elsewhere, far):
    with gated(elsewhere.url) as gate:
        yield gate


def headers_in(queue):
    return [json.loads(row.headers) for row in queue.rows()]


# -- what a moved row is known by -----------------------------------------------------------------


def test_a_row_is_known_as_the_first_one_however_it_was_moved(engine, orders, far, gate):
    """It fails and is tried again, twice; what its function sends at last has the id of the first row."""
    sink = {"endpoint.billing.url": gate.url}
    orders.insert_row(id=row_id(1), headers=messages.headers(1), body=body(1))

    def handler(message):
        retried = json.loads(message["Headers"]).get(RETRIES)
        return [outgoing("billing", 7)] if retried == "2" else {"Failure": failure(RetryAfter=HOUR)}

    waiting = DelayedRows(engine, "orders")
    with crossing(engine, orders, sink, handler=handler) as job:
        for moves in (1, 2):
            drained_twice(job)
            (row,) = waiting.rows()
            assert row.headers[ORIGIN].split(":")[1:] == [str(row_id(1)), "1", str(moves)]
            waiting.make_due()
            assert move(engine, "orders") == (1, 0)
            if engine.name == "postgresql":  # the table of SQL Server has no Id, and the header names it
                assert str(orders.rows()[0].id) == row.headers[ORIGIN].split(":")[0]
        drained_twice(job)
    (answer,) = headers_in(far)
    wanted = derived_ids([message_id(1)], [str(row_id(1))], [0]).to_pylist()
    assert ([answer["NServiceBus.MessageId"]], numbers_in(far)) == (wanted, [7])
    assert (orders.count(), waiting.count(), engine.queue("error").count()) == (0, 0, 0)


def test_a_row_that_waits_twice_keeps_its_origin_and_its_deadline(engine, orders, far, gate):
    orders.insert_row(id=row_id(1), headers=messages.headers(1), body=body(1))
    waiting = DelayedRows(engine, "orders")
    gate.shut()
    seen = []
    with crossing(
        engine, orders, {"endpoint.billing.url": gate.url, "giveUpAfter": "30m"}, to=["billing"]
    ) as job:
        for _ in range(3):
            drained_twice(job)
            (row,) = waiting.rows()
            seen.append((row.headers[ORIGIN].split(":")[1:], row.headers["sqlqueue.GiveUpAt"]))
            waiting.make_due()
            assert move(engine, "orders") == (1, 0)
        gate.open()
        job.databases.look()
        drained_twice(job)
    first, number, end = str(row_id(1)), "1", seen[0][1]
    assert seen == [([first, number, str(moves)], end) for moves in (1, 2, 3)]
    assert [(row.headers, row.body) for row in far.rows()] == [(messages.headers(1), body(1))]
    assert (orders.count(), waiting.count()) == (0, 0)


def test_a_row_that_another_mover_gave_an_id_is_another_origin_and_arrives_once(engine, orders, far, gate):
    """As a .NET endpoint moves it, which knows no header of ours."""
    orders.insert_row(id=row_id(1), headers=messages.headers(1), body=body(1))
    waiting = DelayedRows(engine, "orders")
    gate.shut()
    with crossing(engine, orders, {"endpoint.billing.url": gate.url}, to=["billing"]) as job:
        drained_twice(job)
        (row,) = waiting.rows()
        engine.execute(f"DELETE FROM {waiting.quoted}")
        kept = {name: value for name, value in row.headers.items() if name != FORWARD_DESTINATION}
        orders.insert_row(id=row_id(77), headers=json.dumps(kept), body=row.body)
        drained_twice(job)
        (row,) = waiting.rows()
        version = row.headers[ORIGIN].split(":")[2]
        assert row.headers[ORIGIN].split(":")[1:] == [str(row_id(77)), version, "1"]
        gate.open()
        assert job.databases.look() == 1
        drained_twice(job)
    assert [json.loads(row.headers) for row in far.rows()] == [json.loads(messages.headers(1))]
    assert (orders.count(), waiting.count(), engine.queue("error").count()) == (0, 0, 0)


@pytest.mark.parametrize("fate", ["handled", "passed on"])
def test_a_header_of_an_origin_that_a_sender_made_up_makes_nothing_known(engine, orders, far, fate):
    """Another message has the origin that it names, and both have their outcome."""
    billing = engine.create_queue("billing")
    forged = f"{row_id(50)}:{row_id(1)}:1:0"
    orders.insert_row(id=row_id(1), headers=messages.headers(1), body=body(1))
    for number in (2, 3):
        text = messages.headers(number)[:-1] + f',"{ORIGIN}":"{forged}"}}'
        orders.insert_row(id=row_id(number), headers=text, body=body(number))
    how = (
        {"handler": lambda each: [outgoing("billing", number_of(each))]}
        if fate == "handled"
        else {"to": ["billing"]}
    )
    with crossing(engine, orders, {}, **how) as job:
        drained_twice(job)
    assert sorted(numbers_in(billing)) == [1, 2, 3]
    assert [ORIGIN in each for each in headers_in(billing)] == [False] * 3


@pytest.mark.parametrize("down", ["near", "billing"])
def test_of_two_copies_of_a_row_none_is_doubled_though_one_database_was_down(
    engine, elsewhere, third, orders, far, gate, down
):
    create_outbox(third, "Cross")
    near = third.create_queue("near")
    urls = {"endpoint.billing.url": elsewhere.url, "endpoint.near.url": third.url}
    with gated(third.url) as other:
        shut = {"near": other, "billing": gate}[down]
        urls[f"endpoint.{down}.url"] = shut.url
        orders.insert(2)
        shut.shut()
        with crossing(engine, orders, urls, to=["near", "billing"]) as job:
            drained_twice(job)
            assert DelayedRows(engine, "orders").count() == 2
            shut.open()
            assert job.databases.look() == 2
            drained_twice(job)
        assert (numbers_in(near), numbers_in(far)) == ([0, 1], [0, 1])
    assert (orders.count(), DelayedRows(engine, "orders").count()) == (0, 0)


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_what_a_row_had_done_before_it_waits_is_not_done_again(engine, orders, far, gate, outbox):
    """All went out or failed; then its batch runs again, and finds the database down."""
    asks = {
        "ServiceControl.Retry.AcknowledgementQueue": full(engine, "error"),
        "ServiceControl.Retry.UniqueMessageId": "31ec6466-6a86-9984-a9d7-1fd6c50fdea8",
    }
    text = messages.headers(1)[:-1] + "," + json.dumps(asks)[1:]
    orders.insert_row(id=row_id(1), headers=text, body=body(1))
    orders.insert(1, start=2)
    error = engine.queue("error")

    def to(number):
        return ["billing"] if number == 1 else ["billing", "gone"]

    with crossing(engine, orders, {"endpoint.billing.url": gate.url, "outbox": outbox}, to=to) as job:
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            job.trigger()
        assert (numbers_in(far), error.count()) == ([1, 2], 2)  # an acknowledgement, and a copy that failed
        gate.shut()
        job.crash()
        assert drained(job).waiting == 2
        engine.create_queue("gone")
        gate.open()
        assert job.databases.look() == 2
        drained_twice(job)
    assert (numbers_in(far), error.count(), engine.queue("gone").count()) == ([1, 2], 2, 0)
    assert (orders.count(), DelayedRows(engine, "orders").count()) == (0, 0)


def test_a_queue_without_a_table_for_it_fails_what_would_wait_and_nothing_else(
    engine, elsewhere, far, gate, caplog
):
    """As a new queue of a pattern is."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Cross")
    error, orders, near = (engine.create_queue(name) for name in ("error", "orders", "near"))
    orders.insert(4)
    gate.shut()

    def to(number):
        return ["near" if number % 2 else "billing"]

    with crossing(engine, orders, {"endpoint.billing.url": gate.url}, to=to) as job:
        done = drained_twice(job)
    assert (done.repeated, numbers_in(near), numbers_in(error)) == (4, [1, 3], [0, 2])
    assert "no_delayed_table queue=" in caplog.text
    assert orders.count() == 0
    (said,) = {json.loads(row.headers)["NServiceBus.ExceptionInfo.Message"] for row in error.rows()}
    assert said == (
        "The database of the option endpoint.billing.url was down and the message had no table to wait in, "
        "and the message may have arrived before; see that it can be reached, and put the message back."
    )


# -- headers of one hop ---------------------------------------------------------------------------

HOP = {
    FORWARD_DESTINATION: '"public"."orders"',
    RETRIES: "2",
    "NServiceBus.Retries.Timestamp": "2026-11-22 17:14:50:323690 Z",
    ORIGIN: f"{row_id(1)}:{row_id(1)}:1:1",
    "sqlqueue.Stored": "mine",
    "sqlqueue.GiveUpAt": "2026-11-22 17:14:50:323690 Z",
    "sqlqueue.WaitsFor": "sink.url",
}


def test_a_handler_that_answers_with_the_headers_of_its_message_lets_none_of_one_hop_leave(engine, orders):
    billing = engine.create_queue("billing")
    orders.insert(2)

    def handler(message):
        return [outgoing("billing", 5, Headers=[*json.loads(message["Headers"]).items(), *HOP.items()])]

    with crossing(engine, orders, {}, handler=handler) as job:
        assert drained(job) == Sent(sent=2, handled=2)
    for left in headers_in(billing):
        assert not left.keys() & HOP.keys()


@pytest.mark.parametrize("shape", ["alike", "each its own"])
def test_a_plain_message_with_headers_of_one_hop_leaves_without_them(engine, orders, shape):
    billing = engine.create_queue("billing")
    extra = [{f"own.{n}": "x"} if shape == "each its own" else {} for n in range(3)]
    texts = [json.dumps({"NServiceBus.MessageId": message_id(n), **HOP, **extra[n]}) for n in range(3)]
    given = options(engine, endpoint="Cross", queue="billing")
    assert send(given, batch(range(3), Headers=texts, MessageId=[None] * 3)) == (3, 0)
    assert ids_in(billing) == [message_id(n) for n in range(3)]
    assert [each.keys() & HOP.keys() for each in headers_in(billing)] == [set()] * 3


# -- the own address in other spellings -----------------------------------------------------------

SPELLINGS = {
    "full": ('"public"."orders"', {}),
    "bare": ("orders", {}),
    "capitals": ("ORDERS", {}),
    "bracketed": ("orders@[public]", {}),
    "a machine": ("orders@machine", {"legacyAddresses": "true"}),
    "a schema of its own": ("orders", {"queue.orders.schema": "shop"}),
    "a schema of its own, in full": ('"shop"."orders"', {"queue.orders.schema": "shop"}),
    "the default schema": ('"public"."orders"', {"queue.orders.schema": "shop"}),
    "another schema": ('"elsewhere"."orders"', {}),
    "no address": ("a@[b", {}),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("errors", ["of both", "of the sink"])
def test_a_row_that_names_its_own_queue_in_any_spelling_is_handled_or_fails(postgresql, spelling, errors):
    """It is never done without a call of its function."""
    named, more = SPELLINGS[spelling]
    schema = "shop" if more.get("queue.orders.schema") else None
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Cross")
    error, billing = postgresql.create_queue("error"), postgresql.create_queue("billing")
    orders = postgresql.create_queue("orders", schema=schema)
    called = []
    text = messages.headers(1)[:-1] + f",{json.dumps(FORWARD_DESTINATION)}:{json.dumps(named)}}}"
    orders.insert_row(id=row_id(1), headers=text, body=body(1))
    orders.insert(1, start=2)

    def handler(message):
        called.append(number_of(message))
        return [outgoing("billing", number_of(message))]

    orders.address = "orders"
    source = dict(more) if errors == "of the sink" else {**more, "errorQueue": "error"}
    with crossing(postgresql, orders, more, handler=handler, **source) as job:
        drained_twice(job)
    assert sorted([*numbers_in(billing), *numbers_in(error)]) == [1, 2]
    assert (2 in numbers_in(billing), orders.count()) == (True, 0)
    assert 1 in called or numbers_in(error) == [1]


@pytest.mark.parametrize("way", ["handled", "passed on"])
@pytest.mark.parametrize("named", ["orders@[{}]@[elsewhere]", "ORDERS@[]@[elsewhere]"])
def test_a_row_on_its_way_to_the_queue_of_its_name_in_another_database_fails(engine, orders, named, way):
    """Where the source has no error queue, it is a row of the batch, and none for this queue."""
    billing = engine.create_queue("billing")
    to = named.format(engine.default_schema)
    text = messages.headers(1)[:-1] + f",{json.dumps(FORWARD_DESTINATION)}:{json.dumps(to)}}}"
    orders.insert_row(id=row_id(1), headers=text, body=body(1))
    own = (
        messages.headers(2)[:-1]
        + f",{json.dumps(FORWARD_DESTINATION)}:{json.dumps(full(engine, 'orders'))}}}"
    )
    orders.insert_row(id=row_id(2), headers=own, body=body(2))

    def handler(message):
        return [outgoing("billing", number_of(message))]

    job = {"handler": handler} if way == "handled" else {"to": ["billing"]}
    with crossing(engine, orders, {}, **job) as running:
        drained_twice(running)
    assert (numbers_in(billing), numbers_in(engine.queue("error")), orders.count()) == ([2], [1], 0)


def test_rows_of_which_nothing_is_said_fail(engine, orders):
    """Neither what they send nor why they failed: no function was called for them."""
    orders.insert(2)

    def handler(message):
        return {"Failure": None} if number_of(message) else ()

    with crossing(engine, orders, {}, handler=handler) as job:
        done = drained_twice(job)
    assert (done.repeated, numbers_in(engine.queue("error")), orders.count()) == (2, [1], 0)
    (failed,) = headers_in(engine.queue("error"))
    assert "Outgoing and Failure of the message are both NULL" in failed["NServiceBus.ExceptionInfo.Message"]


def test_a_delayed_message_whose_address_is_no_json_fails_and_the_mover_goes_on(engine, orders):
    waiting = DelayedRows(engine, "orders")
    wrong = messages.headers(1)[:-1] + f',"{FORWARD_DESTINATION}":"\\q"}}'
    right = messages.headers(2)[:-1] + f",{json.dumps(FORWARD_DESTINATION)}:{json.dumps(full(engine))}}}"
    past = "now() - interval '1 day'" if engine.name == "postgresql" else "DATEADD(day, -1, GETUTCDATE())"
    for number, text in enumerate([wrong, right], 1):
        note = body(number).decode()
        bytes_ = f"'{note}'::bytea" if engine.name == "postgresql" else f"CONVERT(varbinary(max), '{note}')"
        engine.execute(
            f"INSERT INTO {waiting.quoted} (headers, body, due) VALUES ('{text}', {bytes_}, {past})"
        )
    assert move(engine, "orders") == (1, 1)
    assert (numbers_in(orders), numbers_in(engine.queue("error"))) == ([2], [1])
    assert headers_in(engine.queue("error"))[0]["NServiceBus.FailedQ"] == full(engine)
