"""``kill -9`` at every named step of a micro-batch: after a restart each message is in Delta exactly once."""

import pytest

from sqlqueue_spark import faults
from sqlqueue_spark.embedded import GUARDED_ROLE
from tests.support.children import Drain
from tests.support.drivers import death, drain
from tests.support.messages import row_ids

KILLED, ENDED = -9, 0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def state(queue, child):
    """Rows left in the queue, batches whose offset is logged, batches whose commit is logged."""
    return queue.count(), len(child.logged("offsets")), len(child.logged("commits"))


def arrived(spark, folder, table="delta"):
    ids = spark.read.format("delta").load(str(folder / table)).select("Id").collect()
    return sorted(row.Id for row in ids)


def sent(messages):
    return [str(each) for each in row_ids(range(messages))]


def files_that_tell(folder, secret):
    """Among what the runs said, their event logs, their checkpoint and their table."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {"said-0.txt", "metadata"} <= {file.name for file in files}
    assert any(b"sqlqueue" in file.read_bytes() for file in (folder / "events").iterdir())
    return [str(file) for file in files if secret.encode() in file.read_bytes()]


def test_the_delta_sink_gets_each_message_once_whatever_step_everything_dies_at(
    spark, postgresql, guarded_url, tmp_path
):
    """A chain over one queue and one checkpoint: each run takes up what the one before left, and dies later.

    Batches have two slices, and before each run 50 messages arrive. The most rows of a batch change from run to
    run: the same claim once more would hide that the last batch was never deleted. The url holds a password,
    which none of the runs may tell.
    """
    queue = postgresql.create_queue()
    postgresql.execute(f"GRANT SELECT, UPDATE, DELETE ON orders TO {GUARDED_ROLE}")
    child = Drain(url=guarded_url, queue=queue.address, folder=tmp_path, sink="delta")
    deaths = [
        # most rows, step, nth time; then: rows in the queue, offsets logged, commits logged; messages in Delta
        (100, faults.ROWS_LOCKED, 2, (100, 1, 1), 100),
        (80, faults.OFFSET_LOGGED, 1, (150, 2, 1), 100),
        (100, faults.HALF_READ, 2, (200, 2, 1), 100),
        (80, faults.COMMIT_LOGGED, 1, (250, 2, 2), 180),
        (100, faults.DELETED, 1, (220, 3, 3), 280),
        (80, faults.COMMITTED, 1, (90, 4, 4), 360),
    ]
    assert tuple(step for _, step, *_ in deaths) == faults.STEPS
    messages = queue.insert(150).stop
    for number, (limit, step, nth, left, written) in enumerate(deaths):
        messages = queue.insert(50, start=messages).stop
        code = child.run(death.orders(tmp_path / f"steps-{number}", step, nth), limit=limit)
        assert (step, code, state(queue, child)) == (step, KILLED, left)
        ids = arrived(spark, tmp_path)
        assert (step, len(ids), len(set(ids))) == (step, written, written)
        assert (step, sorted({*ids, *map(str, queue.ids())})) == (step, sent(messages))

    # The last run loses a worker in the middle of a slice; Spark tries that task again.
    messages = queue.insert(50, start=messages).stop
    code = child.run(death.orders(tmp_path / "steps-last", faults.HALF_READ, 1, "this process"))
    assert (code, state(queue, child)) == (ENDED, (0, 6, 6))
    assert (tmp_path / "steps-last").read_text().splitlines().count(faults.HALF_READ) == 4
    assert arrived(spark, tmp_path) == sent(messages)
    assert files_that_tell(tmp_path, "sesame") == []


def test_without_a_transaction_a_death_loses_what_its_batch_had_taken_and_doubles_nothing(
    spark, postgresql, tmp_path
):
    """A chain as above. In each batch two workers take fifty rows each, with one statement."""
    queue = postgresql.create_queue()
    child = Drain(url=postgresql.url, queue=queue.address, folder=tmp_path, sink="delta", mode="none")
    deaths: list[tuple[str, int, death.Who, int, tuple[int, int, int]]] = [
        # step, nth time, who; then: the run's end, rows in the queue, offsets logged, commits logged
        (faults.OFFSET_LOGGED, 2, "everything", KILLED, (200, 2, 1)),
        (faults.ROWS_TAKEN, 1, "this process", ENDED, (0, 4, 4)),
    ]
    assert tuple(step for step, *_ in deaths) == faults.TAKING_STEPS
    queue.insert(300)
    for number, (step, nth, who, end, left) in enumerate(deaths):
        code = child.run(death.orders(tmp_path / f"steps-{number}", step, nth, who))
        assert (step, code, state(queue, child)) == (step, end, left)
    # Rows 101 to 200 were planned when everything died, and none was taken; then a worker died with a slice of them.
    lost = sorted(set(sent(300)) - set(arrived(spark, tmp_path)))
    assert len(arrived(spark, tmp_path)) == 250
    assert lost in (sent(300)[100:150], sent(300)[150:200])

    queue.insert(100, start=300)
    code = child.run(death.orders(tmp_path / "steps-last", faults.ROWS_TAKEN, 1))
    taken = 100 - queue.count()
    assert (code, child.logged("commits")) == (KILLED, child.logged("offsets")[:-1])
    assert taken in (50, 100)
    assert (child.run(), queue.count()) == (ENDED, 0)
    ids = arrived(spark, tmp_path)
    assert (len(ids), len(set(ids))) == (350 - taken, 350 - taken)


def test_a_batch_that_was_written_in_part_or_whole_before_its_commit_is_written_once(
    spark, postgresql, tmp_path
):
    """``foreachBatch`` with two tables: between them everything dies, after both the driver alone.

    Spark's Python processes that outlive the driver end by themselves and give the rows back.
    """
    queue = postgresql.create_queue()
    child = Drain(url=postgresql.url, queue=queue.address, folder=tmp_path, sink="foreach_batch")
    queue.insert(200)
    code = child.run(death.orders(tmp_path / "steps-1", drain.HALF_WRITTEN, 2))
    assert (code, state(queue, child)) == (KILLED, (100, 2, 1))
    assert (len(arrived(spark, tmp_path, "half")), len(arrived(spark, tmp_path))) == (200, 100)

    code = child.run(death.orders(tmp_path / "steps-2", drain.WRITTEN, 1, "driver"))
    assert (code, state(queue, child)) == (KILLED, (100, 2, 1))
    assert (len(arrived(spark, tmp_path, "half")), len(arrived(spark, tmp_path))) == (200, 200)

    queue.insert(50, start=200)
    assert (child.run(), state(queue, child)) == (ENDED, (0, 3, 3))
    assert (arrived(spark, tmp_path, "half"), arrived(spark, tmp_path)) == (sent(250), sent(250))
