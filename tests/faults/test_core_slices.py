"""Workers read slices of a claim: slowly, and over a connection that breaks."""

import threading

import pytest

from sqlqueue_spark.engines.connections import Target
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.receive import SliceReader
from tests.support.driver import streaming


def test_a_slow_reader_does_not_run_into_the_command_timeout(engine, queue):
    queue.insert(16, size=4 << 20)  # more than any buffer between here and the server takes
    with streaming(engine, queue, commandTimeout="1s") as stream:
        assert stream.construct()
        (part,) = stream.plan()
        pause, rows = threading.Event(), 0
        for batch in SliceReader(Target.of(stream.options)).read(part):
            if rows == 0:
                pause.wait(2)  # a sink that takes its time
            rows += batch.num_rows
        assert rows == 16


def test_a_cut_during_a_slice_is_a_connection_lost(engine, queue):
    queue.insert(16, size=4 << 20)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        (part,) = stream.plan()
        batches = SliceReader(Target.of(stream.options)).read(part)
        assert next(batches).num_rows > 0
        engine.cut_connections()
        with pytest.raises(ConnectionLost, match=r"^The connection to \S+ was lost while reading \("):
            list(batches)
