"""A queue is watched while connections break: no row is left out, and none is shown twice."""

import pytest

from sqlqueue_spark.administration import queue_follow, queue_peek
from tests.support.waiting import eventually
from tests.support.watching import Watch


@pytest.fixture(autouse=True)
def _short_rests(monkeypatch):
    monkeypatch.setattr(queue_follow, "_LONGEST_REST", 0.05)


def test_a_restart_of_the_database_costs_no_row_and_repeats_none(server, postgresql):
    queue = postgresql.create_queue()
    queue.insert(2)
    with Watch(postgresql.url) as watch:
        queue.insert(3, start=2)
        eventually(lambda: watch.shown == [3, 4, 5])
        server.stop(immediate=True)
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
