"""Times of expiry that no other system knows: a queue with one of them is looked at and
drained as any other.
"""

import json

import pytest

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.options import SourceOptions
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
