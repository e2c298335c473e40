"""Odd messages are received like any other."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from tests.support.driver import streaming
from tests.support.messages import row_ids

ODD_HEADERS = [
    "",
    " ",
    "\n\t",
    "null",
    "{",
    "not JSON",
    "[]",
    '{"a": 1}',
    '{"a": null}',
    "\ufeff{}",
    "ü\u2028😀",
]


def bodies(stream):
    return [(message["Headers"], message["Body"]) for message in stream.messages()]


def test_odd_headers_are_passed_on_as_they_are(engine, queue):
    """They hold up no other message."""
    queue.insert(1)
    for number, headers in enumerate(ODD_HEADERS):
        queue.insert_row(id=UUID(int=number), headers=headers, body=b"odd")
    queue.insert(1, start=1)
    with streaming(engine, queue, maxMessagesPerTrigger="1") as stream:  # so that each is the oldest once
        stream.drain()
        assert bodies(stream)[1:-1] == [(headers, b"odd") for headers in ODD_HEADERS]
        assert (len(stream.sink), queue.count()) == (len(ODD_HEADERS) + 2, 0)


def test_odd_bodies_are_passed_on_as_they_are(engine, queue):
    odd = [None, b"", b"\x00", b"\xef\xbb\xbf{}", bytes(range(256))]
    for number, body in enumerate(odd):
        queue.insert_row(id=UUID(int=number), headers="{}", body=body)
    with streaming(engine, queue) as stream:
        stream.drain()
        assert (bodies(stream), queue.count()) == ([("{}", body) for body in odd], 0)


def test_null_headers_are_no_headers(postgresql):
    """An odd table may have them."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} ALTER headers DROP NOT NULL")
    queue.insert(1)
    queue.insert_row(id=UUID(int=1), headers=None, body=b"a")
    queue.insert_row(id=UUID(int=2), headers=None, body=None)
    queue.insert(1, start=1)
    with streaming(postgresql, queue, maxMessagesPerTrigger="2") as stream:
        assert stream.construct()
        stream.crash()  # so that the rows are locked again, too
        stream.drain()
        assert stream.batches() == [[1, 2], [3, 4]]
        assert bodies(stream)[1:3] == [(None, b"a"), (None, None)]
        assert queue.count() == 0


@pytest.mark.parametrize(
    "written, seen",
    [
        ("infinity", None),
        ("9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
)
def test_a_message_that_never_expires_is_received(postgresql, written, seen):
    """Or not before the year 10000."""
    queue = postgresql.create_queue()
    queue.insert(3)
    queue.execute(f"UPDATE {{table}} SET expires = '{written}' WHERE seq = 2")
    with streaming(postgresql, queue) as stream:
        stream.drain()
        assert [message["Expires"] for message in stream.messages()] == [None, seen, None]
        assert (stream.ids(), queue.count()) == (row_ids(range(3)), 0)
