"""The gentle way to stop: while ``stopFile`` exists, what runs is finished and nothing more is claimed."""

from tests.support.messages import row_ids
from tests.support.streams import free, ids_in_delta, logged, running, stream, to_delta
from tests.support.waiting import eventually


def test_a_stop_file_settles_the_batch_and_holds_nothing(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    reached, stop = tmp_path / "reached", tmp_path / "stop"

    def wait_for_the_stop_file(batches):
        for batch in batches:
            reached.touch()
            eventually(stop.exists)
            yield batch

    frame = stream(
        spark, postgresql, queue, maxMessagesPerTrigger=40, stopFile=stop, doneFile=tmp_path / "done"
    )
    first = frame.mapInArrow(wait_for_the_stop_file, frame.schema)
    queue.insert(100)
    with running(to_delta(first, tmp_path)):
        eventually(reached.exists)
        eventually(lambda: free(queue) == 20)  # the next batch is claimed already
        stop.touch()
        eventually(lambda: (queue.count(), free(queue)) == (60, 60))
        assert logged(tmp_path, "commits") == [0]
    stop.unlink()
    with running(to_delta(frame, tmp_path)):
        eventually(lambda: queue.count() == 0)
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(range(100))]
