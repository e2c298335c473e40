"""What we put into an error queue, ServiceControl can read, whatever the message,
its failure or its address holds.
"""

import json
from datetime import datetime, timedelta, timezone

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.messages.servicecontrol import Ingestion, Verdict, ingestion
from sqlqueue_spark.options import ConnectionOptions
from tests.conformance.test_poison import forward, rows
from tests.support.messages import body, headers, message_id, row_id
from tests.support.outcomes import failure, options, outcome, outgoing, settle

pytestmark = pytest.mark.needs("reads_json_as_documented")

MESSAGE_ID, FAILED_QUEUE, RAW = "NServiceBus.MessageId", "NServiceBus.FailedQ", "sqlqueue.RawHeaders"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
EXCEPTION = "NServiceBus.ExceptionInfo."
TAKEN = Ingestion(Verdict.TAKEN)

#: Headers of messages that .NET endpoints could read, but ServiceControl not;
#: each with the id that the failed message has.
HOSTILE = {
    "an id of 500 characters": ({MESSAGE_ID: "x" * 500}, str(row_id(1))),
    "an id of 150 astral characters": ({MESSAGE_ID: "\U0001f600" * 150}, "\U0001f600" * 150),
    "an id with a NUL": ({MESSAGE_ID: "a\0b"}, "ab"),
    "a conversation of 500 characters": ({"NServiceBus.ConversationId": "c" * 500}, message_id(1)),
    "an endpoint of 500 characters": ({"NServiceBus.ProcessingEndpoint": "p" * 500}, message_id(1)),
    "a time in another form": ({"NServiceBus.TimeSent": "2025-11-20T08:15:30+01:00"}, message_id(1)),
    "a time of failure in another form": ({TIME_OF_FAILURE: "yesterday"}, message_id(1)),
    "a retry's id that is no GUID": ({"ServiceControl.Retry.UniqueMessageId": "7"}, message_id(1)),
    "a NUL": ({"a\0b": "c\0d"}, message_id(1)),
    "a lone surrogate": ({"half": "\ud83d"}, str(row_id(1))),
    "3 MB": ({"long": "h" * (3 << 20)}, message_id(1)),
}  # fmt: skip
#: Addresses that no sender can reach.
NOWHERE = {
    "600 characters": "x" * 600,
    "a NUL": "a\0b",
    "a quotation mark": 'a"b',
    "too many parts": "a@b@c@d" * 200,
    "a schema of 600 characters": "x@[" + "y" * 600 + "]",
    "astral characters": "\U0001f600" * 300,
}


@pytest.fixture
def queues(engine, queue):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return {name: engine.create_queue(name) for name in ("billing", "error")}


def told(error):
    """The headers of the one row of the error queue, which ServiceControl must take."""
    (row,) = error.rows()
    assert (ingestion(row.headers, unreadable_body=row.body is None), row.expires) == (TAKEN, None)
    read = json.loads(row.headers)
    assert not any("\0" in text for member in read.items() for text in member)
    return row, read


@pytest.mark.parametrize("wrong, id_", HOSTILE.values(), ids=list(HOSTILE))
def test_a_failed_message_with_hostile_headers_is_taken(engine, queues, wrong, id_):
    """And its headers as they were go back where it is put back."""
    text = json.dumps({**json.loads(headers(1)), **wrong})
    settle(options(engine), outcome(1, fails=failure(), Headers=text))
    row, read = told(queues["error"])
    assert (read[MESSAGE_ID], row.body) == (id_, body(1))
    assert read.get(RAW, text) == text


def test_a_hostile_failure_is_taken(engine, queues):
    """With a body of 16 MB, or none."""
    hostile = failure(
        "shop.Wrong" * 100 + "\0",
        "m\0" * 20_000,
        StackTrace="s\0" * 100_000,
        Data=[("k\0" * 600, "v\0" * 100_000), ("", "e"), *((f"k{number}", "v") for number in range(500))],
    )
    large = b"\0\xff" * (8 << 20)
    settle(options(engine), outcome(1, fails=hostile, Body=large))
    row, read = told(queues["error"])
    assert row.body == large
    assert (len(read[f"{EXCEPTION}Message"]), len(read[f"{EXCEPTION}StackTrace"])) == (8_192, 32_768)
    assert sum(name.startswith(f"{EXCEPTION}Data.") for name in read) == 50


def test_a_message_without_a_body_fails_with_an_empty_one(engine, queues):
    settle(options(engine), outcome(1, fails=failure(), Body=None))
    row, _ = told(queues["error"])
    assert row.body == b""


@pytest.mark.parametrize("text", ["no JSON", "{", '{"a":1,}', '{"a":"b"} x', r'{"a":"\udfff"}'])
def test_what_cannot_be_read_is_taken(engine, queues, text):
    settle(options(engine), outcome(1, Headers=text))
    _, read = told(queues["error"])
    assert (read[RAW], read[MESSAGE_ID]) == (text, str(row_id(1)))


@pytest.mark.parametrize("to", NOWHERE.values(), ids=list(NOWHERE))
def test_a_message_to_a_hostile_address_is_taken(engine, queues, to):
    """One that a frame sends, and one that sends it as its answer."""
    assert forward(options(engine, queue="billing"), rows([1, 2], Destination=["billing", to])) == (1, 0, 1)
    told(queues["error"])
    queues["error"].take()
    assert settle(options(engine), outcome(3, outgoing(to, 4)), outcome(5, outgoing("billing", 6))) == (
        1,
        0,
        1,
    )
    told(queues["error"])
    assert queues["billing"].count() == 2


def test_the_time_of_a_failure_is_told_in_utc(engine, queues):
    """Spark hands times over in the time zone of its session, here Asia/Tokyo."""
    moment = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=9)))
    settle(options(engine), outcome(1, fails=failure(TimeOfFailure=moment)))
    _, read = told(queues["error"])
    assert read[TIME_OF_FAILURE] == "2025-12-31 16:30:00:000000 Z"
