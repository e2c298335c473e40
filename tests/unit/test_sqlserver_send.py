"""What is sent to SQL Server, as far as it is told without one: what is bound to the statements that insert."""

import json

import pyarrow as pa
import pytest

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send import Destinations, Sender, stage
from tests.support.recording import Answer, Recorder
from tests.support.sending import composed
from tests.support.statements import DATABASE, IDENTITY, STORAGE, TABLE_COLUMNS

FOUND = [STORAGE, DATABASE, IDENTITY, TABLE_COLUMNS, Answer("INSERT INTO", changed=1)]
HEADERS = json.dumps({"NServiceBus.MessageId": "m", "count": 7, "on": True})
ROW = "00000000-0000-4000-8000-00000000000a"


@pytest.fixture
def recorder(library, tmp_path):
    return Recorder(library, tmp_path, FOUND)


def frame(**columns):
    """One row."""
    types = {"Body": pa.binary(), "RowVersion": pa.int64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    return pa.RecordBatch.from_pylist([columns], schema)


def inserted(recorder):
    """What was bound to the last INSERT: headers, body, correlation id and reply address of its first message."""
    *_, last = [each for each in recorder.executions() if each.text.startswith("INSERT INTO")]
    messages = json.loads(next(each.value for each in last.bound if str(each.value).startswith("[[")))
    _, _, _, headers, body, correlation_id, reply_to, *_ = messages[0]
    return json.loads(headers), body, correlation_id, reply_to


@pytest.mark.parametrize("path", ["a queue", "the stage"])
@pytest.mark.parametrize("received", [{}, {"RowVersion": 7, "Id": ROW}], ids=["new", "received"])
def test_what_is_sent_stops_no_neighbour(recorder, path, received):
    """The body is no NULL, headers are an object of strings, and the reply address names schema and catalog."""
    given = SinkOptions.parse({"url": recorder.url, "queue": "orders", "stream": "billing", "outbox": "none"})
    destinations = Destinations(given)
    row = frame(Body=None, Headers=HEADERS, ReplyToAddress="Shop.Web", **received)
    chunks = composed(given, row, destinations=destinations)
    if path == "a queue":
        with Sender(destinations) as sender:
            assert sender.send(chunks).sent == 1
    else:
        assert stage(destinations, chunks).rows == 1
    headers, *columns = inserted(recorder)
    assert {type(each) for each in headers.values()} == {str}
    assert headers.items() >= {
        "count": "7", "on": "true", "NServiceBus.ReplyToAddress": "Shop.Web@[dbo]@[shop]",
    }.items()  # fmt: skip
    assert columns == ["", "m", "Shop.Web@[dbo]@[shop]"]


@pytest.mark.parametrize(
    "given, full",
    [
        ("Sales@s", "Sales@[s]@[shop]"),
        ("Sales@[s]@[other]", "Sales@[s]@[other]"),
        ("my]table@[my]]schema]", "my]table@[my]]schema]@[shop]"),
    ],
)
def test_a_reply_address_keeps_the_schema_and_the_catalog_that_it_has(recorder, given, full):
    options = SinkOptions.parse({"url": recorder.url, "queue": "orders", "outbox": "none"})
    destinations = Destinations(options)
    with Sender(destinations) as sender:
        sender.send(composed(options, frame(Body=b"", ReplyToAddress=given), destinations=destinations))
    headers, *_, reply_to = inserted(recorder)
    assert headers["NServiceBus.ReplyToAddress"] == reply_to == full


def test_a_message_of_the_command_line_stops_no_neighbour(recorder):
    options = ConnectionOptions.parse({"url": recorder.url})
    draft = queue_tables.Draft(message_type="T", headers={"NServiceBus.ReplyToAddress": "Shop.Web"})
    queue_tables.send(options, "orders", draft)
    headers, body, _, reply_to = inserted(recorder)
    assert (headers["NServiceBus.ReplyToAddress"], body, reply_to) == (
        "Shop.Web@[dbo]@[shop]",
        "",
        "Shop.Web@[dbo]@[shop]",
    )


def test_a_trial_message_says_in_full_where_to_reply(recorder):
    queue_tables.send_load(ConnectionOptions.parse({"url": recorder.url}), "orders", count=1)
    headers, *_, reply_to = inserted(recorder)
    assert headers["NServiceBus.ReplyToAddress"] == reply_to == "Shop.Web@[dbo]@[shop]"
