"""A signal that asks a job to stop is answered at once."""

import signal
from unittest import mock

from sqlqueue_spark.pipeline.running.stop import asked_to_stop
from tests.support.waiting import eventually


def test_a_signal_is_answered_at_once_and_once(capfd):
    """Another one adds nothing."""
    said: list[str] = []

    def answered():
        said.append(capfd.readouterr().err)
        return "".join(said).endswith("\n")

    with asked_to_stop(mock.Mock(_jvm=None)) as asked:
        assert not asked.is_set()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert asked.is_set()
        eventually(answered)
    assert "".join(said) + capfd.readouterr().err == "Stops after the batch under way.\n"
