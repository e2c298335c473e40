"""The columns of a frame are checked by name and type before anything is sent."""

import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.frame_columns import FrameColumns

NAMES = (
    "Body, Headers, MessageId, Destination, Id, CorrelationId, ReplyToAddress, TimeToBeReceived, Expires, "
    "DeliverAt, DelayDeliveryFor, EventType, Queue, RowVersion"
)
FEW = {"Body": "string", "MessageId": "string"}


def sink(**more):
    given = {"url": "postgresql://h/d", "endpoint": "Sales", "queue": "Billing", **more}
    return SinkOptions.parse({name: value for name, value in given.items() if value is not None})


def refusal(columns, **more):
    with pytest.raises(ConfigurationError) as caught:
        FrameColumns.of(list(columns.items()), sink(**more))
    return str(caught.value)


@pytest.mark.parametrize("body", ["binary", "string", "void"])
@pytest.mark.parametrize("headers", ["string", "map<string,string>", "void"])
@pytest.mark.parametrize(
    "end",
    [
        ("Expires", "timestamp"),
        ("TimeToBeReceived", "interval day to second"),
        ("TimeToBeReceived", "interval day"),
        ("TimeToBeReceived", "interval hour to minute"),
        ("TimeToBeReceived", "interval second"),
    ],
)
def test_a_column_is_understood_in_all_its_types(body, headers, end):
    texts = ("MessageId", "Destination", "Id", "CorrelationId", "ReplyToAddress")
    columns = {"Body": body, "Headers": headers, **dict.fromkeys(texts, "string"), end[0]: end[1]}
    found = FrameColumns.of(list(columns.items()), sink())
    assert found == FrameColumns(names={name: name for name in columns})


def test_columns_are_found_whatever_their_case():
    found = FrameColumns.of([("BODY", "string"), ("messageid", "string")], sink())
    assert found == FrameColumns(names={"Body": "BODY", "MessageId": "messageid"})


@pytest.mark.parametrize(
    "given, said",
    [
        ("Bodi", "A message has no column 'Bodi'; did you mean Body?"),
        ("header", "A message has no column 'header'; did you mean Headers?"),
        ("message_id", "A message has no column 'message_id'; did you mean MessageId?"),
        ("amount", f"A message has no column 'amount'; drop it, or rename it to one of {NAMES}."),
    ],
)
def test_an_unknown_column_is_named_with_the_nearest(given, said):
    assert refusal({**FEW, given: "string"}) == said


@pytest.mark.parametrize(
    "name, type_, wanted",
    [
        ("Body", "struct<a:int>", "binary or string"),
        ("Headers", "map<string,int>", "string or map<string,string>"),
        ("MessageId", "bigint", "string"),
        ("Destination", "binary", "string"),
        ("Id", "binary", "string"),
        ("TimeToBeReceived", "int", "interval day to second"),
        ("TimeToBeReceived", "interval year to month", "interval day to second"),
        ("TimeToBeReceived", "interval month", "interval day to second"),
        ("Expires", "timestamp_ntz", "timestamp"),
        ("Expires", "date", "timestamp"),
        ("RowVersion", "int", "bigint"),
    ],
)
def test_a_column_of_a_wrong_type_is_refused(name, type_, wanted):
    """With the types that it may have."""
    assert refusal({**FEW, name: type_}) == f"The column {name} is {type_}; cast it to {wanted}."


def test_a_column_that_comes_twice_is_refused():
    assert refusal({**FEW, "body": "binary"}) == (
        "There are two columns Body and body, which mean the same; drop one."
    )


def test_without_a_body_there_is_nothing_to_send():
    assert refusal({"MessageId": "string"}) == (
        "There is no column Body to send; name the payload so: df.select(…, to_json(…).alias('Body'))."
    )


def test_two_ends_contradict_each_other():
    both = {"TimeToBeReceived": "interval day to second", "Expires": "timestamp"}
    assert refusal({**FEW, **both}) == "Both TimeToBeReceived and Expires are given; drop one of them."


NO_ID = (
    "An outbox needs message ids, and there is neither a column MessageId nor Headers; "
    "make ids of key columns, withColumn('MessageId', functions.deterministic_id('order', 'line')), "
    "or set outbox to none."
)


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_an_outbox_needs_message_ids(outbox):
    assert refusal({"Body": "string"}, outbox=outbox) == NO_ID
    FrameColumns.of([("Body", "string"), ("Headers", "string")], sink(outbox=outbox))


@pytest.mark.parametrize(
    "options", [{"outbox": "none"}, {"transactionMode": "sendsAtomicWithReceive", "stream": "s"}]
)
def test_without_an_outbox_a_body_is_enough(options):
    assert FrameColumns.of([("Body", "string")], sink(**options)) == FrameColumns(names={"Body": "Body"})


def test_an_outbox_knows_a_received_row_by_its_id():
    """And no other row: without a RowVersion, an Id is not enough."""
    received = {"Body": "string", "Id": "string", "RowVersion": "bigint", "Queue": "string"}
    found = FrameColumns.of(list(received.items()), sink())
    assert (found, found.received) == (FrameColumns(names={name: name for name in received}), True)
    assert refusal({"Body": "string", "Id": "string", "Queue": "string"}) == NO_ID


def test_an_option_must_say_where_to_send():
    assert refusal(FEW, queue=None) == (
        "Nothing says where to send: give the option queue, or the column Destination with an address for "
        "each row, or publish rows by the column EventType."
    )
    FrameColumns.of([*FEW.items(), ("Destination", "string")], sink(queue=None))


# -- outcomes -------------------------------------------------------------------------------------

RECEIVED = {"Queue": "string", "RowVersion": "bigint", "Id": "string", "Headers": "string", "Body": "binary"}
OUTGOING = "array<struct<Destination:string,Headers:map<string,string>,Body:binary>>"
FAILURE = "struct<ExceptionType:string,Data:map<string,string>,timeoffailure:timestamp>"
ERRORS = {"errorQueue": "error", "queue": None}


def test_outcomes_are_understood_with_the_columns_of_the_source():
    columns = {
        **RECEIVED,
        "Recoverable": "boolean",
        "Expires": "timestamp",
        "outgoing": OUTGOING,
        "Failure": FAILURE,
    }
    found = FrameColumns.of(list(columns.items()), sink(**ERRORS))
    assert found.outcomes
    assert found.names["Outgoing"] == "outgoing"
    assert found.outgoing == {"Destination": "Destination", "Headers": "Headers", "Body": "Body"}
    assert found.failure == {
        "ExceptionType": "ExceptionType",
        "Data": "Data",
        "TimeOfFailure": "timeoffailure",
    }


@pytest.mark.parametrize("column", ["Outgoing", "Failure"])
def test_a_column_of_nothing_may_stand_for_each(column):
    columns = {**RECEIVED, column: "void"}
    assert FrameColumns.of(list(columns.items()), sink(errorQueue="error")).outcomes


@pytest.mark.parametrize(
    "given, said",
    [
        (
            {"Queue": None},
            "has no column Queue; keep the columns of the source, and give Queue the address of its queue.",
        ),
        ({"Id": None}, "has no column Id;"),
        ({"Body": None}, "has no column Body;"),
        ({"Outgoing": "string"}, "The column Outgoing is string; cast it to array<struct<…>>."),
        (
            {"Outgoing": "array<struct<Bodi:binary>>"},
            "The column Outgoing has no field 'Bodi'; did you mean Body?",
        ),
        ({"Outgoing": "array<struct<Destination:string>>"}, "The column Outgoing has no field Body"),
        ({"Outgoing": "array<struct<Body:int>>"}, "The column Body is int; cast it to binary or string."),
        ({"Outgoing": "array<struct<Body:binary>>"}, "Nothing says where to send"),
        ({"Failure": "struct<Message:string>"}, "The column Failure has no field ExceptionType"),
        ({"Failure": "struct<ExceptionType:string,Extra:int>"}, "The column Failure has no field 'Extra'"),
        ({"Destination": "string"}, "The frame has the columns Outgoing and Destination;"),
    ],
)
def test_outcomes_that_cannot_be_are_refused(given, said):
    columns = {**RECEIVED, "Outgoing": OUTGOING, "Failure": FAILURE, **given}
    assert said in refusal({name: type_ for name, type_ in columns.items() if type_}, **ERRORS)


def test_outcomes_need_an_error_queue():
    assert "there is no option errorQueue" in refusal({**RECEIVED, "Outgoing": OUTGOING})
