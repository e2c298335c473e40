"""A row as a line of JSON, and back: byte for byte, and refused where it is none."""

import base64
import json
import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sqlqueue_spark.administration.message_lines import (
    NoMessage,
    StoredMessage,
    from_line,
    to_json,
    to_line,
    to_rows,
)
from sqlqueue_spark.tables.queue_admin import Message

ID = "00000000-0000-4000-8000-00000000000a"
FIELDS = (
    "which is id, correlationId, replyToAddress, recoverable, expires, headers, headersText, body, "
    "bodyBase64; with --type a line is a body"
)
#: Every text that a database can keep: no half of a character.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
HEADERS = st.one_of(
    TEXTS,
    st.dictionaries(TEXTS, TEXTS).map(json.dumps),
    st.dictionaries(TEXTS, TEXTS).map(lambda each: json.dumps(each, ensure_ascii=False, indent=1)),
    st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, st.lists).map(json.dumps),
    st.sampled_from(
        [
            "",
            " ",
            "null",
            "[]",
            "{}",
            '{"a":1}',
            '{"a":"1","a":"2"}',
            '{"a":"\\ud800"}',
            "\ufeff{}",
            '{"a":"b\\/c"}',
        ]
    ),
)
BODIES = st.one_of(
    st.binary(),
    TEXTS.map(str.encode),
    TEXTS.map(lambda text: text.encode("utf-8-sig")),
    TEXTS.map(lambda text: text.encode("utf-16")),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf{}", b"\xed\xa0\x80", b"\x00", b"\n"]),
)
MESSAGES = st.builds(
    Message,
    id=st.uuids().map(str),
    correlation_id=st.none() | TEXTS,
    reply_to_address=st.none() | TEXTS,
    recoverable=st.none() | st.booleans(),
    expires=st.none() | st.datetimes(timezones=st.just(UTC)),
    headers=st.none() | HEADERS,
    body=st.none() | BODIES,
    row_version=st.integers(-(1 << 63), (1 << 63) - 1),
    expired=st.just(False),
)
PLAIN = Message(
    id=ID,
    correlation_id=None,
    reply_to_address=None,
    recoverable=None,
    expires=None,
    headers='{"NServiceBus.MessageId":"m","a":"b\\/c"}',
    body=b'{"n":1}',
    row_version=5,
    expired=False,
)


@given(MESSAGES)
@example(PLAIN)
def test_a_row_survives_its_line(message):
    """The line is one, and has nothing that steers a terminal."""
    line = to_line(to_json(message))
    assert line.isprintable()
    assert from_line(line.encode()) == StoredMessage(
        id=uuid.UUID(message.id).bytes,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to_address,
        recoverable=message.recoverable,
        expires=message.expires,
        headers=message.headers,
        body=message.body,
    )


def test_a_line_tells_people_and_programs():
    assert to_json(PLAIN) == {
        "rowVersion": 5,
        "id": ID,
        "messageId": "m",
        "correlationId": None,
        "replyToAddress": None,
        "recoverable": None,
        "expires": None,
        "expired": False,
        "headers": {"NServiceBus.MessageId": "m", "a": "b/c"},
        "headersText": '{"NServiceBus.MessageId":"m","a":"b\\/c"}',
        "body": '{"n":1}',
    }


@pytest.mark.parametrize(
    "body,shown",
    [
        (None, {"body": None}),
        (b"", {"body": ""}),
        (b"\xff", {"bodyBase64": "/w=="}),
        (b"\xef\xbb\xbf{}", {"body": "{}", "bodyBase64": "77u/e30="}),
    ],
)
def test_a_body_that_its_text_does_not_tell_is_in_base64_too(body, shown):
    as_json = to_json(Message(**{**vars(PLAIN), "body": body}))
    assert {name: value for name, value in as_json.items() if name.startswith("body")} == shown


def test_a_line_written_by_hand_needs_headers_and_body():
    """Headers are written as .NET senders write them; the row gets an id of its own."""
    message = from_line('{"headers": {"a": "b/c ü"}, "body": "{}"}'.encode())
    assert message == StoredMessage(None, None, None, None, None, '{"a":"b\\/c ü"}', b"{}")
    rows = to_rows([message, message], new_ids=False)
    assert len({*rows["id"].to_pylist()}) == 2
    assert [rows[name].to_pylist() for name in ("headers", "body", "recoverable", "expires")] == [
        ['{"a":"b\\/c ü"}'] * 2,
        [b"{}"] * 2,
        [None] * 2,
        [None] * 2,
    ]


def test_new_ids_take_the_place_of_the_old():
    message = from_line(to_line(to_json(PLAIN)).encode())
    assert to_rows([message], new_ids=False)["id"].to_pylist() == [uuid.UUID(ID).bytes]
    assert to_rows([message], new_ids=True)["id"].to_pylist() != [uuid.UUID(ID).bytes]


def test_what_errors_discard_kept_is_a_message():
    line = {
        "queue": "error@[public]@[shop]",
        "rowVersion": 7,
        "id": ID,
        "correlationId": None,
        "replyToAddress": "a",
        "expires": "2026-01-31T12:00:00.000001Z",
        "headers": "no json",
        "bodyBase64": None,
        "discarded": "2026-01-31T12:00:00Z",
    }
    assert from_line(json.dumps(line).encode()) == StoredMessage(
        id=uuid.UUID(ID).bytes,
        correlation_id=None,
        reply_to="a",
        recoverable=None,
        expires=datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC),
        headers="no json",
        body=None,
    )


def test_a_time_may_have_another_zone():
    line = b'{"headers": {}, "body": "", "expires": "2026-01-31T13:00:00+01:00"}'
    assert from_line(line).expires == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "line,why",
    [
        (b"", "it is no JSON (Expecting value at character 1); with --type a line is a body"),
        (b"hello", "it is no JSON (Expecting value at character 1); with --type a line is a body"),
        (
            b'{"headers": {}, "body": ',
            "it is no JSON (Expecting value at character 25); with --type a line is a body",
        ),
        (b'{"headers": {}, "body": "\xff"}', "byte 26 is no UTF-8"),
        (b"[" * 100_000, "it is no JSON that can be read"),
        (b"1" * 5_000, "it is no JSON that can be read"),
        (b"[]", "it is no JSON object; with --type a line is a body"),
        (b'{"headers": {}, "bdy": ""}', f'"bdy" is nothing that a message has, {FIELDS}'),
        (b'{"headers": {}, "\\u001b": ""}', f'"\\u001b" is nothing that a message has, {FIELDS}'),
        (b'{"a":1}', f'"a" is nothing that a message has, {FIELDS}'),
        (b'{"body": ""}', "it has neither headers nor headersText"),
        (b'{"headers": {}}', "it has neither body nor bodyBase64"),
        (b'{"headers": 1, "body": ""}', "headers is 1, and no object of texts"),
        (b'{"headers": {"a": 1}, "body": ""}', 'the value of the header "a" is 1, and no text'),
        (
            b'{"headers": {"a": "\\ud800"}, "body": ""}',
            'the header "a" holds half of a character (a lone surrogate)',
        ),
        (b'{"headers": {}, "body": "\\udc00"}', "body holds half of a character (a lone surrogate)"),
        (b'{"headers": {}, "body": 5}', "body is 5, and neither a text nor null"),
        (b'{"headers": {}, "bodyBase64": "a"}', "bodyBase64 is no Base64"),
        (b'{"headers": {}, "bodyBase64": "\xc3\xa4"}', "bodyBase64 is no Base64"),
        (b'{"headers": {}, "body": "", "id": "7"}', 'its id "7" is no UUID'),
        (
            b'{"headers": {}, "body": "", "id": "{00000000-0000-4000-8000-00000000000a}"}',
            'its id "{00000000-0000-4000-8000-00000000000a}" is no UUID',
        ),
        (
            b'{"headers": {}, "body": "", "recoverable": 1}',
            "recoverable is 1, and none of true, false and null",
        ),
        (
            b'{"headers": {}, "body": "", "expires": "tomorrow"}',
            'expires is "tomorrow", and no time like 2026-01-31T12:00:00Z',
        ),
        (
            b'{"headers": {}, "body": "", "expires": "2026-01-31T12:00:00"}',
            'expires is "2026-01-31T12:00:00", and no time like 2026-01-31T12:00:00Z',
        ),
        (
            b'{"headers": {}, "body": "", "expires": "0001-01-01T00:00:00+14:00"}',
            'expires is "0001-01-01T00:00:00+14:00", and no time like 2026-01-31T12:00:00Z',
        ),
        (
            b'{"headers": {}, "body": "", "expires": null, "expired": true}',
            "it has expired, at a time that the line does not tell",
        ),
        (
            b'{"headers": {}, "body": "", "correlationId": ["' + b"x" * 100 + b'"]}',
            'correlationId is ["' + "x" * 37 + "…, and neither a text nor null",
        ),
    ],
)
def test_a_line_that_is_no_message_is_refused(line, why):
    with pytest.raises(NoMessage) as refused:
        from_line(line)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "changed,why",
    [
        (
            {"headers": {"a": "changed"}},
            "headers and headersText differ; leave out the one that you did not change",
        ),
        ({"headersText": "{}"}, "headers and headersText differ; leave out the one that you did not change"),
        ({"body": "changed"}, "body and bodyBase64 differ; leave out the one that you did not change"),
        ({"body": None}, "body and bodyBase64 differ; leave out the one that you did not change"),
        (
            {"bodyBase64": base64.b64encode(b"x").decode()},
            "body and bodyBase64 differ; leave out the one that you did not change",
        ),
    ],
)
def test_a_line_of_which_one_part_was_changed_is_refused(changed, why):
    """Else the other part would be sent."""
    line = to_json(Message(**{**vars(PLAIN), "body": b"\xef\xbb\xbf{}"}))
    with pytest.raises(NoMessage) as refused:
        from_line(json.dumps({**line, **changed}).encode())
    assert str(refused.value) == why
