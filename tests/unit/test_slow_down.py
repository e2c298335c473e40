"""A job whose messages fail one after another pauses, and the others do not."""

import errno
import os
from unittest import mock

import pytest

from sqlqueue_spark.engines import database_retry
from sqlqueue_spark.pipeline.running.slow_down import pause_after, slowing_down
from sqlqueue_spark.send.sent import Sent


@pytest.mark.parametrize(
    "sent, seconds",
    [
        (Sent(handled=1_000), 0),
        (Sent(failed=9), 0),
        (Sent(failed=10), 10),
        (Sent(failed=4, retried=8, handled=11), 12),
        (Sent(failed=4, retried=8, handled=12), 0),
        (Sent(failed=100_000), 30),
        (Sent(repeated=100), 0),
        (Sent(failed=40, sent=40), 0),
        (Sent(failed=40, waiting=40), 0),
        (Sent(failed=40, sent=30, handled=20), 30),
    ],
)
def test_it_pauses_a_second_for_each_failure_while_most_fail(sent, seconds):
    assert pause_after(sent) == seconds


@pytest.mark.parametrize("stops", [False, True])
def test_the_pause_comes_behind_the_batch_and_ends_when_the_job_is_to_stop(tmp_path, stops):
    sink, frame = mock.Mock(), mock.Mock()
    sink.sent_in.return_value = Sent(failed=20)
    now = [0.0]
    clock = mock.Mock(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    if stops:
        (tmp_path / "stop").touch()
    with mock.patch.object(database_retry, "time", clock):
        slowing_down(sink, tmp_path / "stop")(frame, 7)
    assert sink.call_args == mock.call(frame, 7)
    assert round(now[0]) == (0 if stops else 20)


def test_a_pause_goes_on_where_the_sink_may_not_look_for_the_stop_file(tmp_path):
    """Through Spark Connect it runs on the server, which may be another user's. Root may look anywhere."""
    sink, look = mock.Mock(), os.stat
    sink.sent_in.return_value = Sent(failed=20)
    now = [0.0]
    clock = mock.Mock(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))

    def stat(path, *more, **named):
        if str(path) == str(tmp_path / "stop"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, *more, **named)

    with mock.patch.object(database_retry, "time", clock), mock.patch("os.stat", stat):
        slowing_down(sink, tmp_path / "stop")(mock.Mock(), 7)
    assert round(now[0]) == 20
