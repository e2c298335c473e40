"""Messages in transit are moved on once, outside of batches, in every mode."""

import contextlib
import json
import time
from datetime import datetime, timedelta

import psycopg
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.errors import ClaimLost, QueueError
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import NO_TRANSACTION, RECEIVE_ONLY
from sqlqueue_spark.receive.claiming import claim, in_transit
from sqlqueue_spark.receive.claiming.in_transit import Forwarder
from sqlqueue_spark.receive.claiming.late_rows import Head
from sqlqueue_spark.receive.offset import INITIAL, Offset
from sqlqueue_spark.tables.queues import Queue
from tests.support import death_steps
from tests.support.driver import Crash, at_step, crash, streaming
from tests.support.forwarding import forwarding
from tests.support.messages import message_id, message_ids, row_id, row_ids
from tests.support.sending import ids_in
from tests.support.several import Queues
from tests.support.waiting import eventually

pytestmark = pytest.mark.provokes("lock timeout")  # a move gives way to who has locked its destination

MODES = {
    RECEIVE_ONLY: {},
    NO_TRANSACTION: {"transactionMode": NO_TRANSACTION},
}
OURS = '"NServiceBus.MessageId":"{id}", "Greek": "\\u03b1\\/" ,'


@pytest.fixture(params=MODES.values(), ids=list(MODES))
def mode(request):
    return request.param


@pytest.fixture
def billing(engine):
    return engine.create_queue("billing")


def full(engine, name):
    """A table's address as the transport writes it."""
    return f'"public"."{name}"' if engine.name == "postgresql" else f"{name}@[dbo]"


def headers(engine, number, to):
    """What is written around the header that goes; ``to`` is an address as it stands there."""
    ours = OURS.format(id=message_id(number))
    return "{ " + ours + f'"{FORWARD_DESTINATION}":{json.dumps(to)} , "Last":"x"}}', "{ " + ours.rstrip(
        " ,"
    ) + ' , "Last":"x"}'


def send(engine, queue, *numbers, to=None, body=b"body"):
    """Messages in transit; returns their headers without the one that goes."""
    left = []
    for number in numbers:
        text, without = headers(engine, number, to or full(engine, "billing"))
        queue.insert_row(id=row_id(number), headers=text, body=body)
        left.append(without)
    return left


def received(stream):
    return sorted(stream.ids())


def offsets(stream):
    """The RowVersions that stand in any offset."""
    ends = [Offset.from_json(stream.end(number)) for number in range(1, len(stream.offsets) + 1)]
    return {row for end in ends if end is not None for row in end.live.rows()}


def test_they_are_moved_on_and_are_in_no_batch(engine, queue, billing, mode):
    """With a new row id, without the one header, and with all else byte for byte."""
    queue.insert(5)
    left = send(engine, queue, 5, 6)
    queue.insert(3, start=7)
    with streaming(engine, queue, **mode) as stream:
        stream.drain()
        assert (stream.receiver.waiting() or {})["movedOn"] == 2
    assert (received(stream), queue.count()) == (row_ids([*range(5), 7, 8, 9]), 0)
    assert [(row.headers, row.body) for row in billing.rows()] == [(text, b"body") for text in left]
    assert not {row.id for row in billing.rows()} & {row_id(5), row_id(6)}
    assert offsets(stream) == {1, 2, 3, 4, 5, 8, 9, 10}


def test_a_body_that_is_null_leaves_as_an_empty_one(engine, queue, billing):
    send(engine, queue, 1, body=None)
    with streaming(engine, queue) as stream:
        stream.drain()
    assert [row.body for row in billing.rows()] == [b""]


def test_a_queue_of_nothing_else_makes_no_batch(engine, queue, billing, mode):
    send(engine, queue, *range(4))
    with streaming(engine, queue, **mode) as stream:
        stream.drain()
        assert stream.messages() == []
    assert (queue.count(), billing.count()) == (0, 4)


def test_large_ones_are_read_and_moved_in_portions(engine, queue, billing, mode, monkeypatch):
    """As many of them as memory holds."""
    send(engine, queue, *range(7), body=b"x" * 1_000)
    size = engine.bytes_of(queue.rows()[0].headers) + 1_000
    monkeypatch.setattr(in_transit, "_CHUNK_BYTES", 2 * size)
    monkeypatch.setattr(claim, "RECORD_BATCH_BYTES", 3 * size)
    asked: dict[str, list[int]] = {"headers_of": [], "lock_in_transit": []}
    for name, found in asked.items():
        monkeypatch.setattr(Queue, name, _counting(getattr(Queue, name), found))
    with streaming(engine, queue, **mode) as stream:
        stream.drain()
    assert (queue.count(), billing.count()) == (0, 7)
    assert (asked["headers_of"][:3], asked["lock_in_transit"]) == ([3, 3, 1], [2, 2, 2, 1])


def _counting(read, found):
    def counted(self, row_versions):
        found.append(len(row_versions))
        return read(self, row_versions)

    return counted


def test_the_own_address_is_where_a_message_has_arrived(engine, queue, mode):
    """However it is written."""
    addresses = [full(engine, "orders"), "orders", f"orders@[{engine.default_schema}]"]
    for number, to in enumerate(addresses):
        send(engine, queue, number, to=to)
    with streaming(engine, queue, **mode) as stream:
        stream.drain()
    assert (received(stream), queue.count()) == (row_ids(range(3)), 0)


def test_a_message_that_has_failed_stays_a_row_of_the_queue(engine, queue, billing, mode):
    """In an error queue."""
    text = json.dumps({"NServiceBus.FailedQ": "billing", FORWARD_DESTINATION: full(engine, "billing")})
    queue.insert_row(id=row_id(1), headers=text, body=b"x")
    with streaming(engine, queue, **mode) as stream:
        stream.drain()
    assert (received(stream), billing.count()) == (row_ids([1]), 0)


def test_the_name_of_the_header_in_a_value_means_nothing(engine, queue, mode):
    queue.insert_row(id=row_id(1), headers=json.dumps({"Note": FORWARD_DESTINATION}), body=b"x")
    queue.insert_row(id=row_id(2), headers=f"{FORWARD_DESTINATION} is no JSON", body=b"x")
    with streaming(engine, queue, **mode) as stream:
        stream.drain()
    assert (received(stream), queue.count()) == (row_ids([1, 2]), 0)


@pytest.mark.parametrize("to", ["gone", "a@b@c@d"], ids=["missing", "unreadable"])
def test_what_cannot_be_delivered_is_a_row_of_the_batch(engine, queue, billing, mode, caplog, to):
    """With a warning."""
    queue.insert(2)
    send(engine, queue, 2, to=to)
    send(engine, queue, 3)
    with streaming(engine, queue, **mode) as stream:
        stream.drain()
    assert (received(stream), queue.count(), billing.count()) == (row_ids([0, 1, 2]), 0, 1)
    (warned,) = {record.message for record in caplog.records if record.message.startswith("not_forwarded")}
    assert warned.startswith("not_forwarded queue=orders@")
    assert to in warned
    assert warned.endswith("They are rows of the batch; to move them elsewhere, set errorQueue.")


def test_one_that_had_to_wait_and_cannot_be_delivered_is_a_row_of_a_later_batch(
    engine, queue, mode, monkeypatch
):
    """The look that finds it is one for late rows, and takes long."""
    monkeypatch.setattr(in_transit, "_TOGETHER_SECONDS", 0.0)
    send(engine, queue, 0, to="gone")
    send(engine, queue, 1, to="gone too")
    queue.insert(2, start=2)
    with streaming(engine, queue, **mode) as stream:
        assert stream.trigger()
        monkeypatch.setattr(Head, "_SHARE", 10_000)
        eventually(lambda: stream.trigger() or not queue.count(), within=timedelta(seconds=10))
        stream.drain()
    assert (received(stream), queue.count()) == (row_ids([0, 1, 2, 3]), 0)


@pytest.mark.parametrize("to", ["gone", "a@b@c@d"], ids=["missing", "unreadable"])
def test_what_cannot_be_delivered_goes_to_the_error_queue(engine, queue, mode, to):
    """With the headers of a failed message; a retry sends it to the destination that it could not reach."""
    error = engine.create_queue("error")
    queue.insert(2)
    send(engine, queue, 2, to=to)
    with streaming(engine, queue, errorQueue="error", **mode) as stream:
        stream.drain()
    assert (received(stream), queue.count()) == (row_ids([0, 1]), 0)
    (row,) = error.rows()
    failed = json.loads(row.headers)
    assert FORWARD_DESTINATION not in failed
    assert failed["NServiceBus.MessageId"] == message_id(2)
    assert (
        failed["NServiceBus.FailedQ"] == (full(engine, "gone") if to == "gone" else to)
        or engine.name != "postgresql"
    )
    assert failed["NServiceBus.ProcessingEndpoint"] == to
    assert failed["NServiceBus.ExceptionInfo.ExceptionType"] == "sqlqueue_spark.errors.ConfigurationError"
    assert (failed["Greek"], failed["Last"], row.body) == ("α/", "x", b"body")


def test_an_error_queue_that_is_missing_leaves_the_row_in_the_batch(engine, queue, caplog):
    send(engine, queue, 1, to="gone")
    with streaming(engine, queue, errorQueue="nowhere") as stream:
        stream.drain()
    assert received(stream) == row_ids([1])
    assert any("There is no error queue 'nowhere'" in record.message for record in caplog.records)


def test_a_destination_without_the_right_leaves_the_row_in_the_batch(postgresql, queue_of_a_role):
    queue, url = queue_of_a_role
    send(postgresql, queue, 1)
    with streaming(postgresql, queue, url=url) as stream:
        stream.drain()
    assert (received(stream), queue.count()) == (row_ids([1]), 0)


@pytest.fixture
def queue_of_a_role(postgresql, queue, billing):
    """A queue, and the url of a login that may receive from it, and may not send to billing."""
    postgresql.execute("DROP ROLE IF EXISTS only_orders")
    postgresql.execute("CREATE ROLE only_orders LOGIN PASSWORD 'only-orders'")
    postgresql.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO only_orders")
    before, _, behind = postgresql.url.partition("://")
    yield queue, f"{before}://only_orders:only-orders@{behind.rpartition('@')[2]}"
    postgresql.execute("DROP OWNED BY only_orders")
    postgresql.execute("DROP ROLE only_orders")


def test_a_destination_that_is_locked_delays_only_its_own(postgresql, queue, billing, monkeypatch):
    """They go when it is free."""
    monkeypatch.setattr(in_transit, "_LATER_SECONDS", 0.0)
    queue.insert(3)
    send(postgresql, queue, 3, 4)
    with streaming(postgresql, queue) as stream:
        with psycopg.connect(postgresql.url) as other:
            other.execute("LOCK TABLE billing IN ACCESS EXCLUSIVE MODE")
            assert stream.trigger()
            assert received(stream) == row_ids(range(3))
            assert queue.count() == 5
        stream.drain()
    assert (received(stream), queue.count(), billing.count()) == (row_ids(range(3)), 0, 2)


def test_a_row_that_another_holds_is_left_to_him(engine, queue, billing, mode):
    send(engine, queue, 1, 2)
    queue.insert(2, start=3)
    with queue.session() as other, streaming(engine, queue, neighbourHeadroom="0", **mode) as stream:
        other.lock(1)
        assert stream.trigger()
        other.rollback()
        stream.drain()
    assert (received(stream), queue.count(), billing.count()) == (row_ids([3, 4]), 0, 2)


def test_one_that_comes_up_between_is_not_claimed(engine, queue, billing, monkeypatch):
    """It is locked, and goes the next time."""
    queue.insert(2)
    send(engine, queue, 2)
    with streaming(engine, queue) as stream:
        with at_step(fail_points.TRANSIT_MOVED, lambda: (send(engine, queue, 3), queue.insert(1, start=4))):
            assert stream.trigger()
        assert received(stream) == row_ids([0, 1, 4])
        assert billing.count() == 1
        stream.drain()
    assert (received(stream), queue.count(), billing.count()) == (row_ids([0, 1, 4]), 0, 2)


@pytest.mark.parametrize("step", death_steps.TRANSIT_STEPS)
@pytest.mark.parametrize("cut", [False, True], ids=["killed", "cut"])
def test_whatever_happens_each_goes_once(engine, queue, billing, mode, step, cut):
    """At every step of a move."""
    queue.insert(3)
    send(engine, queue, 3, 4, 5)
    queue.insert(3, start=6)
    with streaming(engine, queue, **mode) as stream:
        happens = engine.cut_connections if cut else crash
        with at_step(step, happens, on=(1,)), contextlib.suppress(Crash):
            stream.trigger()
        if not cut:
            stream.crash()
        stream.drain()
    assert (received(stream), queue.count(), billing.count()) == (row_ids([0, 1, 2, 6, 7, 8]), 0, 3)


@pytest.mark.parametrize("step", [None, *death_steps.TRANSIT_STEPS])
def test_an_atomic_pipeline_moves_them_on_too(engine, queue, billing, step):
    """It stages nothing for them."""
    done = engine.create_queue("done")
    queue.insert(3)
    send(engine, queue, 3, 4)
    queue.insert(3, start=5)
    with forwarding(engine, queue, "done") as stream:
        with at_step(step or "never", crash, on=(1,)), contextlib.suppress(Crash):
            stream.trigger()
        if step is not None:
            stream.crash()
        stream.drain()
    assert (ids_in(done), queue.count(), billing.count()) == (message_ids([0, 1, 2, 5, 6, 7]), 0, 2)


def test_a_thousand_among_a_hundred_thousand(engine, queue, billing):
    queue.insert(99_000, size=1)
    text, _ = headers(engine, 1, full(engine, "billing"))
    engine_headers = text.replace("{", "{{").replace("}", "}}")
    column = "seq" if engine.name == "postgresql" else "RowVersion"
    queue.execute(f"UPDATE {{table}} SET headers = '{engine_headers}' WHERE {column} % 99 = 0")
    with streaming(engine, queue) as stream:
        stream.drain()
    assert (len(stream.ids()), queue.count(), billing.count()) == (98_000, 0, 1_000)


def test_a_batch_knows_nothing_of_them_when_it_runs_again(engine, queue, billing):
    queue.insert(3)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        send(engine, queue, 3)
        stream.crash()
        stream.drain()
        assert stream.end(0) == INITIAL
    assert (received(stream), queue.count(), billing.count()) == (row_ids(range(3)), 0, 1)


def test_one_that_an_index_of_its_destination_refuses_goes_to_the_error_queue(postgresql, queue, billing):
    error = postgresql.create_queue("error")
    billing.execute("CREATE UNIQUE INDEX one_body ON {table} (body)")
    send(postgresql, queue, 1, 2, body=b"same")
    send(postgresql, queue, 3, body=b"other")
    with streaming(postgresql, queue, errorQueue="error") as stream:
        stream.drain()
    assert (billing.count(), error.count(), queue.count()) == (2, 1, 0)


def test_what_waits_for_a_row_of_another_session_sends_nothing_of_its_destination_twice(
    postgresql, queue, billing, monkeypatch
):
    """One is refused, so they are inserted in parts, and a later part has to wait."""
    monkeypatch.setattr(in_transit, "_LATER_SECONDS", 0.0)
    error = postgresql.create_queue("error")
    billing.execute("CREATE UNIQUE INDEX once ON {table} (body) WHERE body IN ('there', 'held')")
    billing.insert_row(id=row_id(9), headers="{{}}", body=b"there")
    for number, body in enumerate((b"first", b"there", b"held", b"last")):
        send(postgresql, queue, number, body=body)
    with streaming(postgresql, queue, errorQueue="error") as stream:
        with psycopg.connect(postgresql.url) as other:
            other.execute("INSERT INTO billing (id, headers, body) VALUES (gen_random_uuid(), '{}', 'held')")
            stream.trigger()
            other.rollback()
        stream.drain()
    assert sorted(row.body for row in billing.rows()) == [b"first", b"held", b"last", b"there"]
    assert (error.count(), queue.count()) == (1, 0)


KEEPS = """
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()
"""


def test_a_row_that_a_trigger_keeps_is_not_copied_again_and_again(postgresql):
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert_row(id=row_id(1), headers=json.dumps({FORWARD_DESTINATION: "billing"}), body=b"x")
    queue.execute(KEEPS)
    with (
        streaming(postgresql, queue) as stream,
        pytest.raises(QueueError, match=r"deleted 0, so none was moved"),
    ):
        stream.trigger()
    assert (queue.count(), billing.count()) == (1, 0)


def test_a_row_with_the_number_of_one_in_transit_is_not_lost(postgresql):
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    queue.execute("CREATE INDEX ON {table} (seq)")
    queue.insert(1)
    queue.insert_row(id=row_id(7), headers=json.dumps({FORWARD_DESTINATION: "billing"}), body=b"x")
    queue.execute("UPDATE {table} SET seq = 1")
    with streaming(postgresql, queue) as stream, pytest.raises(QueueError):
        stream.trigger()
    assert (queue.count(), billing.count()) == (2, 0)


def test_expired_rows_that_a_trigger_keeps_end_the_stream(postgresql):
    queue = postgresql.create_queue()
    queue.insert(3, expires=datetime(2020, 1, 1))  # noqa: DTZ001 -- the column has no zone
    queue.execute(KEEPS)
    with streaming(postgresql, queue) as stream, pytest.raises(ClaimLost, match=r"found 0 of 3 locked rows"):
        stream.trigger()
    assert queue.count() == 3


def test_messages_to_many_missing_queues_hold_up_the_others_for_a_second_at_most(engine, queue, monkeypatch):
    """What had no time comes first the next time, and the run ends when all have had their turn."""
    monkeypatch.setattr(in_transit, "_TOGETHER_SECONDS", 0.05)
    error = engine.create_queue("error")
    delivered = Forwarder._deliver

    def slowly(*of):
        time.sleep(0.03)
        return delivered(*of)

    monkeypatch.setattr(Forwarder, "_deliver", slowly)
    for number in range(20):
        send(engine, queue, number, to=full(engine, f"missing{number}"))
    queue.insert(3, start=100)
    ours = queue.row_versions()[-3:]
    with streaming(engine, queue, errorQueue="error") as stream:
        assert stream.trigger()
        assert [row["RowVersion"] for row in stream.sink[0]] == ours
        assert 1 <= error.count() <= 3
        stream.drain()
    assert sorted(ids_in(error)) == message_ids(range(20))


def test_one_queue_is_tried_once_however_its_address_is_spelled(engine, queue, billing, monkeypatch):
    tried = []
    delivered = Forwarder._deliver

    def told(*of):
        tried.append(of[2])
        return delivered(*of)

    monkeypatch.setattr(Forwarder, "_deliver", told)
    spelled = [
        "billing",
        full(engine, "billing"),
        f"billing@{engine.default_schema}",
        f"billing@[{engine.default_schema}]",
    ]
    for number, address in enumerate(spelled):
        send(engine, queue, number, to=address)
    with streaming(engine, queue) as stream:
        stream.drain()
    assert (tried, sorted(ids_in(billing))) == (["billing"], message_ids(range(4)))


def test_two_locked_queues_hold_up_no_third_one(postgresql, monkeypatch, mode):
    """They take all the time that there is, again and again."""
    monkeypatch.setattr(in_transit, "_LATER_SECONDS", 0.0)
    monkeypatch.setattr(in_transit, "_LOCKED_MS", 20)
    monkeypatch.setattr(in_transit, "_TOGETHER_SECONDS", 0.03)
    queue = postgresql.create_queue()
    for number, name in enumerate(("held0", "held1", "billing")):
        postgresql.create_queue(name)
        send(postgresql, queue, number, to=full(postgresql, name))
    with psycopg.connect(postgresql.url) as other:
        other.execute("LOCK TABLE held0, held1 IN ACCESS EXCLUSIVE MODE")
        with streaming(postgresql, queue, **mode) as stream:
            eventually(lambda: stream.trigger() or postgresql.queue("billing").count() == 1)
    assert sorted(queue.ids()) == row_ids(range(2))


def test_a_locked_error_queue_holds_up_no_message_to_another_queue(postgresql):
    queue, error = postgresql.create_queue(), postgresql.create_queue("error")
    billing = postgresql.create_queue("billing")
    send(postgresql, queue, 0, to=full(postgresql, "billing"))
    send(postgresql, queue, 1, to=full(postgresql, "missing"))
    with psycopg.connect(postgresql.url) as other:
        other.execute("LOCK TABLE error IN ACCESS EXCLUSIVE MODE")
        with streaming(postgresql, queue, errorQueue="error") as stream:
            stream.trigger()
            assert (ids_in(billing), queue.ids()) == (message_ids([0]), [row_id(1)])
    with streaming(postgresql, queue, errorQueue="error") as stream:
        stream.drain()
    assert (ids_in(billing), ids_in(error)) == (message_ids([0]), message_ids([1]))


def test_a_queue_that_has_had_its_time_leaves_the_others_theirs(postgresql, monkeypatch):
    """What had no time in one was taken by others since; a neighbour holds a row in transit of the other."""
    monkeypatch.setattr(in_transit, "_TOGETHER_SECONDS", 0.0)
    both = Queues(postgresql, "a", "b")
    a, b = both
    for number in range(3):
        postgresql.create_queue(f"to{number}")
        send(postgresql, b, number, to=full(postgresql, f"to{number}"))
    moves = []
    move = Forwarder.move

    def counted(*of):
        moves.append(of[1].name)
        return move(*of)

    monkeypatch.setattr(Forwarder, "move", counted)
    with streaming(postgresql, both, queues=both.listed, transactionMode=NO_TRANSACTION) as stream:
        b.insert(1, start=50)
        stream.trigger()
        b.execute("DELETE FROM {table}")
        send(postgresql, a, 9, to=full(postgresql, "to0"))
        moves.clear()
        with psycopg.connect(postgresql.url) as other:
            other.execute("SELECT FROM a FOR UPDATE")
            stream.trigger()
    assert len(moves) == 1
