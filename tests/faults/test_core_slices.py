"""Workers read slices of a claim: slowly, and over a connection that breaks."""

import contextlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from unittest import mock

import pytest

from sqlqueue_spark.engines.open_connection import Target, open_reader
from sqlqueue_spark.errors import ClaimLost, LockTimeout, QueueError
from sqlqueue_spark.plain_text import shell_word
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.reading import slice_reader
from tests.support import tampering
from tests.support.driver import streaming
from tests.support.engines import with_catalog
from tests.support.streams import free
from tests.support.waiting import eventually


@pytest.mark.tier("all")
def test_a_slow_reader_does_not_run_into_the_command_timeout(engine, queue):
    queue.insert(16, size=4 << 20)  # more than any buffer between here and the server takes
    with streaming(engine, queue) as stream:
        assert stream.construct()
        (part,) = stream.plan()
        pause, rows = threading.Event(), 0
        target = replace(Target.of(stream.options), command_timeout=timedelta(seconds=1))
        with mock.patch.object(slice_reader, "open_reader", wraps=open_reader) as opened:
            for batch in SliceReader(target).read(part):
                if rows == 0:
                    pause.wait(2)  # a sink that takes its time
                rows += batch.num_rows
        assert (rows, opened.call_count) == (16, 1)  # a statement that was cut off would be said again


@pytest.mark.tier("all")
def test_a_worker_behind_a_session_that_alters_the_table_fails_its_task_soon(engine, queue, monkeypatch):
    """He waits for the claim, and the claim for the worker. When the batch has failed, he has the table."""
    monkeypatch.setattr(slice_reader, "MOST_WAITING", timedelta(milliseconds=200))
    queue.insert(3)
    with streaming(engine, queue) as stream, ThreadPoolExecutor(1) as operator:
        assert stream.construct()
        (part,) = stream.plan()
        altered = operator.submit(queue.execute, "ALTER TABLE {table} ADD note int NULL")
        eventually(lambda: tampering.a_session_waits(engine))
        with pytest.raises(LockTimeout) as caught:
            list(SliceReader(Target.of(stream.options)).read(part))
        assert str(caught.value).endswith(
            "another session has locked the whole table, or waits to alter it, "
            "which it cannot before this batch is done, while senders wait behind it; give that statement "
            "a lock timeout, or stop the stream for it."
        )
        assert not altered.done()
        stream.crash()
        altered.result(timeout=30)
        stream.drain()
        assert len(stream.ids()) == 3


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
def test_a_worker_names_the_queue_that_is_gone_in_the_remedy(engine, queue, mode):
    queue.insert(3)
    with streaming(engine, queue, transactionMode=mode) as stream:
        assert stream.construct()
        (part,) = stream.plan()
        if mode == "receiveOnly":
            stream.crash()  # its claim keeps the table
        queue.execute("DROP TABLE {table}")
        reader, name = SliceReader(Target.of(stream.options)), with_catalog(engine, "orders")
        with pytest.raises(QueueError, match=f"while reading {re.escape(name)} at ") as caught:
            list((reader.take if mode == "none" else reader.read)(part))
        assert str(caught.value).endswith(f"create it with: sqlqueue create {shell_word(name)}.")


@pytest.mark.parametrize("taken", [False, True])
def test_a_slice_goes_on_after_a_cut_without_missing_a_row(taken, engine, queue):
    """The claim is lost too. A row that another consumer takes then is missed at the end."""
    queue.insert(16, size=4 << 20)
    with streaming(engine, queue) as stream:
        assert stream.construct()
        (part,) = stream.plan()
        batches = SliceReader(Target.of(stream.options)).read(part)
        rows = next(batches)["RowVersion"].to_pylist()
        engine.cut_connections()
        if taken:
            eventually(lambda: free(queue) == 16)
            assert queue.take(16) is not None
        with pytest.raises(ClaimLost) if taken else contextlib.nullcontext():
            for batch in batches:
                rows += batch["RowVersion"].to_pylist()
        assert rows == [*range(1, 16 if taken else 17)]
