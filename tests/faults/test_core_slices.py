"""Workers read slices of a claim: slowly, over a connection that breaks, with gaps between their rows."""

import threading
from unittest import mock

import pyarrow.compute as pc
import pytest

from sqlqueue_spark.engines.connections import Target
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.row_set import RowSet
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


def test_the_cost_of_a_slice_grows_with_its_rows(engine, queue):
    """Not with their square, where they are scattered."""
    queue.insert(30_000)
    number = "seq" if engine.name == "postgresql" else "RowVersion"
    queue.execute(f"DELETE FROM {{table}} WHERE {number} % 2 = 0")
    queue.insert(1, start=30_000)
    with (
        streaming(engine, queue, maxConcurrency="1") as stream,
        mock.patch.object(pc, "is_in", wraps=pc.is_in) as is_in,
    ):
        assert stream.construct()
        assert len(stream.read(stream.plan())) == 15_001
        compared = [len(call.kwargs["value_set"]) for call in is_in.call_args_list]
    assert sum(compared) == 15_001


@pytest.mark.parametrize(
    "first, last, expected",
    [
        (-100, 100, [(-5, -3), (1, 1), (10, 20)]),
        (-4, 12, [(-4, -3), (1, 1), (10, 12)]),
        (-3, 1, [(-3, -3), (1, 1)]),
        (2, 9, []),
        (11, 11, [(11, 11)]),
        (21, 30, []),
        (-30, -6, []),
    ],
)
def test_the_rows_between_two_numbers_are_found(first, last, expected):
    assert RowSet([(-5, -3), (1, 1), (10, 20)]).between(first, last) == RowSet(expected)
