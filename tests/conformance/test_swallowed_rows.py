"""A table that takes rows and keeps none of them, or only some: no message is lost by any way into it.

PostgreSQL only: a trigger of SQL Server that drops rows cannot be seen in the count that its server gives.
"""

import io
import json
import re
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import (
    event_subscriptions,
    failed_retry,
    outbox_tables,
    queue_restore,
    queue_tables,
)
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions
from tests.support.clock import impatient_settling
from tests.support.delayed import DelayedRows, in_an_hour, move
from tests.support.driver import streaming
from tests.support.error_rows import fail, full
from tests.support.forwarding import forwarding, staged
from tests.support.messages import body, message_id, message_ids, row_id
from tests.support.outboxes import OutboxRows
from tests.support.sending import OUTBOXES, batch, ids_in, options, send

#: How a table drops rows: all of them by a trigger or by a rule, or those of one message.
TRIGGER, RULE = "trigger", "rule"
SAID = re.compile(r"took (\d+) of the (\d+) rows that were inserted into it")


def swallow(postgresql, table, how=TRIGGER, when="true"):
    """From here on a table drops rows without an error.

    :param when: which rows, of a trigger.
    """
    if how == RULE:
        postgresql.execute(f'CREATE RULE swallow AS ON INSERT TO "{table}" DO INSTEAD NOTHING')
        return
    postgresql.execute(
        "CREATE OR REPLACE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    postgresql.execute(
        f'CREATE TRIGGER swallow BEFORE INSERT ON "{table}" FOR EACH ROW WHEN ({when}) '
        "EXECUTE FUNCTION swallow()"
    )


def spare(postgresql, table, how=TRIGGER):
    postgresql.execute(f'DROP {how} swallow ON "{table}"')


def only(number):
    """The condition of a trigger that drops the message of this number alone."""
    return f"NEW.headers LIKE '%{message_id(number)}%'"


@pytest.fixture
def orders(postgresql):
    return postgresql.create_queue()


@pytest.fixture
def billing(postgresql):
    return postgresql.create_queue("billing")


@pytest.fixture
def error(postgresql):
    return postgresql.create_queue("error")


@pytest.fixture
def outbox(postgresql):
    outbox_tables.create(parsed(postgresql), "Sales")
    return OutboxRows(postgresql)


def parsed(engine, **more):
    return ConnectionOptions.parse({"url": engine.url, **more})


def counts(error):
    """Went in and wanted, as the text of an error says them."""
    found = SAID.search(str(error))
    assert found is not None, str(error)
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("mode", [*OUTBOXES, "none"])
def test_a_sink_without_an_error_queue_fails_and_sends_nothing(postgresql, orders, outbox, mode):
    swallow(postgresql, "orders", when=only(1))
    given = options(postgresql, outbox=mode)
    with pytest.raises(QueueError) as caught:
        send(given, batch(range(3)))
    assert (counts(caught.value), orders.count(), outbox.ids()) == ((2, 3), 0, set())
    spare(postgresql, "orders")
    assert (send(given, batch(range(3))), ids_in(orders)) == ((3, 0), message_ids(range(3)))


@pytest.mark.parametrize("mode", OUTBOXES)
def test_only_the_message_that_is_dropped_fails(postgresql, orders, error, outbox, mode):
    swallow(postgresql, "orders", when=only(2))
    given = options(postgresql, outbox=mode, errorQueue="error")
    assert send(given, batch(range(5))) == (4, 0)
    assert (ids_in(orders), ids_in(error)) == (message_ids([0, 1, 3, 4]), message_ids([2]))
    said = json.loads(error.rows()[0].headers)["NServiceBus.ExceptionInfo.Message"]
    assert counts(said) == (0, 1)


def test_an_error_queue_that_drops_rows_ends_the_batch(postgresql, error, outbox):
    swallow(postgresql, "error")
    with pytest.raises(QueueError) as caught:
        send(options(postgresql, errorQueue="error"), batch(range(2), Destination="gone"))
    assert (counts(caught.value), outbox.ids()) == ((0, 2), set())


@pytest.mark.parametrize("mode", OUTBOXES)
def test_an_outbox_that_drops_keys_is_an_error(postgresql, orders, outbox, mode):
    """Without its keys a message would go out twice. One whose key is dropped was not sent before."""
    swallow(postgresql, "Sales_OutboxData")
    with pytest.raises(QueueError) as caught:
        send(options(postgresql, outbox=mode), batch(range(2)))
    assert (counts(caught.value), orders.count()) == ((0, 2), 0)


@pytest.mark.parametrize("how", [TRIGGER, RULE])
def test_a_destination_that_drops_what_was_staged_keeps_the_batch(postgresql, orders, billing, how):
    """It is found before the batch is logged, or at the latest when it is settled."""
    orders.insert(5)
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        swallow(postgresql, "billing", how)
        with impatient_settling(), pytest.raises(QueueError) as caught:
            stream.trigger()
        assert counts(caught.value) == (0, 5)
        stream.crash()
        spare(postgresql, "billing", how)
        stream.drain()
    assert (ids_in(billing), orders.count(), staged(postgresql)) == (message_ids(range(5)), 0, 0)


@pytest.mark.parametrize("how", [TRIGGER, RULE])
def test_a_rehearsal_finds_a_destination_that_drops_rows(postgresql, orders, billing, how):
    orders.insert(5)
    swallow(postgresql, "billing", how)
    with forwarding(postgresql, orders) as stream:
        with pytest.raises(QueueError, match="refuses a message that this batch sends: ") as caught:
            stream.trigger()
        assert (counts(caught.value), stream.done) == ((0, 1), 0)
        stream.crash()
        spare(postgresql, "billing", how)
        stream.drain()
    assert (ids_in(billing), orders.count()) == (message_ids(range(5)), 0)


def test_a_stage_that_drops_rows_fails_before_the_batch_is_logged(postgresql, orders, billing):
    orders.insert(5)
    with forwarding(postgresql, orders) as stream:
        assert stream.trigger()
        orders.insert(5, start=5)
        swallow(postgresql, "Forward.Outgoing")
        with pytest.raises(QueueError) as caught:
            stream.trigger()
        assert counts(caught.value) == (0, 1)
        stream.crash()
        spare(postgresql, "Forward.Outgoing")
        stream.drain()
    assert (sorted(ids_in(billing)), orders.count()) == (message_ids(range(10)), 0)


def test_a_failed_message_stays_in_the_error_queue(postgresql, orders, billing, error):
    swallow(postgresql, "orders")
    fail(error, range(3), full(postgresql))
    fail(error, range(3, 5), full(postgresql, "billing"))
    done = failed_retry.retry(parsed(postgresql), "error", Selection())
    assert (orders.count(), ids_in(billing), ids_in(error)) == (0, message_ids([3, 4]), message_ids(range(3)))
    assert [(counts(why), count) for why, count in done.stayed.items()] == [((0, 3), 3)]


def test_a_message_of_a_person_is_not_sent(postgresql, orders):
    swallow(postgresql, "orders")
    with pytest.raises(QueueError) as caught:
        queue_tables.send(parsed(postgresql), "orders", queue_tables.Draft(body=b"{}", message_type="A"))
    assert counts(caught.value) == (0, 1)


def test_lines_that_are_dropped_are_not_done(postgresql, orders):
    text = "".join(json.dumps({"headers": {}, "body": "x", "id": str(row_id(n))}) + "\n" for n in range(3))
    swallow(postgresql, "orders", when=f"NEW.id = '{row_id(1)}'")
    lines = queue_restore.Input(source=io.BytesIO(text.encode()), name="lines", again=True)
    with pytest.raises(QueueError, match=r"Nothing was sent\.$") as caught:
        queue_restore.restore(parsed(postgresql), "orders", lines)
    assert (counts(caught.value), orders.count()) == ((2, 3), 0)


@pytest.mark.parametrize("how", [TRIGGER, RULE])
def test_a_due_message_that_is_dropped_goes_to_the_error_queue(
    postgresql, orders, billing, error, outbox, how
):
    """Moved one by one, and by the statement within the server that moves the ones like the last."""
    waiting = DelayedRows(postgresql, "Sales").create()
    given = options(postgresql)
    for numbers in (range(200), range(200, 300)):
        send(given, batch(numbers, DeliverAt=in_an_hour()))
    waiting.make_due("2 hours")
    swallow(postgresql, "orders", how)
    assert move(postgresql, "Sales") == (0, 300)
    assert (orders.count(), sorted(ids_in(error)), waiting.count()) == (0, message_ids(range(300)), 0)


def test_a_due_message_that_is_dropped_on_the_quick_way_fails_alone(
    postgresql, orders, billing, error, outbox
):
    waiting = DelayedRows(postgresql, "Sales").create()
    send(options(postgresql), batch(range(300), DeliverAt=in_an_hour()))
    waiting.make_due("2 hours")
    swallow(postgresql, "orders", when=only(250))
    assert move(postgresql, "Sales") == (299, 1)
    assert (orders.count(), ids_in(error), waiting.count()) == (299, message_ids([250]), 0)


def test_a_message_is_not_lost_in_a_table_of_delayed_messages(postgresql, orders, outbox):
    DelayedRows(postgresql, "Sales").create()
    swallow(postgresql, "Sales.Delayed")
    with pytest.raises(QueueError) as caught:
        send(options(postgresql), batch(range(2), DelayDeliveryFor=timedelta(hours=1)))
    assert (counts(caught.value), outbox.ids()) == ((0, 2), set())


def test_a_message_in_transit_that_is_dropped_fails_alone(postgresql, orders, billing, error):
    swallow(postgresql, "billing", when=only(1))
    for number in range(3):
        ids = {"NServiceBus.MessageId": message_id(number)}
        text = json.dumps({**ids, FORWARD_DESTINATION: '"public"."billing"'})
        orders.insert_row(id=row_id(number), headers=text, body=body(number))
    with streaming(postgresql, orders, errorQueue="error") as stream:
        assert not stream.trigger()
    assert orders.count() == 0
    assert (ids_in(billing), ids_in(error)) == (message_ids([0, 2]), message_ids([1]))


def test_a_subscription_that_is_dropped_is_an_error(postgresql, orders):
    given = parsed(postgresql)
    event_subscriptions.subscriptions(given, create=True)
    swallow(postgresql, "SubscriptionRouting")
    with pytest.raises(QueueError) as caught:
        event_subscriptions.subscribe(given, "orders", ["Shop.Paid"], endpoint="Sales")
    assert counts(caught.value) == (0, 1)
