"""Times of expiry that no other system knows: a queue with one of them is looked at and
drained as any other.
"""

import json

import pytest

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import NO_TRANSACTION, RECEIVE_ONLY, SourceOptions
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.reading.peek import plan_peek
from tests.command_line.test_cli import said
from tests.support.driver import streaming
from tests.support.messages import row_ids

LATER = ("infinity", "10000-01-01", "20000-06-01 12:00", "294276-12-31")
OVER = ("-infinity", "0044-03-15 BC")
LAST = "9999-12-31 23:59:59.999999"


@pytest.fixture
def odd(postgresql):
    queue = postgresql.create_queue()
    queue.insert(1 + len(LATER) + len(OVER) + 1)
    for number, expires in enumerate((*LATER, *OVER, LAST), 2):
        queue.execute(f"UPDATE {{table}} SET expires = '{expires}' WHERE seq = {number}")
    return queue


def test_peek_shows_every_row(postgresql, odd):
    """No type outside the database can hold that time."""
    shown = [json.loads(line) for line in said(postgresql, "peek", "orders", "--json").splitlines()]
    assert [(each["rowVersion"], each["expires"], each["expired"]) for each in shown] == [
        (1, None, False),
        *((number, None, False) for number in (2, 3, 4, 5)),
        *((number, None, True) for number in (6, 7)),
        (8, "9999-12-31T23:59:59.999999Z", False),
    ]
    assert len(said(postgresql, "peek", "orders").splitlines()) == 1 + 8
    assert json.loads(said(postgresql, "length", "orders", "--json"))["expired"] == 2


def test_spark_peeks_and_drains_every_row(postgresql, odd):
    options = SourceOptions.parse({"url": postgresql.url, "queue": "orders"})
    live = [0, 1, 2, 3, 4, 7]
    reader = SliceReader(Target.of(options))
    peeked = [row for part in plan_peek(options) for batch in reader.peek(part) for row in batch.to_pylist()]
    assert [row["Id"] for row in peeked] == [str(each) for each in row_ids(live)]
    with streaming(postgresql, odd) as stream:
        stream.drain()
        assert (stream.ids(), odd.count()) == (row_ids(live), 0)


@pytest.mark.parametrize("mode", [RECEIVE_ONLY, NO_TRANSACTION])
def test_every_message_in_transit_is_moved_on(postgresql, odd, mode):
    """Where workers take rows, also one that has expired: only the take would judge that."""
    billing = postgresql.create_queue("billing")
    text = json.dumps({FORWARD_DESTINATION: '"public"."billing"'})
    postgresql.execute(f"UPDATE orders SET headers = '{text}'")
    with streaming(postgresql, odd, transactionMode=mode) as stream:
        stream.drain()
        assert (stream.ids(), odd.count()) == ([], 0)
    over = ["0001-01-01 00:00:00"] * len(OVER) if mode == NO_TRANSACTION else []
    moved = postgresql.fetch("SELECT expires::text FROM billing ORDER BY expires")
    assert moved == [*((each,) for each in (*over, LAST)), *[(None,)] * (1 + len(LATER))]
    assert billing.count() == len(moved)


def test_every_failed_message_is_put_back(postgresql, odd):
    postgresql.create_queue("again")
    said(postgresql, "errors", "retry", "orders", "--to", "again", "--yes")
    assert postgresql.fetch("SELECT count(*), count(expires) FROM again") == [(8, 0)]


def test_every_failed_message_is_discarded(postgresql, odd, tmp_path):
    file = tmp_path / "discarded.jsonl"
    said(postgresql, "errors", "discard", "orders", "--yes", "--to-file", str(file))
    kept = [json.loads(line)["expires"] for line in file.read_text().splitlines()]
    over = ["0001-01-01T00:00:00Z"] * len(OVER)
    assert kept == [None] * (1 + len(LATER)) + over + ["9999-12-31T23:59:59.999999Z"]
