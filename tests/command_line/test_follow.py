"""A queue is watched: each row that comes is shown once, in the order of the numbers, and none is locked."""

import contextlib
import json

import pytest

from sqlqueue_spark.administration import queue_follow
from sqlqueue_spark.messages.message_selection import MessageSelection
from tests.support.messages import row_id
from tests.support.waiting import eventually
from tests.support.watching import Watch


@pytest.fixture(autouse=True)
def _short_rests(monkeypatch):
    monkeypatch.setattr(queue_follow, "_LONGEST_REST", 0.05)


def test_what_comes_is_shown_and_what_was_there_is_not(engine, queue):
    queue.insert(3)
    with Watch(engine.url) as watch:
        assert watch.shown == []
        queue.insert(600, start=3)
        eventually(lambda: len(watch.shown) == 600)
        queue.insert(2, start=700)
        eventually(lambda: len(watch.shown) == 602)
        watch.idle()
    assert (watch.shown, watch.error, watch.notes) == ([*range(4, 606)], None, [])
    assert queue.count() == 605


def test_a_row_that_is_committed_late_is_shown_when_it_appears(engine, queue):
    """Its sender was given a lower number and took longer; also one who began before the watch did."""
    with queue.session() as early, queue.session() as late:
        early.insert(1)
        queue.insert(1, start=1)
        with Watch(engine.url) as watch:
            late.insert(1, start=2)
            queue.insert(1, start=3)
            eventually(lambda: watch.shown == [4])
            late.commit()
            eventually(lambda: watch.shown == [4, 3])
            early.commit()
            eventually(lambda: watch.shown == [4, 3, 1])
            watch.idle()
    assert (watch.shown, watch.error) == ([4, 3, 1], None)


def test_of_an_empty_queue_the_first_row_is_shown(engine, queue):
    with Watch(engine.url) as watch, queue.session() as late:
        late.insert(1)
        queue.insert(1, start=1)
        eventually(lambda: watch.shown == [2])
        late.commit()
        eventually(lambda: watch.shown == [2, 1])
    assert watch.error is None


def test_rows_that_others_take_are_not_spoken_of(engine, queue):
    """Nor is a row shown again that a receiver takes and gives back, and no receiver waits for the watch."""
    with Watch(engine.url) as watch:
        queue.insert(4)
        eventually(lambda: len(watch.shown) == 4)
        with queue.session() as receiver:
            assert receiver.take(2)
            watch.idle()
            receiver.rollback()
        assert queue.take(1)
        watch.idle()
    assert (watch.shown, watch.error, queue.row_versions()) == ([1, 2, 3, 4], None, [2, 3, 4])


def test_only_what_is_meant_is_shown(engine, queue):
    with (
        Watch(engine.url, MessageSelection(headers=(("tenant", "north"),))) as watch,
        queue.session() as late,
    ):
        late.insert(1)
        for number, tenant in enumerate(["north", "south", "north"], 1):
            queue.insert_row(id=row_id(number), headers=json.dumps({"tenant": tenant}), body=b"")
        eventually(lambda: watch.shown == [2, 4])
        late.commit()
        watch.idle()
        watch.idle()
    assert (watch.shown, watch.error) == ([2, 4], None)


def test_a_table_that_was_made_anew_is_watched_from_its_beginning(postgresql, monkeypatch):
    monkeypatch.setattr(queue_follow, "_IDENTITY_SECONDS", 0.0)
    queue = postgresql.create_queue()
    queue.insert(5)
    with Watch(postgresql.url) as watch:
        postgresql.execute(
            "BEGIN; ALTER TABLE orders RENAME TO old; ALTER SEQUENCE orders_seq_seq RENAME TO old_seq; "
            "CREATE TABLE orders (id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, "
            "seq bigserial UNIQUE); COMMIT"
        )
        queue.insert(2, start=10)
        eventually(lambda: watch.shown == [1, 2] or watch.error)
    assert watch.error is None


def test_a_queue_that_is_not_there_is_said_at_once(engine):
    watch = Watch(engine.url)
    with contextlib.suppress(AssertionError), watch:
        pass
    assert str(watch.error).startswith("There is no queue table orders@")
