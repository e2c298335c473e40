"""Headers and times, byte for byte as the .NET senders write them."""

import json
from datetime import UTC, datetime, timedelta, timezone
from unittest import mock

import pytest

from sqlqueue_spark.messages import header_json
from sqlqueue_spark.messages.header_json import format_headers, parse_headers
from sqlqueue_spark.messages.message import format_time, parse_time
from sqlqueue_spark.spark.readers import SCHEMA


@pytest.mark.parametrize("text", [None, "", " ", "\r\n\t ", "null", " null ", "[]", "[ ]", "\ufeff[]"])
def test_no_headers_are_no_poison(text):
    assert parse_headers(text) == {}


@pytest.mark.parametrize(
    "text, headers",
    [
        ("{}", {}),
        ('{"a":"b"}', {"a": "b"}),
        (' { "a" : "b" } ', {"a": "b"}),
        ('\ufeff{"a":"b"}', {"a": "b"}),
        ('{"a":"x\\/y"}', {"a": "x/y"}),
        ('{"a":"ü\\u00fc\\ud83d\\ude00"}', {"a": "üü😀"}),
        ('{"":""}', {"": ""}),
        ('{"a":"1","a":"2"}', {"a": "2"}),
        (
            '{"a":7,"b":-0.50,"c":1E+3,"d":true,"e":false}',
            {"a": "7", "b": "-0.50", "c": "1E+3", "d": "true", "e": "false"},
        ),
        ('{"a":null,"b":"null"}', {"b": "null"}),
        ('{"a":123456789012345678901234567890}', {"a": "123456789012345678901234567890"}),
    ],
)
def test_headers_are_a_json_object_of_texts(text, headers):
    """Numbers and booleans are texts to .NET endpoints too."""
    assert parse_headers(text) == headers


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "[null]",
        "nullnull",
        '"a"',
        '""',
        "7",
        "true",
        '{"a":NaN}',
        '{"a":{}}',
        '{"a":1,"b":[]}',
        '{"a":["b"]}',
        "{'a':'b'}",
        "<a/>",
        "NaN",
        r'{"a":"half a character \udc00"}',
        r'{"\ud83d":""}',
        r'{"\ud83d":1}',
    ],
)
def test_anything_else_is_poison(text):
    assert parse_headers(text) is None


def test_headers_nested_beyond_reason_are_poison():
    assert parse_headers("[" * 100_000) is None


def test_headers_that_begin_and_end_with_a_brace_are_decoded_without_a_look_for_blanks_around_them():
    """All headers of .NET do, and to look takes a quarter of the time."""
    with mock.patch.object(header_json, "_DECODER", wraps=header_json._DECODER) as decoder:
        assert [parse_headers(text) for text in ('{"a":"b"}', ' {"a":"b"}', '{"a":"b"} ')] == [{"a": "b"}] * 3
    assert decoder.decode.call_args_list == [mock.call(' {"a":"b"}'), mock.call('{"a":"b"} ')]


@pytest.mark.parametrize(
    "headers, text",
    [
        ({}, "{}"),
        ({"a": "b", "c": "d"}, '{"a":"b","c":"d"}'),
        ({"a": "x/y"}, '{"a":"x\\/y"}'),
        ({"ü": "é中"}, '{"ü":"é中"}'),
        ({"a": "😀"}, '{"a":"\\uD83D\\uDE00"}'),
        ({"a": 'q"\\\n\x01'}, '{"a":"q\\"\\\\\\n\\u0001"}'),
        ({"a": "\x1f \\u00e9 \\\x1f"}, '{"a":"\\u001F \\\\u00e9 \\\\\\u001F"}'),
    ],
)
def test_headers_are_written_as_by_dotnet_senders(headers, text):
    assert format_headers(headers) == text
    assert json.loads(text) == headers
    assert parse_headers(text) == headers


@pytest.mark.parametrize(
    "moment, text",
    [
        (datetime(2024, 2, 29, 23, 59, 58, 123456, tzinfo=UTC), "2024-02-29 23:59:58:123456 Z"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "2024-01-02 03:04:05:000000 Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01 00:00:00:000000 Z"),
        (
            datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            "2023-12-31 19:30:00:000000 Z",
        ),
    ],
)
def test_times_have_28_characters_and_are_utc(moment, text):
    assert (format_time(moment), len(text)) == (text, 28)
    assert parse_time(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "yesterday",
        "2024-01-02T03:04:05Z",
        "2024-01-02 03:04:05:000000",
        "2024-13-01 00:00:00:000000 Z",
    ],
)
def test_what_is_no_such_time_is_none(text):
    assert parse_time(text) is None


def test_the_columns_are_those_of_the_contract():
    assert SCHEMA.simpleString() == (
        "struct<Id:string,CorrelationId:string,ReplyToAddress:string,Recoverable:boolean,Expires:timestamp,"
        "Headers:string,Body:binary,RowVersion:bigint>"
    )
