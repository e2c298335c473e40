"""Two streams and four one-row receivers live on one queue while senders fill it: each message is handled once."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.support.messages import row_ids
from tests.support.streams import ids_in_delta, running, stream, to_delta
from tests.support.waiting import eventually

FIRST, LATER, SENDERS = 20_000, 2_000, 2


def receive_one_by_one(queue, senders_are_done):
    """A classic receiver: one row a transaction, every tenth rolled back. The ids it has handled."""
    handled: list[str] = []
    turn = 0
    with queue.session() as session:
        while True:
            row, turn = session.take(), turn + 1
            if row is None:
                session.rollback()
                if senders_are_done.wait(0.05) and queue.count() == 0:
                    return handled
            elif turn % 10 == 0:
                session.rollback()
            else:
                session.commit()
                handled.append(str(row.id))


def send(queue, start):
    for first in range(start, start + LATER, 50):
        queue.insert(50, start=first)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_streams_and_receivers_handle_each_message_once(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    queue.insert(FIRST)
    folders = [tmp_path / "one", tmp_path / "two"]
    options = {"maxMessagesPerTrigger": 3000, "minMessagesPerPartition": 1500}
    senders_are_done = threading.Event()
    with (
        ThreadPoolExecutor() as pool,
        running(to_delta(stream(spark, postgresql, queue, **options), folders[0])),
        running(to_delta(stream(spark, postgresql, queue, **options), folders[1])),
    ):
        receivers = [pool.submit(receive_one_by_one, queue, senders_are_done) for _ in range(4)]
        senders = [pool.submit(send, queue, FIRST + LATER * number) for number in range(SENDERS)]
        for sender in senders:
            sender.result()
        senders_are_done.set()
        eventually(lambda: queue.count() == 0, within=timedelta(seconds=150))
        handled = [receiver.result() for receiver in receivers]
    handled += [ids_in_delta(spark, folder) for folder in folders]
    assert sorted(itertools.chain(*handled)) == [
        str(each) for each in row_ids(range(FIRST + LATER * SENDERS))
    ]
    assert min(map(len, handled)) > 0, [len(each) for each in handled]
