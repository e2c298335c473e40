"""A checkpoint that goes back while Delta remembers more:
refused before the start or before Spark logs; no message is lost.
"""

import shutil
import threading
from datetime import UTC, datetime

import pytest
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrameWriter

from sqlqueue_spark import why
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline import DeltaOptions, with_message_columns, write_delta
from sqlqueue_spark.pipeline.delta import delta_writer
from tests.support.jobs import LONG, Job
from tests.support.messages import row_ids
from tests.support.streams import end, free, ids_in_delta, interpreted, java_says, logged, start, stream
from tests.support.waiting import eventually

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
AGAIN = "it loses nothing, and only rows of the last batch that a crash left in the queue come twice"


def texts(numbers):
    return sorted(str(each) for each in row_ids(numbers))


class Drain:
    """A queue into the Delta table ``folder/delta``, batches of 10;
    its checkpoint is ``folder/checkpoint``.
    """

    def __init__(self, spark, engine, folder):
        self.spark, self.engine, self.folder = spark, engine, folder
        self.queue = engine.create_queue()

    @property
    def checkpoint(self):
        return self.folder / "checkpoint"

    def begin(self, checkpoint="checkpoint", frame=None, available_now=True):
        options = DeltaOptions(
            path=str(self.folder / "delta"),
            checkpoint=str(self.folder / checkpoint),
            available_now=available_now,
        )
        with interpreted():
            return write_delta(self.frame() if frame is None else frame, options)

    def frame(self, **options):
        given = {"maxMessagesPerTrigger": 10, "claimAhead": False, **options}
        return with_message_columns(stream(self.spark, self.engine, self.queue, **given))

    def run(self, checkpoint="checkpoint", frame=None):
        """Until nothing is left."""
        query = self.begin(checkpoint, frame)
        try:
            assert query.awaitTermination(60), query.status
        finally:
            end(query)

    def natively(self, checkpoint="checkpoint"):
        """As Spark's own sink for Delta does it."""
        folder = str(self.folder / checkpoint)
        writer = self.frame().writeStream.format("delta").option("checkpointLocation", folder)
        query = start(writer.option("path", str(self.folder / "delta")).trigger(availableNow=True))
        assert query.awaitTermination(60), query.status
        end(query)

    def copy(self, to):
        shutil.copytree(self.checkpoint, self.folder / to)

    def restore(self, backup):
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.folder / backup, self.checkpoint)

    def remove(self, *files):
        for file in files:
            (self.checkpoint / file).unlink()
            (self.checkpoint / file).with_name(f".{(self.checkpoint / file).name}.crc").unlink()

    def ids(self):
        return ids_in_delta(self.spark, self.folder)

    def has_gone_back(self, newest, known):
        return (
            f"The checkpoint {self.checkpoint} has gone back: its newest is {newest}, but the Delta table "
            f"{self.folder / 'delta'} has batch {known} of its query and would drop new messages under the "
            f"numbers that it has; give the newest checkpoint, or a new folder: {AGAIN}."
        )

    def is_anothers(self, batch, checkpoint, has="it"):
        return (
            f"Batch {batch} is not logged and its messages stay in the queue, because the Delta table "
            f"{self.folder / 'delta'} has {has} from another stream, which runs on a copy of the checkpoint "
            f"{self.folder / checkpoint}; give this stream a new folder: {AGAIN}."
        )


@pytest.fixture
def drain(spark, postgresql, tmp_path):
    return Drain(spark, postgresql, tmp_path)


def killed(*_):
    raise RuntimeError("killed")


def refusal(start):
    with pytest.raises(ConfigurationError) as refused:
        start()
    return str(refused.value)


def test_a_checkpoint_of_an_older_backup_is_refused(drain):
    """A new folder loses nothing."""
    drain.queue.insert(10)
    drain.run()
    drain.copy("backup")
    drain.queue.insert(20, start=10)
    drain.run()
    drain.restore("backup")
    drain.queue.insert(20, start=30)
    assert refusal(drain.begin) == drain.has_gone_back("batch 0", 2)
    assert drain.queue.count() == 20
    drain.run("new")
    assert (drain.ids(), drain.queue.count()) == (texts(range(50)), 0)


def test_a_checkpoint_that_lost_files_is_refused(drain):
    """Its newest ones, or the folder offsets."""
    drain.queue.insert(20)
    drain.run()
    drain.remove("offsets/1", "commits/1")
    assert refusal(drain.begin) == drain.has_gone_back("batch 0", 1)
    shutil.rmtree(drain.checkpoint / "offsets")
    assert refusal(drain.begin) == drain.has_gone_back("no batch", 1)


@pytest.mark.parametrize("lost", [True, False])
def test_a_table_that_is_put_back_while_a_batch_is_begun_loses_none(drain, monkeypatch, lost):
    """Delta still knows the number of the batch and would skip its rows, if it lacks them."""
    drain.queue.insert(10)
    drain.run()
    drain.queue.insert(10, start=10)
    with monkeypatch.context() as dying:
        dying.setattr(delta_writer, "check_written", killed)
        with pytest.raises(StreamingQueryException, match="killed"):
            drain.run()
    eventually(lambda: free(drain.queue) == 10)
    table = DeltaTable.forPath(drain.spark, str(drain.folder / "delta"))
    [newest] = table.history(1).collect()
    if not lost:
        nothing = drain.spark.createDataFrame([], table.toDF().schema)
        nothing.write.format("delta").mode("append").save(str(drain.folder / "delta"))
    table.restoreToVersion(newest.version - lost)
    if lost:
        with pytest.raises(StreamingQueryException) as refused:
            drain.run()
        assert why(refused.value) == (
            "Batch 1 is not logged and its messages stay in the queue, because the Delta table "
            f"{drain.folder / 'delta'} was put back to a version without it, and Delta would not write it "
            f"again; give this stream a new folder: {AGAIN}."
        )
        assert drain.queue.count() == 10
    drain.run("new" if lost else "checkpoint")
    assert (drain.ids(), drain.queue.count()) == (texts(range(20)), 0)


@pytest.mark.parametrize("left", ["", '{"id":"7e'], ids=["empty", "cut"])
def test_a_checkpoint_with_half_its_metadata_is_refused(drain, left):
    """A power loss may leave it so."""
    drain.queue.insert(10)
    drain.run()
    drain.remove("metadata")
    (drain.checkpoint / "metadata").write_text(left)
    assert "has no file metadata that names its query" in refusal(drain.begin)


def test_a_checkpoint_without_metadata_is_refused(drain):
    drain.queue.insert(10)
    drain.run()
    drain.remove("metadata")
    assert refusal(drain.begin) == (
        f"The checkpoint {drain.checkpoint} has no file metadata that names its query, "
        f"so it is not known which of its batches the Delta table {drain.folder / 'delta'} has; put the file "
        f"back, or give a new folder: {AGAIN}."
    )


def test_a_checkpoint_one_step_back_is_a_replay(drain):
    """Also of a batch that Spark's own sink has written."""
    drain.queue.insert(10)
    drain.natively()
    drain.remove("commits/0")
    drain.queue.insert(10, start=10)
    drain.run()
    assert (drain.ids(), drain.queue.count()) == (texts(range(20)), 0)
    drain.remove("commits/1")
    drain.queue.insert(10, start=20)
    drain.run()
    assert (drain.ids(), drain.queue.count()) == (texts(range(30)), 0)
    assert logged(drain.folder, "commits") == logged(drain.folder, "offsets") == [0, 1, 2]


def test_a_batch_that_died_is_replayed(drain, monkeypatch):
    """Before Delta had it, or after."""
    drain.queue.insert(10)
    for owner, attribute, batches in ((DataFrameWriter, "save", 0), (delta_writer, "check_written", 1)):
        with monkeypatch.context() as patched:
            patched.setattr(owner, attribute, killed)
            with pytest.raises(StreamingQueryException, match="killed"):
                drain.run()
        assert (logged(drain.folder, "offsets"), logged(drain.folder, "commits")) == ([0], [])
        assert (drain.folder / "delta").exists() == bool(batches)
    drain.run()
    assert (drain.ids(), drain.queue.count()) == (texts(range(10)), 0)


@pytest.fixture(params=[False, True], ids=["default", "rocksdb"])
def states(spark, request):
    """How Spark keeps states: as it does by default, or in files whose names the commit log holds."""
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    given = {"providerClass": rocksdb, "checkpointFormatVersion": "2"} if request.param else {}
    for name, value in given.items():
        spark.conf.set(f"spark.sql.streaming.stateStore.{name}", value)
    yield
    for name in given:
        spark.conf.unset(f"spark.sql.streaming.stateStore.{name}")


@pytest.mark.tier("nightly")
@pytest.mark.usefixtures("states")
def test_a_batch_that_delta_has_goes_on_with_its_state(drain, monkeypatch):
    """Spark ends a query whose batch has computed no state."""
    frame = drain.frame().dropDuplicates(["Id"])
    drain.queue.insert(10)
    with monkeypatch.context() as dying:
        dying.setattr(delta_writer, "check_written", killed)
        with pytest.raises(StreamingQueryException, match="killed"):
            drain.run(frame=frame)
    drain.run(frame=frame)
    drain.queue.insert(20)  # of which the state knows ten
    drain.run(frame=frame)
    assert (drain.ids(), drain.queue.count()) == (texts(range(20)), 0)


@pytest.mark.parametrize("lost", [False, True])
def test_a_batch_whose_number_delta_has_forgotten_comes_once(drain, monkeypatch, lost):
    """As ``delta.setTransactionRetentionDuration`` lets it. The commit says whether Delta has the batch."""
    drain.queue.insert(10)
    drain.run()
    table = f"delta.`{drain.folder / 'delta'}`"
    forgets = "'delta.setTransactionRetentionDuration' = 'interval 0 seconds'"
    drain.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({forgets})")
    drain.queue.insert(10, start=10)
    owner, attribute = (DataFrameWriter, "save") if lost else (delta_writer, "check_written")
    with monkeypatch.context() as dying:
        dying.setattr(owner, attribute, killed)
        with pytest.raises(StreamingQueryException, match="killed"):
            drain.run()
    drain.run()
    assert (drain.ids(), drain.queue.count()) == (texts(range(20)), 0)


def test_a_copy_is_refused_once_the_original_went_on(drain):
    drain.queue.insert(10)
    drain.run()
    drain.copy("copy")
    drain.queue.insert(10, start=10)
    drain.run()
    drain.queue.insert(10, start=20)
    assert refusal(lambda: drain.begin("copy")) == drain.has_gone_back("batch 0", 1).replace(
        str(drain.checkpoint), str(drain.folder / "copy")
    )
    drain.run()
    assert (drain.ids(), drain.queue.count()) == (texts(range(30)), 0)


@pytest.mark.parametrize("write", [Drain.run, Drain.natively])
def test_an_original_ends_when_a_copy_has_its_batch(drain, write):
    """The original died with its batch 1 begun; the copy has written a batch 1 of other messages.

    Spark's own sink leaves no mark, but the batch before has one.
    """
    drain.queue.insert(10)
    drain.run()
    drain.copy("copy")
    drain.queue.insert(10, start=10)

    frame = drain.frame()
    with pytest.raises(StreamingQueryException, match="killed"):
        drain.run(frame=frame.mapInArrow(lambda batches: map(killed, batches), frame.schema))
    assert (logged(drain.folder, "offsets"), logged(drain.folder, "commits")) == ([0, 1], [0])
    eventually(lambda: free(drain.queue) == 10)
    with drain.queue.session() as other:
        for _ in range(10):
            other.take()
        drain.queue.insert(10, start=20)
        write(drain, "copy")  # which steps over what another receiver holds
        other.rollback()
    assert (drain.ids(), drain.queue.count()) == (texts([*range(10), *range(20, 30)]), 10)
    with pytest.raises(StreamingQueryException) as refused:
        drain.run()
    assert why(refused.value) == drain.is_anothers(1, "checkpoint")
    assert (logged(drain.folder, "commits"), drain.queue.count()) == ([0], 10)
    eventually(lambda: free(drain.queue) == 10)
    drain.run("new")
    assert (drain.ids(), drain.queue.count()) == (texts(range(30)), 0)


@pytest.mark.slow
@pytest.mark.tier("nightly")
def test_one_of_two_streams_on_copies_of_a_checkpoint_ends(drain):
    """Nothing is lost. Another process writes its batch 1 while the original is in the middle of its own."""
    drain.queue.insert(10)
    drain.run()
    drain.copy("copy")
    drain.queue.insert(40, start=10)
    reached, go = drain.folder / "reached", drain.folder / "go"

    def wait(batches):
        for batch in batches:
            reached.touch()
            eventually(go.exists, within=LONG)
            yield batch

    frame = drain.frame()
    original = drain.begin(frame=frame.mapInArrow(wait, frame.schema))
    eventually(reached.exists)
    copy = Job("drain_to_delta", drain.engine.url, drain.folder, "--path", drain.folder / "delta",
               "--checkpoint", drain.folder / "copy", "--available-now")  # fmt: skip
    assert copy.ended() == 0, copy.report()
    assert [(batch, messages) for batch, messages, *_ in copy.batches] == [(1, 30)]
    go.touch()
    with pytest.raises(StreamingQueryException) as refused:
        original.awaitTermination(60)
    end(original)
    assert why(refused.value) == drain.is_anothers(1, "checkpoint")
    assert (logged(drain.folder, "commits"), drain.queue.count()) == ([0], 10)
    eventually(lambda: free(drain.queue) == 10)
    drain.run("copy")
    assert (drain.ids(), drain.queue.count()) == (texts(range(50)), 0)


def test_a_query_stopped_during_a_batch_has_no_error(drain, spark):
    reached = drain.folder / "reached"

    def wait(batches):
        reached.touch()
        threading.Event().wait(60)
        yield from batches

    drain.queue.insert(10)
    frame = drain.frame()
    with java_says(spark) as said:
        query = drain.begin(frame=frame.mapInArrow(wait, frame.schema), available_now=False)
        eventually(reached.exists)
        end(query)
    assert (query.exception(), said) == (None, [""])
    drain.run()
    assert (drain.ids(), drain.queue.count()) == (texts(range(10)), 0)


def test_a_batch_of_expired_messages_alone_is_done(drain):
    """The messages after it come."""
    drain.queue.insert(5, expires=LONG_AGO)
    drain.queue.insert(1, start=5)
    drain.run()
    drain.queue.insert(5, start=6, expires=LONG_AGO)
    drain.run()
    drain.queue.insert(5, start=20)
    drain.run()
    assert (drain.ids(), drain.queue.count()) == (texts([5, *range(20, 25)]), 0)
