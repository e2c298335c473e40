"""A row that no client can read stays where it is, and the rows around it go on."""

import contextlib
import json
from dataclasses import replace

import pytest

from sqlqueue_spark.administration import error_discard, error_queue, failed_retry, queue_peek
from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.error_row import TOO_LARGE, Selection
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions, SourceOptions
from sqlqueue_spark.plain_text import warn_once
from sqlqueue_spark.receive.reading.peek import present_rows
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.tables import queues
from tests.support.driver import streaming
from tests.support.messages import HEADERS, row_id

pytestmark = pytest.mark.needs("reads_json_as_documented")

#: Who knows the limit.
READERS = (
    "tables.queues",
    "receive.claiming.claim",
    "receive.reading.peek",
    "messages.error_row",
    "administration.queue_peek",
)
LIMIT = 20_000
SMALL, LARGE = [row_id(number) for number in (0, 1, 3, 4, 6)], [row_id(2), row_id(5)]
GOING = f'{HEADERS[:-1]},"{FORWARD_DESTINATION}":"billing","Long":"{"x" * LIMIT}"}}'


@pytest.fixture
def filled(queue, monkeypatch):
    """A queue with two rows that are too large: one by its body, one by its headers, on its way elsewhere."""
    for module in READERS:
        monkeypatch.setattr(f"sqlqueue_spark.{module}.LARGEST_ROW", LIMIT)
    warn_once.cache_clear()
    for number in range(7):
        text, body = {2: (HEADERS, b"x" * LIMIT), 5: (GOING, None)}.get(number, (HEADERS, b"x"))
        queue.insert_row(id=row_id(number), headers=text, body=body)
    return queue


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
def test_a_stream_goes_on_around_it_and_names_it_once(engine, filled, caplog, mode):
    engine.create_queue("billing")
    large = [row.row_version for row in filled.rows() if row.id in LARGE]
    with streaming(engine, filled, transactionMode=mode) as stream:
        stream.drain(left=2)
        filled.insert_row(id=row_id(7), headers=HEADERS, body=b"x")
        stream.drain(left=2)
        assert [each["Id"] for batch in stream.sink.values() for each in batch] == [
            *map(str, [*SMALL, row_id(7)])
        ]
    assert filled.ids() == LARGE
    said = [each for each in caplog.messages if each.startswith("too_large_to_read")]
    assert [each.partition(" row=")[2].partition(":")[0] for each in said] == [*map(str, large)]


@pytest.mark.parametrize("name", ["read", "read_unexpired"])
@pytest.mark.parametrize("row_versions", [False, True])
def test_who_reads_the_rows_around_it_does_not_fetch_it(engine, filled, name, row_versions):
    target = Target(url=engine.url)
    with connect(target) as connection, connection.transaction():
        found = queues.get(connection, "orders", Naming(default_schema=engine.default_schema)).table
    statement = queues.read_statement(target.dialect, replace(found, row_versions=row_versions), name)
    with contextlib.closing(open_reader(target)) as reader:
        batches = reader.batches(statement, RowSet.of(filled.row_versions()), SCHEMA)
        fetched = [each for batch in batches for each in batch["Id"].to_pylist()]
    assert fetched == [*map(str, SMALL)]


def test_a_look_at_the_queue_leaves_it_out(engine, filled):
    own = ConnectionOptions.parse({"url": engine.url})
    assert [each.id for each in queue_peek.look(own, "orders")] == [*map(str, SMALL)]
    source = SourceOptions.parse({"url": engine.url, "queue": "orders"})
    assert [each.id for each in present_rows(source)] == [*map(str, SMALL)]


def test_messages_are_put_back_and_discarded_around_it(engine, filled, tmp_path):
    own, some = ConnectionOptions.parse({"url": engine.url}), Selection()
    kinds = [row.kind == TOO_LARGE for row in error_queue.look(own, "orders", some)]
    assert kinds == [False, False, True, False, False, True, False]
    back = engine.create_queue("back")
    first = Selection(message_ids=frozenset({json.loads(HEADERS)["NServiceBus.MessageId"]}))
    assert failed_retry.retry(own, "orders", first, to="back").count == len(SMALL)
    assert (back.count(), filled.ids()) == (len(SMALL), LARGE)
    assert error_discard.discard(own, "orders", some, tmp_path / "lines").discarded == 0
    assert filled.ids() == LARGE
