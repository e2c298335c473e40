"""When indexes are cleaned beside neighbours: a tenth of the time, whatever one cleanup has met."""

from unittest import mock

import pytest

from sqlqueue_spark.receive.claiming import index_cleanup
from sqlqueue_spark.receive.claiming.index_cleanup import IndexCleanup


@pytest.fixture
def clean(monkeypatch):
    """Clean indexes for a number of seconds when it is worth it; returns how long it then rests."""
    now = [100.0]
    cleanup = IndexCleanup(mock.MagicMock(), lambda: now[0])

    def clean_for(seconds: float) -> float:
        def lasts() -> bool:
            now[0] += seconds
            return True

        monkeypatch.setattr(index_cleanup, "Queue", lambda *_: mock.Mock(clean_indexes=lasts))
        cleanup.rows = 20_000
        cleanup.begin_when_worth_it(mock.Mock())
        assert cleanup.rows == 0, "it has begun"
        assert cleanup._thread is not None
        cleanup._thread.join()
        now[0], rest = cleanup._not_before, cleanup._not_before - now[0]
        return round(rest, 3)

    return clean_for


@pytest.mark.parametrize(
    "took, rests",
    [
        ([0.1, 0.1, 0.1], [1, 1, 1]),
        ([0.1, 30, 0.1, 0.1], [1, 1, 1, 1]),
        ([3, 30, 30, 30], [30, 30, 300, 300]),
        ([30, 30], [60, 300]),
    ],
    ids=["short ones", "one that waited for a lock", "long ones", "long ones from the first on"],
)
def test_a_cleanup_rests_ten_times_as_long_as_the_shorter_of_the_last_two(took, rests, clean):
    assert [clean(seconds) for seconds in took] == rests
