"""What is written on messages that go out, and how it is handed to each engine."""

import base64
import hashlib
import json
import socket
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.body import content_types
from sqlqueue_spark.messages.header_json import ascii_json
from sqlqueue_spark.messages.outgoing import (
    derived_ids,
    expiring,
    milliseconds,
    new_id_texts,
    new_row_ids,
)
from sqlqueue_spark.messages.outgoing_schema import OUTGOING
from sqlqueue_spark.options import ConnectionOptions
from tests.support.sending import Outgoing, outgoing_rows

NOW = datetime(2025, 11, 20, 8, 15, 30, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    "body,said",
    [
        (None, "application/json"),
        (b"", "application/json"),
        (b'{"a":1}', "application/json"),
        (b"\xef\xbb\xbf[1]", "application/json"),
        (b"\xef\xbb\xbf <a/>", "text/xml"),
        (b"hello", "application/octet-stream"),
        (b"\xff\xfe", "application/octet-stream"),
        (b" \t\r\n", "application/json"),
        (b"\xef\xbb\xbf", "application/json"),
        (b"{ }", "application/json"),
        (b"{", "application/octet-stream"),
        (b"{a}", "application/octet-stream"),
        (b'{"a":' + b"x" * 100_000, "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"[]", "application/json"),
        (b"[ -1.5 , 2]", "application/json"),
        (b"[null]", "application/json"),
        (b"[nil]", "application/octet-stream"),
        (b"[2025-11-20 08:15:30] started", "application/octet-stream"),
        (b'"a \\" text"', "application/json"),
        (b'"' + "größe".encode() * 100 + b'"', "application/json"),
        (b'"half', "application/octet-stream"),
        (b'"said" he', "application/octet-stream"),
        (b'"two\nlines"', "application/octet-stream"),
        (b"-1.5e3 ", "application/json"),
        (b"12 High Street", "application/octet-stream"),
        (b"007", "application/octet-stream"),
        (b"true", "application/json"),
        (b"trueish", "application/octet-stream"),
        (b"1" * 1_000, "application/octet-stream"),
        (b"%PDF-1.7", "application/octet-stream"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_the_content_type_is_told_by_the_body(body, said):
    assert content_types(pa.array([b"x", body, None], pa.binary())).to_pylist() == [
        "application/octet-stream", said, "application/json",
    ]  # fmt: skip


@pytest.mark.parametrize("odd", range(125, 132))
def test_a_long_text_is_what_it_begins_as(odd):
    """Where it goes on behind what is looked at."""
    body = b'"' + b"a" * odd + b'\\""'
    assert content_types(pa.array([body])).to_pylist() == ["application/json"]


def completed(**draft):
    """The row of a message that a person sends."""
    options = ConnectionOptions(url="postgresql://h/d")
    its = queue_tables.Draft(message_type="T", **draft)
    headers = json.dumps(its.headers, ensure_ascii=False, separators=(",", ":"))
    ((rows, _),) = queue_tables.completed(options, "orders", its, [headers], [its.body])
    (row,) = rows.to_pylist()
    return Outgoing(**row)


def test_a_given_message_id_is_the_correlation_id():
    given = {"NServiceBus.MessageId": "m", "NServiceBus.TimeSent": "2025-11-20 08:15:30:123456 Z"}
    headers = json.loads(completed(headers=given).headers)
    uuid.UUID(headers.pop("NServiceBus.ConversationId"))
    assert headers == {
        "NServiceBus.MessageId": "m",
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.CorrelationId": "m",
        "NServiceBus.OriginatingMachine": socket.gethostname(),
        "NServiceBus.OriginatingEndpoint": "sqlqueue",
        "NServiceBus.ContentType": "application/json",
        "NServiceBus.EnclosedMessageTypes": "T",
        "NServiceBus.TimeSent": "2025-11-20 08:15:30:123456 Z",
    }


def test_columns_carry_what_fits_into_them():
    headers = {"NServiceBus.CorrelationId": "c" * 255, "NServiceBus.ReplyToAddress": "r" * 256}
    row = completed(headers=headers, body=b"x")
    assert row.headers.startswith(json.dumps(headers, separators=(",", ":"))[:-1] + ",")
    assert row._replace(id=b"", headers="") == Outgoing(
        id=b"", headers="", body=b"x", correlation_id="c" * 255, reply_to=None
    )
    assert milliseconds(timedelta(seconds=1.5)) == 1500


@pytest.mark.parametrize("letter", ["é", "注", "\N{GRINNING FACE}"])
def test_columns_carry_what_fits_in_bytes(letter):
    """A varchar(255) of a UTF-8 collation has room for 255 bytes,
    and an insert of more is refused with its whole chunk.
    """
    size = len(letter.encode())
    fits = letter * (255 // size)
    long = fits + letter
    rows = [
        completed(headers={"NServiceBus.CorrelationId": each, "NServiceBus.ReplyToAddress": each}, body=b"x")
        for each in (fits, long)
    ]
    assert [(row.correlation_id, row.reply_to) for row in rows] == [(fits, fits), (None, None)]
    assert [json.loads(row.headers)["NServiceBus.CorrelationId"] for row in rows] == [fits, long]


@pytest.mark.parametrize("code_page", ["cp932", "cp936", "cp949", "cp950", "cp1252", "cp1251", "cp874"])
def test_no_code_page_needs_more_bytes_than_utf_8(code_page):
    """So what fits in bytes of UTF-8 fits into a varchar of any collation."""
    letters = [chr(each) for each in range(1, 0x10000) if not 0xD800 <= each < 0xE000]
    assert [each for each in letters if len(each.encode(code_page, "replace")) > len(each.encode())] == []


def test_ascii_json_means_the_same():
    text = '{"größe":"☃ \U0001f4e6 \\/ \\u00e9"}'
    assert ascii_json(text) == r'{"gr\u00F6\u00DFe":"\u2603 \uD83D\uDCE6 \/ \u00e9"}'
    assert json.loads(ascii_json(text)) == json.loads(text)


IDS = [uuid.UUID(f"0000000{n}-0000-4000-8000-00000000000{n}").bytes for n in range(1, 4)]
ROWS = [
    Outgoing(IDS[0], '{"a":"\\/ \\" ü"}', b"\xff\x00", None, 'c"', "r", NOW),
    Outgoing(IDS[1], "NULL", None),
    Outgoing(IDS[2], "", b""),
]


def test_rows_expire_by_the_database_s_clock():
    """A time to be received counts from it."""
    rows = outgoing_rows([ROWS[1]._replace(ttl_ms=1500), ROWS[2], ROWS[0]])
    ended = [ROWS[1]._replace(expires=NOW + timedelta(seconds=1.5)), ROWS[2], ROWS[0]]
    assert expiring(rows, NOW).equals(outgoing_rows(ended))


def test_rows_become_columns_and_none_become_none():
    assert [Outgoing(**row) for row in outgoing_rows(ROWS).to_pylist()] == ROWS
    assert (outgoing_rows([]).num_rows, outgoing_rows([]).schema) == (0, OUTGOING)


def test_new_ids_are_random_uuids():
    texts = new_id_texts(1_000).to_pylist()
    made = [uuid.UUID(text) for text in texts]
    assert [str(each) for each in made] == texts
    assert {(each.version, each.variant) for each in made} == {(4, uuid.RFC_4122)}
    assert len(set(made)) == 1_000


def test_new_ids_of_rows_ascend_and_differ():
    """Two tasks may make theirs within the same millisecond."""
    before = time.time_ns() // 1_000_000
    one, other = new_row_ids(10_000).to_pylist(), new_row_ids(10_000).to_pylist()
    after = time.time_ns() // 1_000_000
    assert (one, other) == (sorted(one), sorted(other))
    assert len({*one, *other}) == 20_000
    made = [uuid.UUID(bytes=each) for each in one]
    assert {(each.version, each.variant) for each in made} == {(7, uuid.RFC_4122)}
    moments = sorted({each.int >> 80 for each in made})
    assert moments == list(range(moments[0], moments[0] + 3))  # 4,096 are counted in each
    assert before <= moments[0] <= after
    assert len({each.int & 0xFFFF_FFFF for each in made}) > 9_900  # the end is random
    assert new_row_ids(0).to_pylist() == []


def test_postgresql_gets_the_binary_stream_of_copy():
    """https://www.postgresql.org/docs/current/sql-copy.html, Binary Format."""
    null, fields = b"\xff\xff\xff\xff", b"\x00\x04"
    ids = [b"\x00\x00\x00\x10" + each for each in IDS]
    microseconds = round((NOW - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    headers = '{"a":"\\/ \\" ü"}'.encode()
    copied: Any = POSTGRESQL.bind_messages(outgoing_rows(ROWS))
    assert b"".join(copied) == (
        b"PGCOPY\n\xff\r\n\x00" + bytes(8)
        + fields + ids[0] + b"\x00\x00\x00\x08" + microseconds.to_bytes(8)
        + len(headers).to_bytes(4) + headers
        + b"\x00\x00\x00\x02\xff\x00"
        + fields + ids[1] + null + b"\x00\x00\x00\x04NULL" + null
        + fields + ids[2] + null + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x00"
        + b"\xff\xff"
    )  # fmt: skip


def test_sql_server_gets_json():
    bound: Any = SQLSERVER.bind_messages(outgoing_rows(ROWS))
    text = bound["messages"]
    assert json.loads(str(text)) == [
        [
            0,
            "00000001-0000-4000-8000-000000000001",
            "2025-11-20T08:15:30.123",
            '{"a":"\\/ \\" ü"}',
            base64.b64encode(b"\xff\x00").decode(),
            'c"',
            "r",
        ],
        [1, "00000002-0000-4000-8000-000000000002", None, "NULL", None, None, None],
        [2, "00000003-0000-4000-8000-000000000003", None, "", "", None, None],
    ]


def test_a_script_holds_values_as_literals():
    assert SQLSERVER.literal("o'c\\?") == "N'o''c\\?'"
    assert POSTGRESQL.literal("o'c?") == "'o''c?'"
    assert POSTGRESQL.literal("o'c\\") == "E'o''c\\\\'"
    table = SQLSERVER.table(Table(table="a?{b}", schema="dbo"))
    script_begin = SQLSERVER.statement("script_begin")
    assert "N'[dbo].[a?{b}]'" in script_begin.written_out({"name": SQLSERVER.literal(table)})
    with pytest.raises(KeyError, match="name"):
        script_begin.written_out({})


def samples(numbers, size, **more):
    options, ttl = ConnectionOptions(url="postgresql://h/d"), timedelta(milliseconds=3)
    parts = queue_tables.samples(options, "orders", numbers, size, ttl=ttl, **more)
    return [Outgoing(**row) for part in parts for row in part.to_pylist()]


def test_messages_of_a_load_have_the_asked_size():
    """Where their headers fit into it."""
    reply_to, began = "Shop.Web@[dbo]@[100%]", datetime.now(UTC)
    for size in (1, 600, 700, 5_000):
        batch = samples(range(7), size, reply_to=reply_to)
        sizes = {len(row.headers) + len(row.body or b"") for row in batch}
        assert sizes == {size} or (size < 700 and max(sizes) < 700)
        for row in batch:
            headers = json.loads(row.headers)
            sent = datetime.strptime(headers["NServiceBus.TimeSent"], "%Y-%m-%d %H:%M:%S:%f %z")
            assert began <= sent <= datetime.now(UTC)
            assert (
                headers["NServiceBus.MessageId"] == headers["NServiceBus.CorrelationId"] == row.correlation_id
            )
            assert json.loads(row.body or b"")["orderId"].startswith("O-")
            assert uuid.UUID(headers["NServiceBus.ConversationId"]).version == 4
            assert uuid.UUID(bytes=row.id).version == 7
            assert headers["NServiceBus.ReplyToAddress"] == row.reply_to == reply_to
            assert row.ttl_ms == 3
    assert len({row.id for row in samples(range(1000), 1, reply_to="Shop.Web")}) == 1000


def test_derived_ids_are_uuids_of_version_5():
    """They never change, or a message that goes out again would have another id."""
    namespace = uuid.UUID("b1c0a3ce-55d2-4a3e-9d3e-6f2f8e6f3a51")
    names = ['["a","r",0]', r'["\"ü/","s",12]']
    made = derived_ids(["a", '"ü/'], ["r", "s"], [0, 12])
    assert made.to_pylist() == [str(uuid.uuid5(namespace, each)) for each in names]


def test_derived_ids_are_made_where_a_policy_forbids_sha_1_for_what_must_be_secure():
    made, sha1 = derived_ids(["a"], ["r"], [0]), hashlib.sha1

    def refused(text=b"", *, usedforsecurity=True):
        if usedforsecurity:
            raise ValueError("[digital envelope routines] unsupported")
        return sha1(text, usedforsecurity=False)

    with mock.patch.object(hashlib, "sha1", refused):
        assert derived_ids(["a"], ["r"], [0]) == made


def test_no_derived_ids_are_an_empty_column():
    assert derived_ids([], [], []) == pa.array([], pa.string())
