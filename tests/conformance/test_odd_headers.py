"""Headers that no endpoint writes, with long runs of odd characters or endless nesting, hold nothing up."""

import json

import pytest

from sqlqueue_spark.administration import error_queue, failed_retry
from sqlqueue_spark.administration.queue_peek import look
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import RECEIVE_ONLY, ConnectionOptions
from tests.support.delayed import DelayedRows, move
from tests.support.driver import streaming
from tests.support.error_rows import full
from tests.support.messages import row_id

pytestmark = pytest.mark.needs("reads_json_as_documented")

MANY = 300_000
FILLERS = {
    "blanks": " ",
    "backslashes": "\\\\",
    "quotes": '\\"',
    "commas": ",",
    "braces": "{",
    "digits": "1",
    "zero width": "\u200b",
}
NESTED = {"lists": "[" * 100_000, "objects": '{"a":' * 100_000, "in a value": '{"a":' + "[" * 100_000}


def texts(name, value):
    """Headers with one that says an address, and a filler at each place: JSON, or nearly."""
    for filler in FILLERS.values():
        many = filler * (MANY // len(filler))
        yield f'{many}{{"{name}":"{value}"}}'
        yield f'{{"{name}"{many}:"{value}"}}'
        yield f'{{"{name}":{many}"{value}"}}'
        yield f'{{"a":"{many}","{name}":"{value}"}}'
        yield f'{{"a":"b","{name}":"{value}"{many}}}'
        yield f'{{"a":"b","{name}":"{value}"}}{many}'
        yield f'{{"a":"b","{name}":"{value}{many}"}}'
    yield from NESTED.values()
    yield from (each + f',"{name}":"{value}"}}' for each in NESTED.values())


def test_a_stream_gets_over_them(engine, queue):
    """What is JSON goes where it says, and all else is a row of the batch."""
    billing = engine.create_queue("billing")
    found = [*texts(FORWARD_DESTINATION, "billing")]
    for number, text in enumerate(found):
        queue.insert_row(id=row_id(number), headers=text, body=b"")
    queue.insert(1, start=len(found))
    goes = [text for text in found if (parse_headers(text) or {}).get(FORWARD_DESTINATION) == "billing"]
    with streaming(engine, queue, transactionMode=RECEIVE_ONLY) as stream:
        stream.drain()
        assert len(stream.ids()) == len(found) + 1 - len(goes)
    assert (queue.count(), billing.count()) == (0, len(goes))
    assert len(goes) >= 10
    assert [FORWARD_DESTINATION in row.headers for row in billing.rows()] == [False] * len(goes)


def test_a_mover_gets_over_them(engine, queue):
    error, rows = engine.create_queue("error"), DelayedRows(engine, "orders").create()
    found = [*texts(FORWARD_DESTINATION, "orders")]
    clock = "now() AT TIME ZONE 'UTC'" if engine.name == "postgresql" else "GETUTCDATE()"
    for text in found:
        engine.execute(f"INSERT INTO {rows.quoted} (headers, body, due) VALUES ('{text}', NULL, {clock})")
    sent, failed = move(engine, "orders")
    assert (sent + failed, rows.count(), queue.count(), error.count()) == (len(found), 0, sent, failed)
    assert sent > failed


def test_the_commands_for_failed_messages_get_over_them(engine, queue):
    error = engine.create_queue("error")
    found = [*texts("NServiceBus.FailedQ", json.dumps(full(engine))[1:-1])]
    for number, text in enumerate(found):
        error.insert_row(id=row_id(number), headers=text, body=b"")
    options = ConnectionOptions.parse({"url": engine.url})
    known = [each for each in found if (parse_headers(each) or {}).get("NServiceBus.FailedQ") == full(engine)]
    assert [row.failed_queue for row in error_queue.look(options, "error", Selection())].count(
        full(engine)
    ) == len(known)
    assert len([*look(options, "error", MessageSelection(types=frozenset({"x"})))]) == 0
    done = failed_retry.retry(options, "error", Selection(failed_queue=full(engine)))
    assert (done.count, queue.count(), error.count()) == (len(known), len(known), len(found) - len(known))
    assert len(known) >= 10
