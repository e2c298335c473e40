"""``transactionMode=none`` under Spark: every row is taken once, whatever Spark calls and when."""

from tests.support.messages import row_id, row_ids
from tests.support.streams import drain, ids_in_delta, logged, running, stream, to_delta, to_each
from tests.support.waiting import eventually


def test_everything_is_drained_once_and_in_order(spark, engine, queue, tmp_path):
    """Beside a row that is held."""
    queue.insert(2500)
    options = {"maxMessagesPerTrigger": 1000, "minMessagesPerPartition": 300, "maxConcurrency": 2}
    with queue.locked(7):
        drain(to_delta(stream(spark, engine, queue, transactionMode="none", **options), tmp_path))
        assert ids_in_delta(spark, tmp_path) == [str(row_id(row)) for row in range(2500) if row != 6]
        assert logged(tmp_path, "commits") == [0, 1, 2]
    assert queue.row_versions() == [7]
    drain(to_delta(stream(spark, engine, queue, transactionMode="none", **options), tmp_path))
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(range(2500))]
    assert queue.count() == 0


def test_modes_may_take_turns_on_one_checkpoint(spark, engine, queue, tmp_path):
    """A running stream takes what comes in either."""

    def done():
        return queue.count() == 0 and logged(tmp_path, "offsets") == logged(tmp_path, "commits")

    for number, mode in enumerate(("none", "receiveOnly", "none")):
        queue.insert(10, start=100 * number)
        with running(to_delta(stream(spark, engine, queue, transactionMode=mode), tmp_path)):
            eventually(done)
            queue.insert(10, start=100 * number + 10)
            eventually(done)
    sent = [row for number in range(3) for row in range(100 * number, 100 * number + 20)]
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(sent)]


def test_a_function_keeps_a_batch_that_it_reads_twice(spark, postgresql, tmp_path):
    """A second reading finds what nobody has taken yet: nothing."""
    queue = postgresql.create_queue()
    queue.insert(20)
    counts = []

    def handle(batch, number):
        if number == 1:
            batch.persist()
        counts.append((batch.count(), batch.count()))
        batch.unpersist()

    frame = stream(spark, postgresql, queue, transactionMode="none", maxMessagesPerTrigger=10)
    drain(to_each(frame, tmp_path, handle))
    assert counts == [(10, 0), (10, 10)]
