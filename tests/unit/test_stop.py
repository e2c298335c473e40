"""A signal that asks a job to stop is answered at once."""

import shutil
import signal
from unittest import mock

from sqlqueue_spark.pipeline.running.stop import asked_to_stop, run_until_stopped, stoppable
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


def test_a_job_stops_between_batches_although_the_folder_of_its_stop_file_was_cleaned_away():
    """A job may be idle for longer than files stay in /tmp."""
    query = mock.Mock(id="query", isActive=False, recentProgress=[], status={"isTriggerActive": True})

    def asked(_: int) -> object:
        signal.raise_signal(signal.SIGTERM)
        return query.stop.called

    query.awaitTermination.side_effect = asked
    with stoppable({}) as (_, stop_file, done_file):
        query.processAllAvailable.side_effect = lambda: there.append(stop_file.exists())
        there: list[bool] = []
        shutil.rmtree(stop_file.parent)
        run_until_stopped(mock.Mock(_jvm=None), query, stop_file, done_file=done_file)
    assert there == [True]


def test_a_job_stops_behind_the_batch_under_way_where_its_source_does_not_see_the_stop_file(monkeypatch):
    """Through Spark Connect the source may run on another machine. It claims for as long as messages come."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    told = [{"batchId": 7}, {"batchId": 7}, {"batchId": 8}]
    query = mock.Mock(id="query", isActive=False, recentProgress=[], status={"isDataAvailable": True})
    type(query).lastProgress = mock.PropertyMock(side_effect=lambda: told.pop(0))

    def asked(_: int) -> object:
        signal.raise_signal(signal.SIGTERM)
        return query.stop.called

    query.awaitTermination.side_effect = asked
    with stoppable({}) as (_, stop_file, _):
        run_until_stopped(mock.Mock(_jvm=None), query, stop_file)
    assert (told, query.processAllAvailable.called, query.stop.call_count) == ([], False, 1)
