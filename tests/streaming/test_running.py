"""A query that is run until it is stopped: what is reported of it, and what its source hears."""

import json
import threading

import pytest
from pyspark.errors import StreamingQueryException

from sqlqueue_spark.pipeline import run_until_stopped, stoppable
from sqlqueue_spark.pipeline.running.batch_report import BatchReport
from sqlqueue_spark.pipeline.running.stop import CHILD_ENDED
from tests.support.streams import drain, end, free, logged, start, stream, to_each
from tests.support.waiting import eventually


def killed(*_):
    raise RuntimeError("killed")


def read(batch, _):
    batch.collect()


class Heard(BatchReport):
    """What a query's progress says when it comes, and which batches the commit log has then."""

    def __init__(self, folder):
        super().__init__("", lambda _: None)
        self._folder = folder
        self.batches = []

    def onQueryProgress(self, event):  # noqa: N802 -- Spark's name
        (source,) = event.progress.sources
        self.batches.append((event.progress.batchId, source.endOffset, logged(self._folder, "commits")))


def test_the_line_of_a_replayed_batch_is_reported(spark, postgresql, tmp_path, capfd):
    """After a crash: Spark has no latest offset then, and says ``None``."""
    queue = postgresql.create_queue()
    queue.insert(50)
    frame = stream(spark, postgresql, queue)
    with pytest.raises(StreamingQueryException, match="killed"):
        drain(to_each(frame, tmp_path, killed))
    assert (logged(tmp_path, "offsets"), logged(tmp_path, "commits")) == ([0], [])

    lines: list[str] = []
    query = start(to_each(frame, tmp_path, read).trigger(availableNow=True))
    totals = run_until_stopped(
        spark, query, tmp_path / "stop", lines.append, details=lambda batch: f"b={batch}"
    )
    assert (totals.messages, totals.batches, queue.count()) == (50, 1, 0)
    (line,) = lines
    assert line.startswith("batch=0 messages=50 rate=")
    assert line.endswith("/s waiting=? oldest=?s b=0")
    assert "JSONDecodeError" not in "".join(capfd.readouterr())


def test_an_event_tells_the_offset_of_a_logged_batch(spark, postgresql, tmp_path):
    """The offset that the checkpoint has."""
    queue = postgresql.create_queue()
    queue.insert(20)
    heard = Heard(tmp_path)
    spark.streams.addListener(heard)
    try:
        drain(to_each(stream(spark, postgresql, queue, maxMessagesPerTrigger=10), tmp_path, read))
        eventually(lambda: len(heard.batches) >= 2)
    finally:
        spark.streams.removeListener(heard)
    for batch, (number, said, commits) in enumerate(heard.batches[:2]):
        kept = (tmp_path / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[2]
        assert (number, json.loads(said)) == (batch, json.loads(kept))
        assert batch in commits


@pytest.mark.parametrize("named", [False, True])
def test_a_batch_is_settled_before_the_next_trigger(spark, postgresql, tmp_path, named):
    """As soon as it is done; nor are its rows given back when the query is stopped."""
    queue = postgresql.create_queue()
    queue.insert(30)
    own = {"doneFile": str(tmp_path / "told"), "StopFile": str(tmp_path / "halt")} if named else {}
    if named:
        (tmp_path / "told").write_text("[]")
    lines: list[str] = []
    with stoppable(own) as (stopping, stop_file, done_file):
        assert done_file.exists() is False
        assert (stop_file, done_file) == (
            (tmp_path / "halt", tmp_path / "told")
            if named
            else (done_file.with_name("stop"), stop_file.with_name("done"))
        )
        frame = stream(spark, postgresql, queue, maxMessagesPerTrigger=10, **stopping)
        writer = to_each(frame, tmp_path, read).trigger(processingTime="1 hour")
        query = start(writer)

        def stop_when_settled():
            eventually(lambda: queue.count() == 20)
            end(query)

        stopping_it = threading.Thread(target=stop_when_settled)
        stopping_it.start()
        run_until_stopped(spark, query, stop_file, lines.append, done_file=done_file)
        stopping_it.join()
    assert queue.count() == 20
    eventually(lambda: free(queue) == 20)  # a server takes its time to end a session
    assert len(lines) == 1
    assert done_file.exists() is False


@pytest.mark.parametrize("trigger, rests", [("0 seconds", False), ("1 hour", True)])
def test_a_query_stops_after_the_batch_under_way(spark, postgresql, tmp_path, trigger, rests):
    """Also where another source of the query never rests, or the next trigger is far away."""
    queue = postgresql.create_queue()
    queue.insert(30)
    with stoppable({}) as (stopping, stop_file, done_file):
        frame = stream(spark, postgresql, queue, **stopping).select("RowVersion")
        if not rests:
            ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            frame = frame.union(ticks.select("value"))
        query = start(to_each(frame, tmp_path, read).trigger(processingTime=trigger))
        late = threading.Timer(30, query.stop)
        late.start()
        totals = run_until_stopped(spark, query, stop_file, lambda _: stop_file.touch(), done_file=done_file)
        assert late.is_alive()
        late.cancel()
    assert (totals.stopped, queue.count()) == (True, 0)


@pytest.mark.parametrize(
    "said, hit",
    [
        (
            (
                '[STREAM_FAILED] … Cannot run program "chmod": error=0, Failed to exec spawn helper: pid: '
                "32689, signal: 2 SQLSTATE"
            ),
            True,
        ),
        ("[STREAM_FAILED] … Failed to exec spawn helper: pid: 32689, signal: 15", True),
        ("[STREAM_FAILED] … ExitCodeException exitCode=130: ", True),
        ("[STREAM_FAILED] … Failed to exec spawn helper: pid: 32689, exit value: 1", False),
        ("[STREAM_FAILED] … ExitCodeException exitCode=1: chmod: cannot access '/data'", False),
        ('[STREAM_FAILED] … relation "orders" does not exist', False),
    ],
)
def test_a_signal_that_hit_a_child_of_java_is_told_from_other_failures(said, hit):
    """The first text was seen at a Ctrl-C while Hadoop's chmod of a checkpoint's file began."""
    assert bool(CHILD_ENDED.search(said)) is hit
