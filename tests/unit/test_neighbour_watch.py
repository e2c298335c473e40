"""The thread that looks for neighbours while a batch runs: it sees them, and it ends with its stream."""

import contextlib
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sqlqueue_spark.errors import ConnectionLost, LockTimeout
from sqlqueue_spark.receive.claiming import neighbour_watch
from sqlqueue_spark.receive.claiming.neighbour_watch import NeighbourWatch
from tests.support.waiting import eventually


@pytest.fixture
def pool():
    session = SimpleNamespace(hurry=lambda: None, rollback=lambda: None, at=lambda table: table, several=True)
    return SimpleNamespace(title="orders", borrowed=lambda: contextlib.nullcontext(session))


def member(sees: Any) -> Any:
    """A queue, and whether a look sees a neighbour."""
    return SimpleNamespace(table="orders", name="orders", headroom=SimpleNamespace(watches=True, sees=sees))


def alive():
    return [each for each in threading.enumerate() if each.name == "sqlqueue-neighbours"]


def test_neighbours_are_told_once_and_then_it_looks_no_more(pool):
    looks: list[None] = []
    seen: list[int] = []
    watch = NeighbourWatch(pool, lambda: seen.append(len(looks)))

    def sees(_):
        looks.append(None)
        return len(looks) > 1

    watch.begin([member(sees)])
    eventually(lambda: seen)
    watch.look()
    assert (seen, len(looks)) == ([2], 2)
    watch.close()


@pytest.mark.parametrize("error", [ConnectionLost("the server is gone"), ValueError("no number")])
def test_a_look_that_fails_is_followed_by_another(pool, monkeypatch, error):
    monkeypatch.setattr(neighbour_watch, "_REST_SECONDS", 0.01)
    looks: list[None] = []
    seen: list[int] = []

    def sees(_):
        looks.append(None)
        if len(looks) == 1:
            raise error
        return True

    watch = NeighbourWatch(pool, lambda: seen.append(True))
    watch.begin([member(sees)])
    eventually(lambda: seen)
    watch.close()


def test_a_queue_that_fails_hides_no_neighbours_of_another(pool):
    looks: list[str] = []

    def fails(_):
        looks.append("fails")
        raise LockTimeout("a session waits for the whole table")

    def sees(_):
        looks.append("sees")
        return True

    seen: list[int] = []
    watch = NeighbourWatch(pool, lambda: seen.append(len(looks)))
    watch._watched = (member(fails), member(sees))
    watch.look()
    assert (looks, seen) == (["fails", "sees"], [2])


def test_it_ends_also_where_it_is_about_to_wait(pool, monkeypatch):
    """It has looked, and waits for the lock that its end has."""
    monkeypatch.setattr(neighbour_watch, "_CLOSE_SECONDS", 0.0)
    looked = threading.Event()
    watch = NeighbourWatch(pool, lambda: None)
    with watch._changed:
        watch.begin([member(lambda _: looked.set())])
        eventually(lambda: watch._thread is not None and waits_for_a_lock(watch._thread))
        watch.close()
    eventually(lambda: not alive())
    assert not looked.is_set()


def waits_for_a_lock(thread):
    """Whether the watch's thread stands before the block that has the lock."""
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and frame.f_code.co_name == "__enter__"
