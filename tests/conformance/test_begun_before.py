"""A batch that version 0.2.0 began runs again after an upgrade: nothing is doubled or lost.

PostgreSQL only: the rows in ``tests/data/version_0_2`` were recorded there.
"""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from sqlqueue_spark.send.sent import Sent
from tests.support.crossing import crossing, drained, drained_twice, number_of
from tests.support.delayed import DelayedRows, move
from tests.support.messages import body, message_id, message_ids
from tests.support.outcomes import failure, outgoing
from tests.support.sending import OUTBOXES, batch, ids_in, options, send
from tests.support.stored import create_home, create_outbox, numbers_in, running
from tests.support.stored import drained as drained_job

DATA = Path(__file__).parent.parent / "data" / "version_0_2"


def recorded(name, **engines):
    """Fill databases, whose tables are there, with what was recorded."""
    for which, tables in json.loads((DATA / f"{name}.json").read_text()).items():
        for table, rows in tables.items():
            fill(engines[which], table, rows)


def fill(engine, table, rows):
    if not rows:
        return
    if engine.name != "postgresql":
        pytest.skip("recorded on PostgreSQL")
    if table.endswith("_OutboxData"):
        for each in rows:
            each["DispatchedAt"] = "now"
    told = json.dumps(rows).replace("'", "''")
    engine.execute(
        f'INSERT INTO public."{table}" SELECT (jsonb_populate_record(NULL::public."{table}", each)).* '
        f"FROM jsonb_array_elements('{told}') AS each"
    )
    if "seq" in rows[0]:
        engine.execute(
            f"""SELECT setval(pg_get_serial_sequence('public."{table}"', 'seq'), max(seq))
            FROM public."{table}\""""
        )


@pytest.fixture
def orders(engine):
    if engine.name != "postgresql":
        pytest.skip("recorded on PostgreSQL")
    engine.create_queue("billing")
    return create_home(engine, "Cross", "orders")


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_plain_messages_that_it_sent_or_failed_are_known(engine, orders, outbox):
    """Also where the destination has come since."""
    recorded("plain", home=engine)
    error, billing, gone = (engine.queue(name) for name in ("error", "billing", "gone"))
    engine.create_queue("gone")
    given = options(engine, endpoint="Cross", errorQueue="error", outbox=outbox)
    to = ["billing", "gone", "billing", "gone"]
    assert send(given, batch(range(4), Destination=to)) == (1, 3)
    assert send(given, batch(range(4), Destination=to)) == (0, 4)
    found = [sorted(ids_in(each)) for each in (billing, error, gone)]
    assert found == [message_ids([0, 2]), message_ids([1]), message_ids([3])]


def to_billing(number):
    return ["gone" if number == 3 else "billing"]


@pytest.mark.parametrize("since", ["as it was", "what failed can be sent"])
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_rows_that_it_passed_on_or_failed_are_known(engine, orders, outbox, since):
    recorded("passed_on", home=engine)
    if since != "as it was":
        engine.create_queue("gone")
    with crossing(engine, orders, {"outbox": outbox}, to=to_billing) as job:
        drained_twice(job)
    error = engine.queue("error")
    assert (numbers_in(engine.queue("billing")), sorted(numbers_in(error))) == ([0, 1], [2, 3, 4])
    assert orders.count() == 0


def answers(message):
    number = number_of(message)
    if number == 2:
        return {"Failure": failure()}
    return (
        {"Failure": failure(RetryAfter=timedelta(hours=1))} if number == 3 else [outgoing("billing", number)]
    )


def others(message):
    """What the function answers the second time may be anything."""
    return [outgoing("billing", 100 + number_of(message))]


@pytest.mark.parametrize("handler", [answers, others])
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_rows_that_it_handled_have_no_outcome_again_and_their_retry_is_handled(
    engine, orders, outbox, handler
):
    recorded("handled", home=engine)
    waiting = DelayedRows(engine, "orders")
    with crossing(engine, orders, {"outbox": outbox}, handler=handler) as job:
        drained_twice(job)
        found = numbers_in(engine.queue("billing")), numbers_in(engine.queue("error")), waiting.count()
        assert found == ([0, 1], [2], 1)
        # The row that it let wait carries no origin of ours. It comes back as a row of its own.
        engine.execute(f"UPDATE {waiting.quoted} SET due = now() - interval '1 day'")
        assert move(engine, "orders") == (1, 0)
        job.handler = lambda each: [outgoing("billing", number_of(each))]
        drained_twice(job)
    assert numbers_in(engine.queue("billing")) == [0, 1, 3]
    assert (orders.count(), waiting.count()) == (0, 0)


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_message_that_it_handled_is_known_by_its_id(engine, orders, outbox):
    """It comes as another row."""
    recorded("handled", home=engine)
    engine.execute("DELETE FROM orders")
    again = json.dumps({"NServiceBus.MessageId": message_id(0)})
    engine.execute(
        f"INSERT INTO orders (id, headers, body) VALUES (gen_random_uuid(), '{again}', '{body(0).decode()}')"
    )
    with crossing(engine, orders, {"outbox": outbox}, handler=others) as job:
        assert drained(job) == Sent(repeated=1)
    assert numbers_in(engine.queue("billing")) == [0, 1]


@pytest.fixture
def stored(engine):
    if engine.name != "postgresql":
        pytest.skip("recorded on PostgreSQL")
    return create_home(engine, "Forward", "outgoing")


@pytest.fixture
def billing(elsewhere):
    create_outbox(elsewhere, "Forward")
    return elsewhere.create_queue("billing")


@pytest.mark.parametrize("outbox", OUTBOXES)
@pytest.mark.parametrize("since", ["as it was", "what failed can be sent"])
def test_stored_messages_that_it_delivered_or_failed_are_known(
    engine, elsewhere, stored, billing, outbox, since
):
    recorded("store_and_forward", home=engine, far=elsewhere)
    gone = None if since == "as it was" else elsewhere.create_queue("gone")
    with running(engine, stored, elsewhere.url, sink={"outbox": outbox}) as job:
        job.databases.look()
        drained_job(job)
    assert (sorted(numbers_in(billing)), sorted(numbers_in(engine.queue("error")))) == ([0, 1], [2, 3])
    assert (stored.count(), 0 if gone is None else gone.count()) == (0, 0)


@pytest.mark.parametrize("option", ["endpoint.Bill.url", "sink.url"])
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_messages_that_it_parked_are_delivered_once_and_nothing_of_the_batch_is(
    engine, elsewhere, stored, billing, outbox, option
):
    """Whether the option by which it knew the database has its name still, or another."""
    recorded("parked", home=engine, far=elsewhere)
    sink = {"outbox": outbox, **({option: elsewhere.url} if option != "sink.url" else {})}
    waiting = DelayedRows(engine, "outgoing")
    assert waiting.count() == 2
    with running(engine, stored, elsewhere.url, sink=sink) as job:
        assert job.databases.look() == 2
        drained_job(job)
    assert numbers_in(billing) == [0, 1]
    assert not any("sqlqueue." in row.headers for row in billing.rows())
    assert (stored.count(), waiting.count(), engine.queue("error").count()) == (0, 0, 0)


def test_messages_that_it_parked_and_that_are_due_are_put_back_by_any_mover(
    engine, elsewhere, stored, billing
):
    recorded("parked", home=engine, far=elsewhere)
    waiting = DelayedRows(engine, "outgoing")
    engine.execute(f"UPDATE {waiting.quoted} SET due = now() - interval '1 day'")
    assert move(engine, "outgoing") == (2, 0)
    with running(engine, stored, elsewhere.url) as job:
        drained_job(job)
    assert (numbers_in(billing), stored.count(), engine.queue("error").count()) == ([0, 1], 0, 0)
