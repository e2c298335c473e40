"""Archiving a queue: copied or taken, each row stands in the Delta table once, whatever dies,
comes late or runs beside.
"""

import shutil
import threading
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from chispa import assert_df_equality
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException

from sqlqueue_spark import fail_points, why
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline import ArchiveOptions, copy_to_delta, take_to_delta
from sqlqueue_spark.pipeline.delta import archive
from sqlqueue_spark.pipeline.delta.archive import QueueCopy
from sqlqueue_spark.pipeline.delta.archive_table import ArchiveTable
from tests.support import death_steps, dotnet
from tests.support.drivers import death
from tests.support.jobs import Job
from tests.support.messages import body, headers, message_id, row_id, row_ids
from tests.support.streams import end, ids_in_delta, interpreted, logged, read_delta
from tests.support.waiting import eventually

AT_NIGHT = pytest.mark.tier("nightly")
COLUMNS = [
    "Id", "CorrelationId", "ReplyToAddress", "Recoverable", "Expires", "Headers", "Body", "RowVersion",
    "MessageId", "MessageType", "SentAt", "IngestedAt",
    "FailedQueue", "ExceptionType", "ExceptionMessage", "StackTrace", "ProcessingEndpoint",
    "ProcessingMachine", "OriginatingEndpoint", "TimeOfFailure", "ProcessingStarted", "ProcessingEnded",
    "IsFailure",
]  # fmt: skip


def texts(numbers):
    return sorted(str(each) for each in row_ids(numbers))


class Archive:
    """The queue ``error`` and the table ``folder/delta``; the checkpoint of a stream is
    ``folder/checkpoint``.
    """

    def __init__(self, spark, engine, folder):
        self.spark, self.engine, self.folder = spark, engine, folder
        self.queue = engine.create_queue("error")
        self.source = {"url": engine.url, "queue": "error"}
        self.path = str(folder / "delta")

    def copier(self):
        """As a process that has just started."""
        return QueueCopy(self.spark, self.source, ArchiveTable(self.spark, self.path))

    def copy(self):
        """One round of a new process; how many rows it looked at, and how many it copied."""
        return self.copier().round()

    def take(self, checkpoint="checkpoint", **source):
        options = ArchiveOptions(
            path=self.path, take=True, checkpoint=str(self.folder / checkpoint), available_now=True
        )
        query = take_to_delta(self.spark, {"pollInterval": "100ms", **self.source, **source}, options)
        try:
            assert query.awaitTermination(60), query.status
        finally:
            end(query)

    def ids(self):
        return ids_in_delta(self.spark, self.folder)

    def version(self):
        """How many commits the table has."""
        return len([*(self.folder / "delta" / "_delta_log").glob("*.json")])


class InMemory(ArchiveTable):
    """In place of a Delta table, where a test is of the looks at the queue:
    it takes Delta seconds to merge.
    """

    def __init__(self):
        self.rows = {}

    def version(self):
        """As if only one program wrote."""

    def missing(self, ids):
        return set(ids) - self.rows.keys()

    def merge(self, rows, once=None):  # noqa: ARG002 -- as that of an archive
        new = [row for row in rows.collect() if row.Id not in self.rows]
        self.rows |= {row.Id: row for row in new}
        return len(new)

    def ids(self):
        return sorted(self.rows)


@pytest.fixture
def copy_of(spark, postgresql):
    """The queue ``error``, what stands in for the archive, and who copies,
    as a process that has just started.
    """
    queue, table = postgresql.create_queue("error"), InMemory()
    source = {"url": postgresql.url, "queue": "error"}
    with interpreted():
        yield queue, table, lambda: QueueCopy(spark, source, table)


@pytest.fixture
def archive_of(spark, postgresql, tmp_path):
    with interpreted():
        yield Archive(spark, postgresql, tmp_path)


def test_a_copy_leaves_the_rows_and_is_whole(spark, archive_of):
    """Twice copied is once archived, by one process and by the next one."""
    began = datetime.now(UTC)
    archive_of.queue.insert(3)
    copier = archive_of.copier()
    assert [copier.round()[1], copier.round()[1]] == [3, 0]
    assert (archive_of.copy(), archive_of.queue.count()) == ((3, 0), 3)
    frame = read_delta(spark, archive_of.folder)
    assert frame.columns == COLUMNS
    sent = datetime(2025, 11, 20, 8, 15, 30, 123456, tzinfo=UTC)
    expected = [
        (
            str(row_id(n)), None, None, None, None, headers(n), bytearray(body(n)), n + 1,
            message_id(n), "Shop.Messages.OrderPlaced", sent,
            None, None, None, None, None, None, "Shop.Web", None, None, None, False,
        )
        for n in range(3)
    ]  # fmt: skip
    found = frame.drop("IngestedAt")
    assert_df_equality(found.orderBy("RowVersion"), spark.createDataFrame(expected, found.schema))
    assert frame.where(frame["IngestedAt"].between(began, datetime.now(UTC))).count() == 3


@AT_NIGHT
def test_rows_of_real_endpoints_are_copied_and_taken_alike(spark, postgresql, tmp_path):
    """An acknowledgement is archived too, and is no failure."""
    rows = dotnet.renumbered(
        [*dotnet.rows("error"), *dotnet.rows("servicecontrol/acknowledgement"), *dotnet.rows("audit")]
    )
    dotnet.create_queue(postgresql, "error", rows)
    source = {"url": postgresql.url, "queue": "error"}
    copied, taken = tmp_path / "copied", tmp_path / "taken"
    copy_to_delta(spark, source, ArchiveOptions(path=str(copied)))
    options = ArchiveOptions(
        path=str(taken), take=True, checkpoint=str(tmp_path / "checkpoint"), available_now=True
    )
    query = take_to_delta(spark, source, options)
    assert query.awaitTermination(60)
    end(query)
    frames = [
        spark.read.format("delta").load(str(each)).drop("IngestedAt").orderBy("RowVersion")
        for each in (copied, taken)
    ]
    assert_df_equality(*frames)
    assert [(row.Id, row.Headers, bytes(row.Body)) for row in frames[0].collect()] == [
        (str(row.id), row.headers, row.body) for row in rows
    ]
    failures = [row.Id for row in frames[0].where("IsFailure").collect()]
    assert failures == [str(row.id) for row in dotnet.rows("error")]


@AT_NIGHT
def test_a_row_that_comes_late_is_found(archive_of):
    """Its number is lower than those that were copied before,
    because numbers are given before rows are committed.
    """
    copier = archive_of.copier()
    with archive_of.queue.session() as late:
        late.insert(2)
        archive_of.queue.insert(2, start=2)
        assert copier.round()[1] == 2
        late.commit()
    assert archive_of.queue.row_versions() == [1, 2, 3, 4]
    assert (copier.round()[1], archive_of.ids()) == (2, texts(range(4)))


def test_a_row_that_failed_again_is_another_row(copy_of):
    """Same message id, other row id."""
    queue, table, copier = copy_of
    copier = copier()
    for number in (1, 2):
        queue.insert_row(id=row_id(number), headers=headers(7), body=b"{}")
        assert copier.round()[1] == 1
        queue.take()
    assert [(row.Id, row.MessageId) for row in table.rows.values()] == [
        (str(row_id(1)), message_id(7)),
        (str(row_id(2)), message_id(7)),
    ]


def test_numbers_that_begin_again_hide_nothing(copy_of):
    """After a TRUNCATE other rows have the numbers of those that were copied."""
    queue, table, copier = copy_of
    copier = copier()
    queue.insert(3)
    copier.round()
    queue.execute("TRUNCATE {table} RESTART IDENTITY")
    queue.insert(4, start=3)
    assert queue.row_versions() == [1, 2, 3, 4]
    assert (copier.round()[1], table.ids()) == (4, texts(range(7)))


def test_a_row_that_comes_back_under_another_number_is_not_doubled(copy_of):
    """An operator has put it aside, and back."""
    queue, table, copier = copy_of
    first = copier()
    queue.insert(2)
    first.round()
    queue.execute("UPDATE {table} SET seq = seq + 10")
    assert (first.round()[1], copier().round()[1], table.ids()) == (0, 0, texts(range(2)))


def test_a_round_without_new_rows_writes_nothing(archive_of):
    """And reads no row whole, not even in a new process."""
    archive_of.queue.insert(5)
    archive_of.copy()
    before = archive_of.version()
    copier = archive_of.copier()
    copier._read = None
    assert [copier.round()[1] for _ in range(2)] == [0, 0]
    assert archive_of.version() == before


@pytest.mark.parametrize(
    "goes_back", ["restored", *(pytest.param(each, marks=AT_NIGHT) for each in ("emptied", "made anew"))]
)
def test_an_archive_that_goes_back_gets_again_what_stands_in_the_queue(spark, archive_of, goes_back):
    """By the same process, and each row once."""
    copier = archive_of.copier()
    for number in range(3):
        archive_of.queue.insert(1, start=number)
        assert copier.round()[1] == 1
    archive_of.queue.take()
    if goes_back == "restored":
        DeltaTable.forPath(spark, archive_of.path).restoreToVersion(1)
    elif goes_back == "emptied":
        DeltaTable.forPath(spark, archive_of.path).delete()
    else:
        shutil.rmtree(archive_of.path)
    archive_of.queue.insert(1, start=3)
    assert [copier.round()[1] for _ in range(2)] == [3, 0]
    assert archive_of.ids() == texts(range(4) if goes_back == "restored" else range(1, 4))


@AT_NIGHT
def test_a_row_that_was_found_is_not_looked_up_again_while_no_other_program_writes(archive_of, monkeypatch):
    """A row that the round itself has merged is."""
    missing, asked = ArchiveTable.missing, []

    def asking(self, ids):
        asked.append(len(ids))
        return missing(self, ids)

    monkeypatch.setattr(ArchiveTable, "missing", asking)
    archive_of.queue.insert(3)
    archive_of.copy()
    copier = archive_of.copier()
    copier.round()
    archive_of.queue.insert(1, start=3)
    copier.round()
    copier.round()
    copier.round()
    assert asked == [3, 3, 1, 1]


@AT_NIGHT
def test_an_archive_that_goes_back_while_a_round_writes_is_looked_at_in_the_next(
    spark, archive_of, monkeypatch
):
    merge = ArchiveTable.merge
    copier = archive_of.copier()
    for number in range(2):
        archive_of.queue.insert(1, start=number)
        copier.round()

    def after_a_restore(self, rows, once=None):
        DeltaTable.forPath(spark, archive_of.path).delete()
        return merge(self, rows, once or {})

    archive_of.queue.insert(1, start=2)
    with monkeypatch.context() as restoring:
        restoring.setattr(ArchiveTable, "merge", after_a_restore)
        assert copier.round()[1] == 1
    assert archive_of.ids() == texts([2])
    assert (copier.round()[1], archive_of.ids()) == (2, texts(range(3)))


def test_a_row_that_is_gone_when_it_is_read_is_looked_for_again(copy_of, monkeypatch):
    """A receiver holds it, and gives it back: what was looked at does not count, what was read does."""
    queue, table, copier = copy_of
    copier = copier()
    queue.insert(2)
    with monkeypatch.context() as receiver:
        receiver.setattr(fail_points, "step", lambda _: queue.take(1))
        assert copier.round()[1] == 1
    assert table.ids() == texts([1])
    queue.insert(1)
    queue.execute("UPDATE {table} SET seq = 1 WHERE seq = 3")
    assert (copier.round()[1], table.ids()) == (1, texts(range(2)))


def test_much_is_merged_in_portions(copy_of, monkeypatch):
    """Asked to stop, a round ends between two of them; the next one goes on there."""
    monkeypatch.setattr(archive, "_MOST_ROWS", 2)
    queue, table, copier = copy_of
    copier = copier()
    queue.insert(5)
    asked = iter([False, True])
    assert copier.round(lambda: next(asked))[1] == 2
    assert (copier.round()[1], table.ids()) == (3, texts(range(5)))


@pytest.mark.parametrize("step", death_steps.COPYING_STEPS)
def test_a_copy_that_dies_anywhere_doubles_and_loses_nothing(copy_of, monkeypatch, step):
    def die(reached):
        if reached == step:
            raise KeyboardInterrupt

    queue, table, copier = copy_of
    queue.insert(4)
    with monkeypatch.context() as dying:
        dying.setattr(fail_points, "step", die)
        with pytest.raises(KeyboardInterrupt):
            copier().round()
    queue.insert(2, start=4)
    assert copier().round()[1] == (6 if step == fail_points.ROWS_LOOKED_AT else 2)
    assert (table.ids(), queue.count()) == (texts(range(6)), 6)


@AT_NIGHT
def test_copies_that_run_at_once_double_nothing(archive_of, monkeypatch):
    """Three find the same rows missing, also before there is a table; Delta lets one of them merge at a time.
    Nor does an Id that two rows of the queue have, as SQL Server allows it.
    """
    archive_of.queue.insert(20)
    archive_of.engine.execute("ALTER TABLE error DROP CONSTRAINT error_pkey")
    archive_of.queue.insert(1)
    together = threading.Barrier(3, timeout=60)
    missing = ArchiveTable.missing

    def all_miss(self, ids):
        found = missing(self, ids)
        together.wait()
        return found

    monkeypatch.setattr(ArchiveTable, "missing", all_miss)
    copiers = [archive_of.copier() for _ in range(3)]
    copied = []
    threads = [threading.Thread(target=lambda each=each: copied.append(each.round()[1])) for each in copiers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sorted(copied), archive_of.ids()) == ([0, 0, 20], texts(range(20)))


def test_what_was_copied_is_taken_without_being_doubled(archive_of):
    """A batch in which every row is there already is a batch all the same;
    a copy goes on beside what was taken.
    """
    archive_of.queue.insert(3)
    archive_of.copy()
    archive_of.take(maxMessagesPerTrigger="3")
    assert (archive_of.ids(), archive_of.queue.count()) == (texts(range(3)), 0)
    archive_of.queue.insert(4, start=3)
    archive_of.copy()
    archive_of.queue.insert(3, start=7)
    archive_of.take(maxMessagesPerTrigger="5")
    assert (archive_of.ids(), archive_of.queue.count()) == (texts(range(10)), 0)
    assert logged(archive_of.folder, "commits") == logged(archive_of.folder, "offsets") == [0, 1, 2]


def test_rows_of_two_queues_with_one_id_are_taken_both(archive_of):
    """``peek --json`` and ``send --from`` keep Ids, and a sender may choose one."""
    audit = archive_of.engine.create_queue("audit")
    for queue in (audit, archive_of.queue):
        queue.insert(3)
    archive_of.source = {"url": archive_of.engine.url, "queues": '["audit", "error"]'}
    archive_of.take()
    assert (archive_of.ids(), audit.count(), archive_of.queue.count()) == (sorted(2 * texts(range(3))), 0, 0)


def test_an_archive_of_one_queue_takes_no_rows_of_several(archive_of):
    archive_of.queue.insert(1)
    archive_of.take()
    archive_of.queue.insert(1, start=1)
    archive_of.source = {"url": archive_of.engine.url, "queues": '["error"]'}
    with pytest.raises(StreamingQueryException) as refused:
        archive_of.take("another")
    assert why(refused.value) == (
        f"The Delta table {archive_of.path} is the archive of one queue, by its columns; give the rows of "
        "several queues a table of their own."
    )
    assert archive_of.queue.count() == 1


def test_an_archive_of_several_queues_takes_no_rows_of_one(archive_of):
    """Without the name of its queue a row passes for one of another queue with its Id, or comes twice."""
    archive_of.queue.insert(1)
    source = archive_of.source
    archive_of.source = {"url": archive_of.engine.url, "queues": '["error"]'}
    archive_of.take()
    archive_of.source = source
    archive_of.queue.insert(1, start=1)
    with pytest.raises(ConfigurationError) as refused:
        archive_of.copy()
    assert str(refused.value) == (
        f"The Delta table {archive_of.path} is the archive of several queues, by its columns; give the "
        "rows of one queue a table of their own."
    )
    assert archive_of.ids() == texts([0])


@pytest.mark.parametrize("mode", ["none", "sendsAtomicWithReceive"])
def test_a_mode_in_which_an_archive_would_lack_rows_is_refused(archive_of, mode):
    """A merge that Delta refuses is tried again, and with none the rows have gone by then."""
    with pytest.raises(
        ConfigurationError, match=f"The option transactionMode is {mode}, with which the Delta"
    ):
        archive_of.take(transactionMode=mode, stream="S")


@AT_NIGHT
def test_a_batch_that_was_taken_and_not_logged_is_taken_once(archive_of):
    """A checkpoint that has gone back further is refused, as that of any stream into Delta."""

    def forget(log, batch):
        for name in (f"{batch}", f".{batch}.crc"):
            (archive_of.folder / "checkpoint" / log / name).unlink()

    archive_of.queue.insert(3)
    archive_of.take()
    forget("commits", 0)
    archive_of.queue.insert(2, start=3)
    archive_of.take()
    assert (archive_of.ids(), archive_of.queue.count()) == (texts(range(5)), 0)
    forget("commits", 1)
    forget("offsets", 1)
    with pytest.raises(ConfigurationError, match="has gone back: its newest is batch 0"):
        archive_of.take()


def test_an_archive_of_another_version_gets_the_columns_that_it_lacks(spark, archive_of):
    """It may have columns of its own, too."""
    archive_of.queue.insert(1)
    rows = spark.read.format("sqlqueue").options(**archive_of.source).load()
    rows.selectExpr("*", "'kept' AS Note").drop("Body").write.format("delta").save(archive_of.path)
    archive_of.queue.insert(1, start=1)
    assert archive_of.copy() == (2, 1)
    found = (
        read_delta(spark, archive_of.folder)
        .orderBy("RowVersion")
        .select("Note", "Body", "MessageId")
        .collect()
    )
    assert [tuple(row) for row in found] == [("kept", None, None), (None, bytearray(body(1)), message_id(1))]


def test_a_copy_goes_on_until_its_stop_file_comes(spark, archive_of, tmp_path):
    """It says each round in which it has copied something. A file that stops it is removed."""
    stop = tmp_path / "stop"
    lines: list[str] = []
    options = ArchiveOptions.parse({"path": archive_of.path, "every": "100ms"})
    archive_of.queue.insert(2)

    def act():
        eventually(lambda: len(lines) == 1)
        archive_of.queue.insert(3, start=2)
        eventually(lambda: len(lines) == 2)
        stop.touch()

    acting = threading.Thread(target=act)
    acting.start()
    done = copy_to_delta(spark, {**archive_of.source, "stopFile": str(stop)}, options, lines.append)
    acting.join()
    assert [line.split()[1:3] for line in lines] == [["rows=2", "copied=2"], ["rows=5", "copied=3"]]
    assert (done.rows, done.rounds >= 2, stop.exists()) == (5, True, False)
    assert (archive_of.ids(), archive_of.queue.count()) == (texts(range(5)), 5)


@pytest.mark.slow
@pytest.mark.tier("nightly")
@pytest.mark.timeout(300)
def test_the_job_is_killed_stopped_and_started_again(archive_of, tmp_path, monkeypatch):
    """As spark-submit runs it: killed when it has merged and not noted it, then until a signal comes."""
    archive_of.queue.insert(4)
    with ExitStack() as started:

        def job(*more):
            each = Job("archive", archive_of.engine.url, tmp_path, "--path", archive_of.path, *more)
            started.callback(each.kill)
            return each

        with monkeypatch.context() as dying:
            for name, value in death.orders(tmp_path / "steps", fail_points.ROWS_COPIED, 1).items():
                dying.setenv(name, value)
            dying.setenv("PYTHONPATH", str(tmp_path.cwd()))
            assert job().ended() != 0
        assert (tmp_path / "steps").read_text().splitlines() == [*death_steps.COPYING_STEPS]
        archive_of.queue.insert(2, start=4)
        runs = job("--every", "200ms")
        runs.goes_on(lambda: [line for line in runs.lines if line.startswith("round=")])
        runs.process.terminate()
        assert runs.ended() == 0, runs.report()
        assert [line.split(" ", 1)[0] for line in runs.lines] == ["copying", "round=1", "Stops", "copied=2"]
        assert (archive_of.ids(), archive_of.queue.count()) == (texts(range(6)), 6)
