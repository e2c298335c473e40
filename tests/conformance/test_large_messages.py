"""Bodies of 100 MB and 100,000 headers take a time and a memory that grow with their size alone."""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sqlqueue_spark.administration import error_discard, error_queue, failed_retry, queue_restore
from sqlqueue_spark.administration.message_lines import to_json, to_line
from sqlqueue_spark.administration.queue_peek import look
from sqlqueue_spark.cli import failed_output
from sqlqueue_spark.cli.message_output import Bodies, MessageTable
from sqlqueue_spark.handling import Send
from sqlqueue_spark.handling.batch_handler import BatchHandler
from sqlqueue_spark.handling.handler_calls import Handler, Limits
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.receive.reading.slices import JOINT_SCHEMA
from tests.support.delayed import DelayedRows, move
from tests.support.driver import streaming
from tests.support.engines import Engine
from tests.support.error_rows import full
from tests.support.messages import row_id
from tests.support.sending import options, send

pytestmark = pytest.mark.needs("reads_json_as_documented")

MB = 1 << 20
#: How many messages of a size there are at once.
COUNT = 3


def body(size):
    return b'{"note":"' + b"x y " * (size // 4) + b'"}', '{"a":"b"}'


def headers(size):
    """As short as headers are, and thus the most of them that have this size."""
    return b"{}", "{" + ",".join(f'"h{number}":"v{number}"' for number in range(size // 17)) + "}"


def value(size):
    return b"{}", json.dumps({"a": "x/" * (size // 2), "b": "c"})


def steps(  # noqa: C901 -- it is a list
    engine: Engine, message: bytes, text: str, folder: Path
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is done with messages, step by step."""
    orders, billing, error = (engine.create_queue(name) for name in ("orders", "billing", "error"))
    delayed = DelayedRows(engine, "orders").create()
    clock = "now() AT TIME ZONE 'UTC'" if engine.name == "postgresql" else "GETUTCDATE()"
    own = ConnectionOptions.parse({"url": engine.url})
    going = f'{text[:-1]},"{FORWARD_DESTINATION}":"billing"}}'

    def filled(queue, text_):
        queue.execute("DELETE FROM {table}")
        for number in range(COUNT):
            queue.insert_row(id=row_id(number), headers=text_, body=message)

    def received():
        with streaming(engine, orders) as stream:
            stream.drain()

    def sent(**columns):
        columns = {"Body": [message] * COUNT, "Headers": [text] * COUNT, **columns}
        types = {"Body": pa.binary(), "RowVersion": pa.int64()}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
        return send(
            options(engine, outbox="none", errorQueue="error"), pa.RecordBatch.from_pydict(columns, schema)
        )

    row = {
        "Queue": ["orders"] * COUNT,
        "RowVersion": [*range(COUNT)],
        "Id": [str(row_id(n)) for n in range(COUNT)],
    }
    ids = {"MessageId": [str(number) for number in range(COUNT)]}

    def handled():
        handler = Handler(
            functions=lambda given: Send("billing", "A", given.body),
            limits=Limits(immediate_retries=0, timeout=600, unrecoverable=()),
        )
        given = {name: [None] * COUNT for name in JOINT_SCHEMA.names} | row
        given |= {"Body": [message] * COUNT, "Headers": [text] * COUNT}
        return [*BatchHandler(handler).outcomes(pa.RecordBatch.from_pydict(given, JOINT_SCHEMA))]

    def peeked(bodies):
        table = MessageTable(bodies)
        return sum(
            len(line) for each in look(own, "error", MessageSelection()) for line in table.lines([each])
        )

    def saved():
        with (folder / "lines").open("wb") as file:
            for each in look(own, "error", MessageSelection()):
                file.write(f"{to_line(to_json(each))}\n".encode())

    def restored():
        with (folder / "lines").open("rb") as file:
            queue_restore.restore(
                own, "orders", queue_restore.Input(source=file, name="x", again=True), new_ids=True
            )

    filled(orders, text)
    yield "receive", received
    yield "send", lambda: sent(Destination=["billing"] * COUNT, **ids)
    yield "pass on", lambda: sent(Destination=["billing"] * COUNT, **row)
    yield "handle", handled
    yield "fail", lambda: sent(Destination=["gone"] * COUNT, **row)
    for bodies in Bodies:
        yield f"peek {bodies.name}", functools.partial(peeked, bodies)
    yield "peek with a filter", lambda: [*look(own, "error", MessageSelection(types=frozenset({"x"})))]
    yield "peek --json", saved
    yield "send --from", restored
    yield "errors list", lambda: [*failed_output.rows_text([*error_queue.look(own, "error", Selection())])]
    yield (
        "errors show",
        lambda: [
            line
            for each in error_queue.show(own, "error", Selection(), row_version=error.rows()[0].row_version)
            for line in failed_output.shown_text(*each)
        ],
    )
    yield "errors retry", lambda: failed_retry.retry(own, "error", Selection(), to="orders")
    filled(error, f'{text[:-1]},"NServiceBus.FailedQ":{json.dumps(full(engine))}}}')
    yield "errors discard", lambda: error_discard.discard(own, "error", Selection(), folder / "discarded")
    filled(orders, going)
    yield "in transit", received
    filled(billing, going)
    engine.execute(
        f"INSERT INTO {delayed.quoted} (headers, body, due) SELECT headers, body, {clock} FROM billing"
    )
    yield "delayed", lambda: move(engine, "orders")


def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


@contextlib.contextmanager
def measured(found, name):
    """Note the seconds of a processor and the MB of memory that a block takes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    before, began = memory("VmRSS"), time.process_time()
    yield
    found[name] = (time.process_time() - began, memory("VmHWM") - before)


def costs(engine, made, folder):
    message, text = made
    found: dict[str, tuple[float, float]] = {}
    for name, step in steps(engine, message, text, folder):
        with measured(found, name):
            step()
    return found


@pytest.mark.tier("nightly")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("made, size", [(body, 100 * MB), (headers, 17 * 100_000), (value, 50 * MB)])
def test_large_messages_take_a_few_times_their_size(engine, made, size, tmp_path):
    """Three of them at once."""
    found = costs(engine, made(size), tmp_path)
    assert {
        name: cost for name, cost in found.items() if cost[0] > 60 or cost[1] > 300 + 12 * size / MB
    } == {}


@pytest.mark.parametrize(
    "made, size",
    [
        pytest.param(body, 2 * MB, marks=pytest.mark.tier("nightly")),
        pytest.param(headers, 17 * 10_000, marks=pytest.mark.tier("all")),
        pytest.param(value, 2 * MB, marks=pytest.mark.tier("nightly")),
    ],
)
def test_messages_of_twice_the_size_take_twice_as_long(engine, made, size, tmp_path):
    """With some room for what comes by chance: what is quadratic takes minutes."""
    small = costs(engine, made(size), tmp_path)
    for name in ("orders", "billing", "error"):
        engine.queue(name).execute("DROP TABLE {table}")
    large = costs(engine, made(2 * size), tmp_path)
    assert {
        name: (small[name], cost) for name, cost in large.items() if cost[0] > 4 * small[name][0] + 0.5
    } == {}
