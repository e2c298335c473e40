"""Rows become messages: headers byte for byte as the .NET senders write them,
and none that is there is overwritten.
"""

import json
import socket
import tracemalloc
import uuid
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from unittest import mock

import pyarrow as pa
import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.messages.message import parse_time
from sqlqueue_spark.messages.outgoing import format_time_span, parse_time_span
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.compose.message_builder import MessageBuilder
from sqlqueue_spark.send.compose.outcome_builder import builder_of
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.error_and_audit_rows import ErrorAndAuditRows
from sqlqueue_spark.tables import database_facts
from tests.support import messages as sent
from tests.support.outcomes import composed_outcomes, frame, outcome, outgoing
from tests.support.sending import Outgoing

N = "NServiceBus."
MAP = pa.map_(pa.string(), pa.string())
TYPES = {
    "Body": pa.binary(),
    "Headers": pa.string(),
    "Expires": pa.timestamp("us", tz="America/New_York"),
    "TimeToBeReceived": pa.duration("us"),
    "RowVersion": pa.int64(),
}


class Message(NamedTuple):
    """One message that a row became."""

    message_id: str
    destination: str
    row: Outgoing


def compose(*rows, types=None, **more):
    """What becomes of rows, given as dictionaries with the same columns."""
    given = {"url": "postgresql://h/d", "endpoint": "Sales", "queue": "Billing", **more}
    options = SinkOptions.parse({name: value for name, value in given.items() if value is not None})
    schema = pa.schema([(name, {**TYPES, **(types or {})}.get(name, pa.string())) for name in rows[0]])
    batch = pa.RecordBatch.from_pylist(list(rows), schema)
    (made,) = builder_of(
        FrameColumns(names={each: each for each in rows[0]}), Places(options, options)
    ).compose([batch])
    chunk = made.sends
    addresses = chunk.addresses.to_pylist()
    written = chunk.rows(range(len(chunk)))
    assert written.schema == OUTGOING
    return [
        Message(chunk.ids[at], addresses[at], Outgoing(**row)) for at, row in enumerate(written.to_pylist())
    ]


def headers_of(*rows, **more):
    return [json.loads(each.row.headers) for each in compose(*rows, **more)]


def refusal(*rows, **more):
    with pytest.raises(ConfigurationError) as caught:
        compose(*rows, **more)
    return str(caught.value)


# -- headers --------------------------------------------------------------------------------------


def test_a_bare_body_gets_what_a_sender_writes():
    before = datetime.now(UTC)
    (message,) = compose({"Body": b'{"a":1}'}, outbox="none", messageType="Sales.OrderPlaced, Sales")
    after = datetime.now(UTC)
    headers = json.loads(message.row.headers)
    time_sent = headers.pop(N + "TimeSent")
    assert len(time_sent) == 28
    sent_at = parse_time(time_sent)
    assert sent_at is not None
    assert before <= sent_at <= after
    conversation = uuid.UUID(headers.pop(N + "ConversationId"))
    new = uuid.UUID(message.message_id)
    assert (conversation.version, new.version, uuid.UUID(bytes=message.row.id).version) == (4, 4, 7)
    assert conversation != new
    assert headers == {
        N + "MessageId": str(new),
        N + "MessageIntent": "Send",
        N + "CorrelationId": str(new),
        N + "OriginatingMachine": socket.gethostname(),
        N + "OriginatingEndpoint": "Sales",
        N + "ContentType": "application/json",
        N + "EnclosedMessageTypes": "Sales.OrderPlaced, Sales",
    }
    assert message.destination == "Billing"
    assert message.row._replace(id=b"", headers="") == Outgoing(
        id=b"", headers="", body=b'{"a":1}', correlation_id=str(new)
    )


def test_each_row_has_ids_of_its_own():
    made = compose(*[{"Body": b"x"}] * 100, outbox="none")
    conversations = {json.loads(each.row.headers)[N + "ConversationId"] for each in made}
    ids = {each.message_id for each in made} | {str(uuid.UUID(bytes=each.row.id)) for each in made}
    assert len(ids | conversations) == 300


@pytest.mark.parametrize("as_map", [True, False], ids=["map", "JSON"])
def test_no_header_that_is_there_is_overwritten(as_map):
    text = sent.headers(7)
    given = list(json.loads(text).items()) if as_map else text
    row = {
        "Body": b"<a/>",
        "Headers": given,
        "CorrelationId": "other",
        "ReplyToAddress": "Other",
        "TimeToBeReceived": timedelta(minutes=1),
    }
    (message,) = compose(row, messageType="Another, Type", types={"Headers": MAP} if as_map else None)
    assert json.loads(message.row.headers) == json.loads(text) | {N + "TimeToBeReceived": "00:01:00"}
    assert message.message_id == sent.message_id(7)
    assert message.row._replace(id=b"", headers="") == Outgoing(
        id=b"",
        headers="",
        body=b"<a/>",
        ttl_ms=60_000,
        correlation_id=sent.message_id(7),
        reply_to="Shop.Web@[dbo]@[shop]",
    )


#: Each member as it must stand, byte for byte: the slash and what lies beyond the BMP escaped,
#: everything else raw.
MEMBERS = {
    N + "MessageId": '"NServiceBus.MessageId":"m"',
    N + "MessageIntent": '"NServiceBus.MessageIntent":"Publish"',
    N + "ConversationId": '"NServiceBus.ConversationId":"c"',
    N + "CorrelationId": '"NServiceBus.CorrelationId":"k"',
    N + "OriginatingMachine": '"NServiceBus.OriginatingMachine":"WEB-07"',
    N + "OriginatingEndpoint": '"NServiceBus.OriginatingEndpoint":"größe"',
    N + "ContentType": '"NServiceBus.ContentType":"application\\/json"',
    N + "TimeSent": '"NServiceBus.TimeSent":"2025-11-20 08:15:30:123456 Z"',
    "注文/é": '"注文\\/é":"\\uD83D\\uDE00 \\u0001\\t\\"\\\\ \u200b\u007f\uffee"',
    "": '"":""',
}
VALUES = {
    name: json.loads("{" + member + "}")[name] for name, member in MEMBERS.items()
}  # read by Python's own parser, which unescapes


@pytest.mark.parametrize("form", ["map", "JSON", "spaced JSON", "ASCII JSON"])
def test_headers_are_written_byte_for_byte(form):
    """In whatever form they are given."""
    given = {
        "map": list(VALUES.items()),
        "JSON": "{" + ",".join(MEMBERS.values()) + "}",
        "spaced JSON": "\ufeff { " + " , ".join(MEMBERS.values()).replace('":"', '" : "') + " } ",
        "ASCII JSON": json.dumps(VALUES),
    }[form]
    (message,) = compose({"Body": b"", "Headers": given}, types={"Headers": MAP} if form == "map" else None)
    text = message.row.headers
    assert text == "{" + ",".join(MEMBERS[name] for name in json.loads(text)) + "}"
    assert json.loads(text) == VALUES


def test_rows_of_many_shapes_get_what_they_lack():
    """Twenty senders whose headers have other names in another order;
    among them what .NET would not have written.
    """
    written = []
    for number in range(200):
        own = {f"{number % 20}.{each}": f"v/{number}" for each in range(number % 20)}
        headers = (
            {**own, N + "MessageId": f"id/{number}"}
            if number % 2
            else {N + "MessageId": f"id/{number}", **own}
        )
        text = json.dumps(headers, separators=(",", ":")).replace("/", "\\/")
        written.append((headers, f" {text}" if number % 7 == 0 else text))
    made = compose(*({"Body": b"{}", "Headers": text} for _, text in written))
    for (headers, _), message in zip(written, made, strict=True):
        out = message.row.headers
        added = json.loads(out).keys() - headers.keys()
        assert message.message_id == headers[N + "MessageId"]
        assert json.loads(out) == json.loads(out) | headers
        always = (
            *(
                "MessageIntent",
                "CorrelationId",
                "ConversationId",
                "OriginatingMachine",
                "OriginatingEndpoint",
            ),
            *("ContentType", "TimeSent"),
        )
        assert added == {N + each for each in always}
        assert out.count('"') == 4 * len(json.loads(out))


@pytest.mark.parametrize("names", [[f"k{n}" for n in range(30_000)], [f"{n}" * 5_000 for n in range(9)]])
def test_headers_of_many_or_long_names_are_read_like_others(names):
    """No expression is made of them: RE2 would refuse it."""
    headers = {**dict.fromkeys(names, "v"), N + "MessageId": "m"}
    text = json.dumps(headers, separators=(",", ":"))
    (odd, plain) = compose(
        {"Body": b"{}", "Headers": text}, {"Body": b"{}", "Headers": '{"a":"b","NServiceBus.MessageId":"n"}'}
    )
    assert (odd.message_id, json.loads(odd.row.headers).items() >= headers.items()) == ("m", True)
    assert json.loads(plain.row.headers)["a"] == "b"


@pytest.mark.parametrize(
    "body, said",
    [
        (None, "application/json"),
        (b"\xef\xbb\xbf{}", "application/json"),
        (b"<a/>", "text/xml"),
        (b"\xff", "application/octet-stream"),
    ],
)
def test_the_content_type_is_told_by_the_body(body, said):
    """Which stays as it is."""
    (message,) = compose({"Body": body, "MessageId": "m"})
    assert (json.loads(message.row.headers)[N + "ContentType"], message.row.body) == (said, body)


def test_a_large_body_is_neither_parsed_nor_copied():
    """64 MB of JSON, which its parser would make some 800 MB of."""
    numbers = b"[" + b"1," * (32 << 20) + b"1]"
    batch = pa.RecordBatch.from_pydict({"Body": [numbers], "MessageId": ["m"]}, pa.schema(
        [("Body", pa.binary()), ("MessageId", pa.string())]))  # fmt: skip
    options = SinkOptions.parse({"url": "postgresql://h/d", "endpoint": "Sales", "queue": "Billing"})
    columns = FrameColumns(names={"Body": "Body", "MessageId": "MessageId"})
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        (chunk,) = MessageBuilder(columns=columns, options=options, places=Places(options, options)).compose(
            [batch]
        )
        rows = chunk.sends.rows([0])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert json.loads(rows["headers"][0].as_py())[N + "ContentType"] == "application/json"
    assert rows["body"].buffers()[2].address == batch["Body"].buffers()[2].address
    assert most < 1 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_a_body_of_text_goes_out_in_utf_8():
    made = compose(
        {"Body": "größe 😀", "MessageId": "a"}, {"Body": None, "MessageId": "b"}, types={"Body": pa.string()}
    )
    assert [each.row.body for each in made] == ["größe 😀".encode(), None]


def test_null_or_empty_headers_are_no_headers():
    nothing = (None, "", " ", "{}", "[]", "null", '{"a":null}')
    rows = [{"Body": b"x", "MessageId": "m", "Headers": given} for given in nothing]
    names = {frozenset(headers) for headers in headers_of(*rows)}
    ours = ("MessageId", "MessageIntent", "CorrelationId", "ConversationId", "OriginatingMachine",
            "OriginatingEndpoint", "ContentType", "TimeSent")  # fmt: skip
    assert names == {frozenset(N + each for each in ours)}
    of_map = headers_of({"Body": b"x", "MessageId": "m", "Headers": None}, types={"Headers": MAP})
    assert {frozenset(headers) for headers in of_map} == names


def test_a_null_header_of_a_map_is_not_there():
    row = {"Body": b"x", "MessageId": "m", "Headers": [("a", None), (N + "MessageIntent", None), ("b", "")]}
    (headers,) = headers_of(row, types={"Headers": MAP})
    assert (headers.get("a"), headers[N + "MessageIntent"], headers["b"]) == (None, "Send", "")


@pytest.mark.parametrize(
    "given", [None, "", "{}", "[]", "null", '{"a":null}', '{"a":7,"b":true}', '{"a" : "b"}']
)
@pytest.mark.parametrize("row", [{}, {"RowVersion": 7}], ids=["new", "received"])
def test_headers_are_always_a_json_object_of_strings(given, row):
    (headers,) = headers_of({"Body": b"x", "MessageId": "m", "Headers": given, **row})
    assert {type(each) for each in headers.values()} == {str}
    expected = {'{"a":7,"b":true}': {"a": "7", "b": "true"}, '{"a" : "b"}': {"a": "b"}}.get(given, {})
    assert {name: value for name, value in headers.items() if len(name) == 1} == expected


@pytest.mark.parametrize("poison", ["not JSON", "[1]", '{"a":{}}', '{"a":[]}', "true", r'{"a":"\ud800"}'])
def test_poison_headers_are_refused_with_the_remedy(poison):
    assert refusal({"Body": b"x", "MessageId": "m", "Headers": poison}) == (
        f"The headers of a row are not a JSON object of strings: {poison!r}; filter these rows, or give them "
        "headers of their own. It is the row with MessageId m."
    )


def test_poison_headers_are_shown_in_part():
    assert f"{'x' * 80!r}; filter" in refusal({"Body": b"x", "MessageId": "m", "Headers": "x" * 5_000})


# -- ids, addresses -------------------------------------------------------------------------------


def test_a_message_id_is_the_column_or_the_header():
    own = json.dumps({N + "MessageId": "h"})
    rows = [
        {"Body": b"x", "MessageId": "c", "Headers": None},
        {"Body": b"x", "MessageId": None, "Headers": own},
        {"Body": b"x", "MessageId": "", "Headers": own},
        {"Body": b"x", "MessageId": "h", "Headers": own},
    ]
    made = compose(*rows)
    assert [each.message_id for each in made] == ["c", "h", "h", "h"]
    assert [json.loads(each.row.headers)[N + "MessageId"] for each in made] == ["c", "h", "h", "h"]
    assert [json.loads(each.row.headers)[N + "CorrelationId"] for each in made] == ["c", "h", "h", "h"]


@pytest.mark.parametrize("outbox", ["optimistic", "none"])
def test_two_ids_for_one_row_are_refused(outbox):
    """One in the column, another in the header."""
    row = {"Body": b"x", "MessageId": "c", "Headers": json.dumps({N + "MessageId": "h"})}
    assert refusal(row, outbox=outbox) == (
        "A row has the MessageId 'c' and the header NServiceBus.MessageId 'h', "
        "and its outbox can only know it by one of them; drop the column, or take the header out of Headers "
        "where this is a new message. It is the row with MessageId c."
    )


@pytest.mark.parametrize(
    "row", [{"MessageId": None}, {"MessageId": ""}, {"Headers": None}, {"Headers": "{}"}]
)
def test_an_outbox_needs_a_message_id_in_each_row(row):
    assert refusal({"Body": b"x", **row}) == (
        "A row has no message id, neither in the column MessageId nor in the header "
        "NServiceBus.MessageId, so an outbox cannot tell whether it was sent; make ids of key columns with "
        "functions.deterministic_id('order', 'line'), or set outbox to none."
    )


@pytest.mark.parametrize(
    "given, options, full",
    [
        ("Sales@[s]", {}, '"s"."Sales"'),
        ("Interop.Source", {}, '"public"."Interop.Source"'),
        ('"Interop.Source"', {}, '"public"."Interop.Source"'),
        ('"s"."Interop.""Source"', {}, '"s"."Interop.""Source"'),
        ("Sales@WEB-07", {"legacyAddresses": "true", "defaultSchema": "sales"}, '"sales"."Sales"'),
        ("Sales@[s]@[elsewhere]", {"queue.Sales.schema": "own"}, '"own"."Sales"'),
    ],
)
def test_columns_become_headers_and_columns(given, options, full):
    """CorrelationId and ReplyToAddress, the latter in the full form of PostgreSQL's transport."""
    for received in ({}, {"RowVersion": 7}):
        row = {"Body": b"x", "MessageId": "m", "CorrelationId": "k", "ReplyToAddress": given, **received}
        (message,) = compose(row, **options)
        headers = json.loads(message.row.headers)
        assert (headers[N + "CorrelationId"], headers[N + "ReplyToAddress"]) == ("k", full)
        assert (message.row.correlation_id, message.row.reply_to) == ("k", full)


def test_a_reply_address_that_cannot_be_read_is_refused():
    """Where the row was received it stays as it is: it does not stop the message of another sender."""
    row = {"Body": b"x", "MessageId": "m", "ReplyToAddress": "@nowhere"}
    assert refusal({**row, "ReplyToAddress": "Sales"}, row) == (
        "The ReplyToAddress of a row cannot be read: The queue address '@nowhere' has no table name; write "
        "table@[schema]@[catalog]. It is the row with MessageId m."
    )
    (message,) = compose({**row, "RowVersion": 7})
    assert json.loads(message.row.headers)[N + "ReplyToAddress"] == message.row.reply_to == "@nowhere"


def test_headers_become_columns():
    """CorrelationId and ReplyToAddress, where they fit."""
    given = json.dumps({N + "CorrelationId": "k", N + "ReplyToAddress": "r" * 256})
    (message,) = compose({"Body": b"x", "MessageId": "m", "Headers": given})
    assert (message.row.correlation_id, message.row.reply_to) == ("k", None)
    assert json.loads(message.row.headers)[N + "ReplyToAddress"] == "r" * 256


@pytest.mark.parametrize("odd, fits", [("\0", False), ("a\0b", False), ("é" * 127, True), ("é" * 128, False)])
def test_what_does_not_fit_is_in_the_header_only(odd, fits):
    made = compose({"Body": b"x", "MessageId": odd}, {"Body": b"x", "MessageId": "ordinary"})
    assert [each.row.correlation_id for each in made] == [odd if fits else None, "ordinary"]
    assert json.loads(made[0].row.headers)[N + "CorrelationId"] == odd
    (own,) = compose({"Body": b"x", "MessageId": "m", "Headers": json.dumps({N + "CorrelationId": odd})})
    assert own.row.correlation_id == (odd if fits else None)


def test_the_column_id_gives_a_row_its_id():
    """Where it is NULL, the row gets a new one."""
    text = "0A000000-0000-4000-8000-00000000000f"
    made = compose({"Body": b"x", "MessageId": "a", "Id": text}, {"Body": b"x", "MessageId": "b", "Id": None})
    assert made[0].row.id == uuid.UUID(text).bytes
    assert uuid.UUID(bytes=made[1].row.id).version == 7


@pytest.mark.parametrize("odd", ["7", "{0a000000-0000-4000-8000-00000000000f}", "x" * 36])
def test_an_id_that_is_no_uuid_is_refused(odd):
    assert refusal({"Body": b"x", "MessageId": "m", "Id": odd}) == (
        f"The Id {odd!r} of a row is no UUID; leave the column out (each row then gets a new one) and put "
        f"ids of your own into MessageId. It is the row with MessageId m, Id {odd}."
    )


ROW = "00000000-0000-4000-8000-00000000000a"


def test_a_received_id_becomes_the_message_id():
    """Where the message has no other; and never the Id of the new row."""
    rows = [
        {"Body": b"x", "RowVersion": 7, "Id": ROW, "MessageId": own, "Headers": headers}
        for own, headers in (
            ("c", None),
            (None, json.dumps({N + "MessageId": "h"})),
            (None, "{}"),
            ("", '{"NServiceBus.MessageId":""}'),
            (None, '{"NServiceBus.MessageId" : "spaced"}'),
            (None, '{"other":"\\"NServiceBus.MessageId\\":\\"no\\""}'),
        )
    ]
    made = compose(*rows)
    assert [each.message_id for each in made] == ["c", "h", ROW, ROW, "spaced", ROW]
    assert [uuid.UUID(bytes=each.row.id).version for each in made] == [7] * 6
    assert {each.row.headers.count("RowVersion") for each in made} == {0}
    made = compose(*({"Body": b"x", "RowVersion": each, "Id": ROW, "Queue": "orders"} for each in (7, 8)))
    assert [json.loads(each.row.headers)[N + "MessageId"] for each in made] == [ROW, ROW]


#: As a .NET endpoint on PostgreSQL writes them, with the quotation marks of an address and
#: what must be escaped.
DOTNET = (
    '{"custom-é\\/\\ud834\\udd1e":"v\\"\\\\ \\n\\/é\\ud834\\udd1e","NServiceBus.MessageId":"6e80c4ef",'
    '"NServiceBus.ReplyToAddress":"\\"public\\".\\"Interop.Recorder\\""}'
)
#: Headers of another sender, which writes JSON in a way of its own.
SPACED = '{ "NServiceBus.MessageId" : "\\u0068/b" ,\n"a":"1", "a" : "2"}'
HOPS = {
    "NServiceBus.SqlServer.ForwardDestination": '"public"."orders"',
    "NServiceBus.Retries": "1",
    "NServiceBus.Retries.Timestamp": "2026-11-22 16:44:45:433183 Z",
    "$.store-and-forward.destination": "a/b",
    "$.store-and-forward.eventtype": "T",
}
KEPT = {
    "NServiceBus.FailedQ": "orders",
    "NServiceBus.DeliverAt": "2036-11-19 16:44:45:433202 Z",
    "NServiceBus.ExceptionInfo.Message": 'said {"NServiceBus.Retries":"2"},"NServiceBus.Retries":"3"',
    "ServiceControl.Retry.UniqueMessageId": "u",
    "ServiceControl.Retry.AcknowledgementQueue": "error",
}


@pytest.mark.parametrize("text", [DOTNET, DOTNET.split(",", 1)[1].join(("{", "")), SPACED, sent.headers(7)])
def test_headers_of_a_received_row_stay_byte_for_byte(text):
    """What they lack is added behind them."""
    (message,) = compose({"Body": b"x", "RowVersion": 7, "Id": ROW, "Headers": text}, messageType="T")
    complete = message.row.headers == text
    assert complete if text == sent.headers(7) else message.row.headers.startswith(text[:-1] + ",")


@pytest.mark.parametrize("quick", [True, False], ids=["a shape", "row by row"])
@pytest.mark.parametrize("order", range(len(HOPS) + 1))
def test_headers_of_one_hop_end_with_it(quick, order):
    """Wherever they stand; those of a failed message and of an unacknowledged retry stay,
    and so do all of a new message.
    """
    kept = KEPT if quick else {**KEPT, "größe": "\n"}
    if quick:
        kept = {name: value for name, value in kept.items() if "Exception" not in name}
    members = [
        f'"{name}":{json.dumps(value, ensure_ascii=False)}'.replace("/", "\\/")
        for name, value in kept.items()
    ]
    hops = [f'"{name}":{json.dumps(value)}'.replace("/", "\\/") for name, value in HOPS.items()]
    mixed = "{" + ",".join([*hops[:order], *members, *hops[order:]]) + "}"
    row = {"Body": b"x", "MessageId": "m", "Headers": mixed}
    (passed,) = compose({**row, "RowVersion": 7, "Queue": "orders"})
    assert passed.row.headers.startswith("{" + ",".join(members) + ',"NServiceBus.MessageIntent":"Send"')
    assert HOPS.keys().isdisjoint(json.loads(passed.row.headers))
    (new,) = compose(row)
    stored = {name: value for name, value in HOPS.items() if name.startswith("$.store-and-forward.")}
    written = json.loads(new.row.headers)
    assert written.items() >= {**stored, **kept}.items()  # a new message may be one for that queue
    assert (HOPS.keys() - stored.keys()).isdisjoint(written)


@pytest.mark.parametrize("text", [json.dumps(HOPS), json.dumps(HOPS, separators=(",", ":"))])
def test_a_row_may_have_no_other_headers_than_those_of_a_hop(text):
    (passed,) = compose({"Body": b"x", "MessageId": "m", "Headers": text, "RowVersion": 7})
    assert passed.row.headers.startswith('{"NServiceBus.MessageIntent":"Send"')


@pytest.mark.parametrize(
    "text", ['{"NServiceBus.MessageId":"","a":"b"}', '{ "a" : "b", "NServiceBus.MessageId" : "" }']
)
@pytest.mark.parametrize("more", [{}, {"RowVersion": 7, "Id": ROW}], ids=["new", "received"])
def test_an_empty_message_id_is_none(text, more):
    """The next reader would else take the id of its own row for it."""
    (message,) = compose({"Body": b"x", "MessageId": None if more else "m", "Headers": text, **more})
    expected = ROW if more else "m"
    assert (message.message_id, json.loads(message.row.headers)[N + "MessageId"]) == (expected, expected)
    assert message.row.headers.count("MessageId") == 1


def test_a_message_id_may_be_a_number():
    (message,) = compose(
        {"Body": b"x", "RowVersion": 7, "Id": ROW, "Headers": '{"NServiceBus.MessageId":42}'}
    )
    assert (message.message_id, json.loads(message.row.headers)[N + "MessageId"]) == ("42", "42")


def in_transit(to, queue):
    row = {
        **RECEIVED,
        "Headers": json.dumps({"NServiceBus.SqlServer.ForwardDestination": to}),
        "Queue": queue,
    }
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize(
    "to, queue",
    [("orders", "orders@[public]"), ('"public"."orders"', "orders"), ("", "orders"), ("Shipping", None)],
)  # fmt: skip
def test_a_delayed_message_that_has_arrived_is_passed_on(to, queue):
    """So is one of which the frame does not tell where it was received,
    for the source moves on what is on its way.
    """
    row = in_transit(to, queue)
    (message,) = compose(row)
    assert "ForwardDestination" not in message.row.headers


@pytest.mark.parametrize("to", ["Shipping", '"other"."orders"', '"public"."Orders"', "@nowhere"])
def test_a_delayed_message_on_its_way_is_not_passed_on(to):
    row = in_transit(to, "orders@[public]")
    assert refusal({**row, "Headers": "{}", "RowVersion": 6}, row) == (
        f"A row is a delayed message on its way to {to!r}, not one for the queue 'orders@[public]', "
        "so it is not passed on; see why it cannot be moved there (is there that queue, and may this login "
        "insert into it?), set the option errorQueue, and these rows go there, or filter them by "
        "the header NServiceBus.SqlServer.ForwardDestination. It is the row with RowVersion 7, Id "
        f"{ROW}, Queue orders@[public]."
    )


RECEIVED = {
    "Body": b"x",
    "MessageId": "m",
    "Headers": "{}",
    "Destination": "Billing",
    "Id": ROW,
    "RowVersion": 7,
}


@pytest.mark.parametrize(
    "odd, said",
    [
        ({"Headers": "poison"}, "The headers of the message are not a JSON object of strings; "),
        ({"Headers": '{"NServiceBus.MessageId":"other"}'}, "A row has the MessageId 'm' and the header "),
        ({"Destination": None}, "A row's Destination is NULL and there is no option queue; "),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_refusal_names_the_received_row(odd, said, at):
    rows = [{**RECEIVED, "RowVersion": number, "Queue": "orders"} for number in range(3)]
    rows[at] |= odd
    found = refusal(*rows, queue=None)
    assert found.startswith(said)
    assert found.endswith(f". It is the row with RowVersion {at}, Id {ROW}, Queue orders.")


@pytest.mark.parametrize(
    "known, said",
    [
        ({"MessageId": "b"}, "MessageId b"),
        ({"Headers": '{"NServiceBus.MessageId":"b"}'}, "MessageId b"),
        ({"Headers": [("NServiceBus.MessageId", "b")]}, "MessageId b"),
        ({"MessageId": "b", "Id": ROW}, f"MessageId b, Id {ROW}"),
        ({"MessageId": "b" * 1_000_000}, f"MessageId {'b' * 200}…"),
        ({"MessageId": "postgresql://me:hunter2@host/shop"}, "MessageId …"),
    ],
)
@pytest.mark.parametrize("odd", [{"Destination": None}, {"ReplyToAddress": "@"}])
def test_a_refusal_names_the_row_that_was_not_received_by_its_message_id(known, said, odd):
    """Also one that shows only when rows are made."""
    others = dict.fromkeys(known) | {"Body": b"x", "Destination": "Billing", "ReplyToAddress": None}
    types = {"Headers": pa.map_(pa.string(), pa.string())} if isinstance(known.get("Headers"), list) else {}
    found = refusal(others, {**others, **known, **odd}, types=types, outbox="none", queue=None)
    assert found.endswith(f" It is the row with {said}.")


def test_a_refused_row_is_named_among_copies_of_others():
    """A transform may have made several messages of one received row."""
    rows = [{**RECEIVED, "RowVersion": number, "Queue": "orders"} for number in (1, 2, 1, 1, 3)]
    rows[1]["Destination"] = None
    assert refusal(*rows, queue=None).endswith(f". It is the row with RowVersion 2, Id {ROW}, Queue orders.")


def test_a_row_is_named_among_all_of_its_chunk():
    """Of three batches of Spark's, whose rows have headers of several shapes and go out together."""
    names = [name for name in RECEIVED if name != "Destination"]
    shapes = ["{}", '{"a":"1"}', '{ "b" : "2" }']
    rows = [{**RECEIVED, "RowVersion": number, "Headers": shapes[number % 3]} for number in range(30)]
    rows[17]["Headers"] = "poison"
    schema = pa.schema([(name, TYPES.get(name, pa.string())) for name in names])
    batches = pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=10)
    options = SinkOptions.parse({"url": "postgresql://h/d", "endpoint": "Sales", "queue": "Billing"})
    composer = builder_of(FrameColumns(names={name: name for name in names}), Places(options, options))
    with pytest.raises(ConfigurationError, match=rf"It is the row with RowVersion 17, Id {ROW}\.$"):
        list(composer.compose(batches))


def test_retries_and_rows_that_wait_for_a_database_are_made_together():
    names = ["Queue", "RowVersion", "Id", "Headers", "Body"]
    rows = [{**RECEIVED, "Queue": "orders", "RowVersion": number} for number in range(4)]
    schema = pa.schema([(name, TYPES.get(name, pa.string())) for name in names])
    options = SinkOptions.parse(
        {"url": "postgresql://h/d", "endpoint": "Sales", "queue": "Billing", "giveUpAfter": "1h"}
    )
    places = Places(options, options)
    builder = builder_of(FrameColumns(names={name: name for name in names}), places)
    (made,) = builder.compose([pa.RecordBatch.from_pylist(rows, schema)])
    waits = Failure(exception_type="E", waits_for="sink.url")
    failed = {
        0: Failure(exception_type="E", retry_after=timedelta()),
        1: waits,
        2: Failure(exception_type="E", retry_after=timedelta(seconds=5)),
        3: waits,
    }
    chunk = AddressedChunk(**vars(made), addressed=()).failing(failed)
    now = datetime(2026, 11, 27, tzinfo=UTC)
    with mock.patch.object(database_facts, "now", return_value=now):
        later = ErrorAndAuditRows(mock.Mock(places=places), chunk, str).later_rows(range(4)).to_pylist()
    end, step = now + timedelta(hours=1), timedelta(microseconds=1)
    assert [each["delay_ms"] for each in later] == [0, None, 5_000, None]
    assert [each["due"] for each in later] == [None, end + step, None, end + 3 * step]
    assert ["WaitsFor" in each["headers"] for each in later] == [False, True, False, True]


def test_a_destination_wins_over_the_option_queue():
    rows = [{"Body": b"x", "MessageId": "m", "Destination": each} for each in ("Shipping", None, "")]
    assert [each.destination for each in compose(*rows)] == ["Shipping", "Billing", "Billing"]


@pytest.mark.parametrize("nowhere", [None, ""])
def test_a_row_that_goes_nowhere_is_refused(nowhere):
    assert refusal({"Body": b"x", "MessageId": "m", "Destination": nowhere}, queue=None) == (
        "A row's Destination is NULL and there is no option queue; give one, or filter these rows. It is the "
        "row with MessageId m."
    )


# -- times ----------------------------------------------------------------------------------------


def test_a_time_to_be_received_is_header_and_end():
    rows = [
        {"Body": b"x", "MessageId": "m", "TimeToBeReceived": each}
        for each in (timedelta(days=1, milliseconds=1), None)
    ]
    made = compose(*rows)
    assert [json.loads(each.row.headers).get(N + "TimeToBeReceived") for each in made] == [
        "1.00:00:00.0010000",
        None,
    ]
    assert [(each.row.ttl_ms, each.row.expires) for each in made] == [(86_400_001, None), (None, None)]


def test_a_time_beyond_all_dates_means_never():
    row = {"Body": b"x", "MessageId": "m", "TimeToBeReceived": timedelta(days=10_675_199)}
    (message,) = compose(row)
    assert (message.row.ttl_ms, json.loads(message.row.headers)[N + "TimeToBeReceived"]) == (
        None,
        "10675199.00:00:00",
    )


@pytest.mark.parametrize(
    "text, ttl_ms",
    [("00:10:00", 600_000), ("10675199.02:48:05.4775807", None), ("soon", None), ("", None)],
)
def test_a_header_that_is_a_time_sets_the_end(text, ttl_ms):
    given = json.dumps({N + "TimeToBeReceived": text})
    (message,) = compose({"Body": b"x", "MessageId": "m", "Headers": given})
    assert (message.row.ttl_ms, json.loads(message.row.headers)[N + "TimeToBeReceived"]) == (ttl_ms, text)


def test_the_column_wins_and_the_header_stays():
    """Of two times to be received."""
    given = json.dumps({N + "TimeToBeReceived": "00:10:00"})
    row = {"Body": b"x", "MessageId": "m", "Headers": given, "TimeToBeReceived": timedelta(seconds=1)}
    (message,) = compose(row)
    assert (message.row.ttl_ms, json.loads(message.row.headers)[N + "TimeToBeReceived"]) == (
        1_000,
        "00:10:00",
    )


def test_the_column_expires_sets_the_end():
    """NULL there means never, whatever the header says."""
    moment = datetime(2026, 7, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    given = json.dumps({N + "TimeToBeReceived": "00:10:00"})
    rows = [{"Body": b"x", "MessageId": "m", "Headers": given, "Expires": each} for each in (moment, None)]
    assert [(each.row.ttl_ms, each.row.expires) for each in compose(*rows)] == [(None, moment), (None, None)]


@pytest.mark.parametrize(
    "span, text",
    [
        (timedelta(0), "00:00:00"),
        (timedelta(seconds=1), "00:00:01"),
        (timedelta(hours=23, minutes=59, seconds=59), "23:59:59"),
        (timedelta(days=1), "1.00:00:00"),
        (timedelta(days=365, microseconds=1), "365.00:00:00.0000010"),
        (timedelta(milliseconds=1500), "00:00:01.5000000"),
    ],
)
def test_a_length_of_time_is_written_as_by_dotnet(span, text):
    """And read again."""
    assert format_time_span(span) == text
    assert parse_time_span(text) == span


@pytest.mark.parametrize(
    "text, span",
    [("00:00:01.5", timedelta(seconds=1.5)), ("1.00:00:00.0000019", timedelta(days=1, microseconds=1))],
)
def test_a_length_of_time_has_any_number_of_digits(text, span):
    assert parse_time_span(text) == span


@pytest.mark.parametrize(
    "text",
    [None, "", "1", "1:00:00", "-00:00:01", "00:00:01.", "00:00:01.12345678", "365001.00:00:00"],
)
def test_what_is_no_length_of_time_is_none(text):
    assert parse_time_span(text) is None


@pytest.mark.parametrize(
    "headers,more,untyped",
    [
        ([None, "", "{}", '{"a":"b"}'], {}, 4),
        (['{"NServiceBus.EnclosedMessageTypes":"Sales.Placed"}', '{"a":1}'], {}, 1),
        (['{"NServiceBus.ControlMessage":"True"}', '{"a":"b","NServiceBus.ControlMessage":true}'], {}, 0),
        ([None, '{"a":"b"}'], {"messageType": "Sales.Placed, Sales"}, 0),
    ],
)
def test_messages_without_a_type_are_counted(headers, more, untyped):
    """But for those that endpoints exchange among themselves."""
    options = SinkOptions.parse({"url": "postgresql://h/d", "queue": "Billing", "outbox": "none", **more})
    batch = pa.RecordBatch.from_pydict({"Headers": pa.array(headers), "Body": [b"{}"] * len(headers)})
    builder = builder_of(FrameColumns(names={n: n for n in ("Headers", "Body")}), Places(options, options))
    (chunk,) = builder.compose([batch])
    assert chunk.sends.untyped == untyped


def failing(*sends):
    """The failures of received messages, each of which sends one of these,
    and how often the messages were made.
    """
    given = SinkOptions.parse({"url": "postgresql://h/d", "endpoint": "Sales", "errorQueue": "error"})
    rows = [outcome(number, each) for number, each in enumerate(sends)]
    made = MessageBuilder.composed
    with mock.patch.object(MessageBuilder, "composed", autospec=True, side_effect=made) as composing:
        (chunk,) = composed_outcomes(given, Destinations(given), frame(rows))
    return chunk.failed, composing.call_count


def named(number, **more):
    """A message with a header that no other one has."""
    return {**outgoing("billing", 0, **more), "Headers": [(f"x{number}", "")]}


CENTURIES = timedelta(days=9000 * 365)


def test_all_messages_that_cannot_be_made_fail_at_once_whatever_headers_they_have():
    """Else a chunk is made again for each kind of headers."""
    failed, made = failing(*(named(number, DelayDeliveryFor=CENTURIES) for number in range(50)), named(50))
    assert (sorted(failed), made) == ([*range(50)], 2)


def test_messages_that_cannot_be_made_for_two_reasons_fail_each_for_its_own():
    late: dict[str, object] = {"DelayDeliveryFor": CENTURIES}
    unread: dict[str, object] = {"ReplyToAddress": "a@[b"}
    failed, _ = failing(*(named(number, **more) for number, more in enumerate((late, unread, late, unread))))
    told = {
        at: (each.message.partition(" that ")[0][:43], each.inner_exception_type)
        for at, each in failed.items()
    }
    of_time = ("A row has a time of delivery", None)
    of_address = ("The ReplyToAddress of a row cannot be read:", "sqlqueue_spark.errors.ConfigurationError")
    assert told == {0: of_time, 1: of_address, 2: of_time, 3: of_address}


def test_a_row_whose_answers_are_a_column_of_nothing_fails():
    """The option queue is no answer: nothing says what became of the message."""
    options = SinkOptions.parse(
        {"url": "postgresql://h/d", "endpoint": "Sales", "queue": "Billing", "errorQueue": "error"}
    )
    row = {**RECEIVED, "Queue": "orders", "Outgoing": None}
    row.pop("Destination")
    schema = pa.schema([(name, {**TYPES, "Outgoing": pa.null()}.get(name, pa.string())) for name in row])
    places = Places(options, options)
    builder = builder_of(FrameColumns(names={name: name for name in row}), places)
    (chunk,) = builder.compose([pa.RecordBatch.from_pylist([row], schema)])
    assert [(at, failure.message.partition(";")[0]) for at, failure in chunk.failed.items()] == [
        (0, "Outgoing and Failure of the message are both NULL, so it was not handled")
    ]
