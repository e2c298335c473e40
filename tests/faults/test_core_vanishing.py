"""Networks that swallow packets, and close nothing: each end notices in time, and no message is lost."""

import contextlib
import threading
from datetime import timedelta
from typing import Any

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.engines.postgresql.connection import PostgresReader
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.options import ConnectionOptions
from tests.support.driver import at_step, streaming
from tests.support.messages import message_ids, row_ids
from tests.support.postgresql import PostgresEngine
from tests.support.proxy import proxied
from tests.support.sending import batch, ids_in, options, send, steps
from tests.support.waiting import eventually

#: By then each end has noticed.
IN_TIME = timedelta(seconds=100)


@pytest.mark.tier("nightly")
def test_a_server_gives_up_a_machine_that_vanishes_within_an_answer(postgresql):
    """Else what the session has locked would stay locked for a quarter of an hour."""
    queue = postgresql.create_queue()
    queue.insert(1)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(proxied(postgresql.url))
        connection = stack.enter_context(connect(Target(url=network.url)))
        ((session,),) = connection.execute("SELECT pg_backend_pid()")
        network.swallow_answer_to(b"FOR UPDATE")
        lost: list[ConnectionLost] = []

        def lock():
            try:
                connection.execute("SELECT 1 FROM orders FOR UPDATE")
            except ConnectionLost as error:
                lost.append(error)

        locking = threading.Thread(target=lock)
        locking.start()
        there = f"SELECT 1 FROM pg_stat_activity WHERE pid = {session}"
        eventually(lambda: not postgresql.fetch(there), within=IN_TIME)
        locking.join(IN_TIME.total_seconds())
        assert "Connection timed out" in str(lost[0])


def test_an_answer_may_wait_for_its_reader(postgresql):
    """A worker reads no further while Spark is busy, and the connection would be ended by the time limit
    that a driver's has.
    """
    with contextlib.closing(open_reader(Target(url=postgresql.url))) as reader:
        assert isinstance(reader, PostgresReader)
        with reader._raw.read("SELECT current_setting('tcp_user_timeout') AS it", 1 << 20) as rows:
            assert rows.read_all()["it"].to_pylist() == ["0"]


@pytest.mark.tier("nightly")
@pytest.mark.parametrize(
    "step",
    [fail_points.ROWS_LOCKED, fail_points.HALF_READ, fail_points.COMMIT_LOGGED, fail_points.DELETED],
)
def test_connections_whose_packets_vanish_cost_no_message(postgresql, step):
    """And no restart: each end gives the other up, and the stream goes on over new connections."""
    queue = postgresql.create_queue()
    queue.insert(100)
    with proxied(postgresql.url) as network:
        engine = PostgresEngine(network.url)
        with streaming(engine, queue, maxMessagesPerTrigger="30", minMessagesPerPartition="10") as stream:
            with at_step(step, network.swallow, on={2}) as swallowed:
                stream.drain()
            assert swallowed == [2]
            assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


@pytest.mark.tier("nightly")
def test_a_settling_whose_answer_vanishes_is_found_to_be_done(postgresql):
    queue = postgresql.create_queue()
    queue.insert(100)
    with (
        proxied(postgresql.url) as network,
        streaming(PostgresEngine(network.url), queue, maxMessagesPerTrigger="60") as stream,
    ):
        with at_step(fail_points.DELETED, lambda: network.swallow_answer_to(b"COMMIT")):
            stream.drain()
        assert network.cuts == 1
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("word", [None, b"COMMIT"], ids=["at once", "with the answer to the commit"])
def test_a_send_whose_network_vanishes_goes_out_once(postgresql, word):
    queue = postgresql.create_queue()
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    with proxied(postgresql.url) as network, steps():
        swallow = network.swallow if word is None else lambda: network.swallow_answer_to(word)
        with at_step(fail_points.IDS_INSERTED, swallow):
            done = send(options(PostgresEngine(network.url)), batch(range(50)))
    assert done == ((50, 0) if word is None else (0, 50))
    assert ids_in(queue) == message_ids(range(50))


@pytest.mark.tier("nightly")
def test_a_driver_takes_the_stage_of_one_that_vanished(postgresql):
    """It waits until the server has noticed."""
    queue = postgresql.create_queue()
    queue.insert(10)
    atomic: dict[str, Any] = {"transactionMode": "sendsAtomicWithReceive", "stream": "billing"}
    with (
        proxied(postgresql.url) as network,
        streaming(PostgresEngine(network.url), queue, **atomic) as gone,
        streaming(postgresql, queue, **atomic) as stream,
    ):
        assert gone.construct()
        network.swallow()
        assert stream.construct()
