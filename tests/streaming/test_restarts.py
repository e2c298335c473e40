"""A stream that ended in the middle of something starts again on its checkpoint,
and the world has moved on.
"""

import pytest

from tests.support.messages import row_ids
from tests.support.streams import (
    drain,
    end,
    free,
    ids_in_delta,
    logged,
    once_into_delta,
    running,
    start,
    stream,
    to_delta,
    to_each,
)
from tests.support.waiting import eventually


def texts(numbers):
    return [str(each) for each in row_ids(numbers)]


@pytest.mark.parametrize("claim_ahead, left_to_others", [(False, 40), (True, 0)])
def test_a_query_stopped_during_a_batch_gives_rows_back(
    spark, postgresql, tmp_path, claim_ahead, left_to_others
):
    """The next run delivers them once."""
    queue = postgresql.create_queue()
    reached, go = tmp_path / "reached", tmp_path / "go"

    def wait_in_the_middle(batches):
        for batch in batches:
            reached.touch()
            eventually(go.exists)
            yield batch

    frame = stream(spark, postgresql, queue, maxMessagesPerTrigger=60, claimAhead=claim_ahead)
    writer = to_delta(frame.mapInArrow(wait_in_the_middle, frame.schema), tmp_path)
    queue.insert(100)
    query = start(writer)
    eventually(reached.exists)
    eventually(lambda: free(queue) == left_to_others)
    end(query)
    eventually(lambda: free(queue) == 100)
    assert (logged(tmp_path, "offsets"), logged(tmp_path, "commits")) == ([0], [])

    go.touch()
    drain(writer)
    assert (ids_in_delta(spark, tmp_path), queue.count()) == (texts(range(100)), 0)


def truncate(engine):
    engine.execute("TRUNCATE orders RESTART IDENTITY")


def drop_and_create(engine):
    engine.execute("DROP TABLE orders")
    engine.create_queue()


ACCIDENTS = [truncate, drop_and_create]


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_new_messages_are_not_taken_for_a_logged_batch(spark, postgresql, tmp_path, accident):
    """They have its numbers. The first run ends when its batch is logged and not yet deleted."""
    queue = postgresql.create_queue()
    write = once_into_delta(tmp_path)
    queue.insert(50)
    writer = to_each(stream(spark, postgresql, queue), tmp_path, write)
    with running(writer.trigger(processingTime="1 hour")):
        eventually(lambda: logged(tmp_path, "commits") == [0])
    eventually(lambda: free(queue) == 50)
    accident(postgresql)
    queue.insert(70, start=50)
    assert queue.row_versions() == list(range(1, 71))

    drain(to_each(stream(spark, postgresql, queue), tmp_path, write))
    assert (ids_in_delta(spark, tmp_path), queue.count()) == (texts(range(120)), 0)


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_new_messages_are_not_taken_for_an_unfinished_batch(spark, postgresql, tmp_path, accident):
    """They have its numbers.

    The first run fails when its batch is in Delta, not yet logged: a repeat would be skipped there.
    """
    queue = postgresql.create_queue()
    write = once_into_delta(tmp_path)

    def write_and_fail(batch, number):
        write(batch, number)
        raise RuntimeError("the disk is full")

    queue.insert(50)
    with pytest.raises(Exception, match="the disk is full"):
        drain(to_each(stream(spark, postgresql, queue), tmp_path, write_and_fail))
    eventually(lambda: free(queue) == 50)
    assert (logged(tmp_path, "offsets"), logged(tmp_path, "commits")) == ([0], [])
    accident(postgresql)
    queue.insert(70, start=50)
    assert queue.row_versions() == list(range(1, 71))

    drain(to_each(stream(spark, postgresql, queue), tmp_path, write))
    assert (ids_in_delta(spark, tmp_path), queue.count()) == (texts(range(120)), 0)
