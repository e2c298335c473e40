"""Two streams and a .NET endpoint live on one queue while senders fill it: each message is handled once."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.support.messages import row_ids
from tests.support.neighbour import Habits, Neighbour
from tests.support.streams import ids_in_delta, running, stream, to_delta
from tests.support.waiting import eventually

FIRST, LATER, SENDERS = 20_000, 2_000, 2


def send(queue, start):
    for first in range(start, start + LATER, 50):
        queue.insert(50, start=first)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_streams_and_a_neighbour_handle_each_message_once(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    queue.insert(FIRST)
    folders = [tmp_path / "one", tmp_path / "two"]
    options = {"maxMessagesPerTrigger": 3000, "minMessagesPerPartition": 1500}
    # To take a message without handling it is so quick that nothing would be left when the
    # streams have started.
    habits = Habits(
        concurrency=4, rolls_back=0.1, handling=timedelta(milliseconds=5), rest=timedelta(milliseconds=50)
    )
    with (
        ThreadPoolExecutor() as pool,
        running(to_delta(stream(spark, postgresql, queue, **options), folders[0])),
        running(to_delta(stream(spark, postgresql, queue, **options), folders[1])),
        Neighbour(postgresql, queue, habits).running() as neighbour,
    ):
        senders = [pool.submit(send, queue, FIRST + LATER * number) for number in range(SENDERS)]
        for sender in senders:
            sender.result()
        eventually(lambda: queue.count() == 0, within=timedelta(seconds=150))
    handled = [list(map(str, neighbour.handled))]
    handled += [ids_in_delta(spark, folder) for folder in folders]
    assert sorted(itertools.chain(*handled)) == [
        str(each) for each in row_ids(range(FIRST + LATER * SENDERS))
    ]
    assert min(map(len, handled)) > 0, [len(each) for each in handled]
