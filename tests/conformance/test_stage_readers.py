"""Nothing on the way of a batch waits for a session that merely reads its stage: a dump,
a person, a late twin.
"""

import contextlib

import psycopg
import pytest

from tests.support.forwarding import STAGE, forwarding, staged
from tests.support.messages import message_ids
from tests.support.sending import ids_in
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all", variants="nightly")


@pytest.fixture
def billing(postgresql):
    return postgresql.create_queue("billing")


@contextlib.contextmanager
def reading(postgresql):
    """What pg_dump does: read all there is in one long transaction,
    which locks each table against TRUNCATE.
    """
    with psycopg.connect(postgresql.url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute(f'SELECT * FROM "{STAGE}"').fetchall()
        yield


def rows_on_the_stage(postgresql):
    return postgresql.fetch(f"""SELECT count(*) FROM "{STAGE}" WHERE task <> ''""")[0][0]


def test_a_reader_of_the_stage_holds_up_no_batch(postgresql, queue, billing):
    """A lock timeout that would be over long before the reader is."""
    queue.insert(100)
    with forwarding(postgresql, queue, maxMessagesPerTrigger="20", lockTimeout="200ms") as stream:
        assert stream.trigger()
        with reading(postgresql):
            stream.drain()
            assert (ids_in(billing), queue.count(), staged(postgresql)) == (message_ids(range(100)), 0, 0)
            assert rows_on_the_stage(postgresql) > 0, "the stage was cleared, so the test shows nothing"
            stream.crash()
            queue.insert(20, start=100)
            stream.drain()  # a new process over a stage that is full of what does not count any more
        eventually(lambda: not stream.trigger() and rows_on_the_stage(postgresql) == 0)
    assert (ids_in(billing), queue.count(), staged(postgresql)) == (message_ids(range(120)), 0, 0)


def test_what_was_sent_is_cleared_before_the_next_batch(postgresql, queue, billing):
    queue.insert(40)
    with forwarding(postgresql, queue, maxMessagesPerTrigger="20") as stream:
        assert stream.trigger()
        first = rows_on_the_stage(postgresql)
        assert stream.trigger()
        assert (rows_on_the_stage(postgresql), staged(postgresql)) == (first, 21)
        stream.drain()
        assert rows_on_the_stage(postgresql) == 0


@pytest.fixture
def queue(postgresql):
    return postgresql.create_queue()
