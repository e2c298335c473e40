"""A queue is watched: each row that comes is shown once, in the order of the numbers, and none is locked."""

import contextlib
import json
import threading
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import queue_follow, queue_peek
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from tests.support.messages import row_id
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def _short_rests(monkeypatch):
    monkeypatch.setattr(queue_follow, "_LONGEST_REST", timedelta(milliseconds=50))


class Enough(Exception):
    """Ends a watch."""


class Watch:
    """A watch in a thread of its own."""

    def __init__(self, url, selection=None, shown=lambda _: None):
        """:param shown: what to do with the number of each row that is shown."""
        self.shown: list[int] = []
        self.notes: list[str] = []
        self.looks = 0
        self.error: BaseException | None = None
        self._on_shown = shown
        self._over = threading.Event()
        self._selection = selection or MessageSelection()
        self._options = ConnectionOptions.parse({"url": url})
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            following = queue_follow.follow(
                self._options, "orders", self._selection, note=self.notes.append, looked=self._looked
            )
            for message in following:
                self.shown.append(message.row_version)
                self._on_shown(message.row_version)
        except Enough:
            pass
        except BaseException as error:  # noqa: BLE001 -- the test asserts it
            self.error = error

    def _looked(self, _):
        self.looks += 1
        if self._over.is_set():
            raise Enough

    def idle(self):
        """Wait for a look that has begun after now."""
        before = self.looks
        eventually(lambda: self.looks > before + 1 or self.error)

    def __enter__(self):
        self._thread.start()
        self.idle()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


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
    """Nor is a row shown again that somebody takes and gives back, and no receiver waits for the watch."""
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
            "CREATE TABLE orders (id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, seq bigserial UNIQUE); COMMIT"
        )
        queue.insert(2, start=10)
        eventually(lambda: watch.shown == [1, 2] or watch.error)
    assert watch.error is None


def test_a_queue_that_is_not_there_is_said_at_once(engine):
    watch = Watch(engine.url)
    with contextlib.suppress(AssertionError), watch:
        pass
    assert str(watch.error).startswith("There is no queue table orders@")


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_of_the_database_costs_no_row_and_repeats_none(server, postgresql, immediate):
    queue = postgresql.create_queue()
    queue.insert(2)
    with Watch(postgresql.url) as watch:
        queue.insert(3, start=2)
        eventually(lambda: watch.shown == [3, 4, 5])
        server.stop(immediate=immediate)
        try:
            eventually(lambda: watch.notes)
        finally:
            server.start()
        queue.insert(3, start=5)
        eventually(lambda: len(watch.shown) == 6 or watch.error)
        watch.idle()
    rows = queue.row_versions()
    assert (watch.shown, watch.error) == (rows[2:], None)
    assert watch.notes[0].endswith(" Trying again until it answers.")
    assert watch.notes[1:] == ["The database answers again."]


def test_a_connection_that_is_cut_half_way_repeats_no_row(postgresql, monkeypatch):
    """Each row is read by a statement of its own; after every third one the connection is cut."""
    monkeypatch.setattr(queue_peek, "_BYTES", 1)
    queue = postgresql.create_queue()

    def shown(number):
        if number % 3 == 0:
            postgresql.cut_connections()

    with Watch(postgresql.url, shown=shown) as watch, queue.session() as late:
        late.insert(5)
        queue.insert(10, start=5)
        eventually(lambda: len(watch.shown) == 10 or watch.error)
    assert (watch.shown, watch.error) == ([*range(6, 16)], None)
    assert len(watch.notes) >= 6
