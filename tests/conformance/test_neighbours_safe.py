"""Nothing that a sink sends stops a .NET endpoint: no NULL body,
headers a JSON object of strings, full addresses.
"""

import json

import pyarrow as pa
import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.engines import full_address
from tests.support.forwarding import NAME, forwarding
from tests.support.messages import row_id
from tests.support.outboxes import OutboxRows
from tests.support.sending import batch, ids_in, options, send

pytestmark = pytest.mark.needs("reads_json_as_documented")

#: What other senders write: without a body, or with headers that are read leniently.
ODD_HEADERS = (None, "", "{}", "[]", "null", '{"NServiceBus.MessageId":""}', '{"n":7,"b":true,"z":null}')


@pytest.fixture
def outbox(engine, queue):
    """The outbox table of the endpoint Sales beside the queue orders, both empty."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return OutboxRows(engine)


@pytest.mark.parametrize("mode", ["optimistic", "pessimistic", "none"])
def test_what_a_sink_sends_stops_no_neighbour(engine, queue, outbox, mode):
    given = options(engine, outbox=mode)
    rows = batch(
        range(7), Body=[None, b"", *[None] * 5], Headers=list(ODD_HEADERS), ReplyToAddress="Shop.Web"
    )
    assert send(given, rows) == (7, 0)
    assert [row.body for row in queue.rows()] == [b""] * 7
    found = [json.loads(row.headers) for row in queue.rows()]
    assert {type(value) for headers in found for value in headers.values()} == {str}
    assert {each["NServiceBus.ReplyToAddress"] for each in found} == {full_address(engine, "Shop.Web")}
    assert [each.items() >= {"n": "7", "b": "true"}.items() for each in found] == [False] * 6 + [True]


@pytest.mark.parametrize("mode", ["optimistic", "pessimistic"])
def test_the_outbox_knows_a_message_without_id_by_its_received_row(engine, queue, outbox, mode):
    """Its header may be missing or empty.

    The id goes along, so that the next outbox knows the message by it too.
    """
    columns = {
        "Id": [str(row_id(number)) for number in range(7)],
        "Headers": list(ODD_HEADERS),
        "MessageId": None,
    }
    rows = batch(range(7), **columns).append_column("RowVersion", pa.array(range(7), pa.int64()))
    assert send(options(engine, outbox=mode), rows) == (7, 0)
    assert ids_in(queue) == columns["Id"]
    assert outbox.message_ids() == columns["Id"]
    assert send(options(engine, outbox=mode), rows) == (0, 7)


@pytest.mark.provokes("lock timeout")  # a stage is emptied only where no session has it
@pytest.mark.parametrize("mode", ["receiveOnly", "sendsAtomicWithReceive"])
def test_a_row_without_a_body_is_passed_on_with_an_empty_one(engine, queue, mode):
    """Another sender wrote it."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    billing = engine.create_queue("billing")
    for number, text in enumerate(('{"NServiceBus.MessageId":"m"}', '{ "NServiceBus.MessageId" : "n" }')):
        queue.insert_row(id=row_id(number), headers=text, body=None)
    with forwarding(engine, queue, transactionMode=mode) as stream:
        stream.drain()
    assert (ids_in(billing), [row.body for row in billing.rows()]) == (["m", "n"], [b"", b""])
    assert queue.count() == 0
