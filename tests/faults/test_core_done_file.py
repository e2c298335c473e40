"""A program says in its done file which batch is done: that batch is settled at once, and nothing else is."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event
from unittest import mock

import pytest

from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.options.own_file import OwnFile
from sqlqueue_spark.receive import Receiver
from sqlqueue_spark.receive.holding.done_file import DoneFile
from sqlqueue_spark.receive.offset import Offset
from tests.support.driver import streaming, told
from tests.support.messages import row_ids
from tests.support.streams import free
from tests.support.waiting import eventually


def test_a_done_file_settles_its_batch(engine, queue, tmp_path):
    """And no other."""
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        told(done, {**stream.end(1), "serial": 17})  # another batch's
        assert free(queue) == 0
        told(done, stream.end(1))
        eventually(lambda: queue.count() == 0)
        queue.insert(5, start=10)
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(15)), 0)


def test_the_source_says_beside_the_done_file_which_rows_a_batch_has(engine, queue, tmp_path):
    """Their number, and the sum of the cubes of their RowVersions: without expired ones, and in a replay
    without those that others took meanwhile.
    """
    queue.insert(10)
    queue.insert(5, start=10, expires=datetime(2025, 1, 1, tzinfo=UTC))
    done, said = tmp_path / "done", tmp_path / "done.received"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.construct()
        stream.plan()
        assert OwnFile(said).read() == "10 3025"
        stream.crash()
        with queue.session() as other:
            assert other.take() is not None
            other.commit()
        assert len(stream.read(stream.plan())) == 9
        assert OwnFile(said).read() == "9 3024"


@pytest.mark.needs("deletes_through_cte")
def test_of_a_batch_whose_rows_are_taken_no_number_is_said(engine, queue, tmp_path):
    """A worker takes what is there, and what it has taken is gone, whatever becomes of the batch."""
    queue.insert(10)
    with streaming(engine, queue, transactionMode="none", doneFile=str(tmp_path / "done")) as stream:
        assert stream.trigger()
    assert not (tmp_path / "done.received").exists()


@pytest.mark.parametrize(
    "folder, said", [("folder", []), ("file", ["Not a directory"])], ids=["is elsewhere", "is none"]
)
def test_a_folder_of_another_machine_is_no_trouble(engine, queue, tmp_path, caplog, folder, said):
    """Through Spark Connect the program's files are not here."""
    (tmp_path / "file").touch()
    queue.insert(10)
    with streaming(engine, queue, doneFile=str(tmp_path / folder / "done")) as stream:
        assert stream.trigger()
    warned = [each.message for each in caplog.records if "not_written" in each.message]
    assert [each.partition("] ")[2].partition(":")[0] for each in warned] == said


def test_a_folder_of_another_user_is_no_trouble(engine, queue, tmp_path, caplog, monkeypatch):
    """Through Spark Connect the program may be one on the same machine."""
    monkeypatch.setattr(OwnFile, "write", mock.Mock(side_effect=PermissionError("Permission denied")))
    queue.insert(10)
    with streaming(engine, queue, doneFile=str(tmp_path / "done")) as stream:
        assert stream.trigger()
    assert "not_written" not in caplog.text


@pytest.mark.needs("deletes_through_cte")
def test_a_done_file_ends_the_time_of_a_batch_whose_rows_were_taken(engine, queue, tmp_path):
    """Else the pause of the trigger would count as time of the batch, and the next one would be smaller."""
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, transactionMode="none", doneFile=str(done)) as stream:
        assert stream.trigger()
        scanner = stream.receiver.source._scanner
        assert scanner._began is not None
        told(done, stream.end(1))
        eventually(lambda: scanner._began is None)


def test_a_stop_settles_what_is_known_to_be_done(engine, queue, tmp_path, monkeypatch):
    monkeypatch.setattr("sqlqueue_spark.receive.holding.done_file._LOOK_SECONDS", 3600)
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        told(done, stream.end(1))
        stream.stop()
        assert queue.count() == 0


def test_a_done_file_from_before_the_plan_settles_nothing(engine, queue, tmp_path):
    """A batch that was logged may have been taken back since, and run again:
    the sink does not have it yet.
    """
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue) as stream:
        assert stream.trigger()
        told(done, stream.end(1))
        stream.crash()
        stream.options = dataclasses.replace(stream.options, done_file=str(done))
        stream.done -= 1
        stream.plan()
        stream.stop()
        eventually(lambda: free(queue) == 10)


def test_a_stop_gives_back_what_is_not_logged(engine, queue, tmp_path):
    queue.insert(10)
    with streaming(engine, queue, doneFile=str(tmp_path / "done")) as stream:
        assert stream.construct()
        stream.plan()
        stream.stop()
        eventually(lambda: free(queue) == 10)


def test_a_done_file_from_an_earlier_run_settles_nothing(engine, queue, tmp_path):
    """A new checkpoint gives the same rows the same offset."""
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        told(done, stream.end(1))
        stream.crash()
    with streaming(engine, queue, doneFile=str(done)) as anew:
        anew.drain()
        assert (anew.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_stop_gives_back_nothing_that_is_being_settled(engine, queue, tmp_path):
    """The done file was read, but its batch not settled yet."""
    read, stops = Event(), Event()

    def settle(end):
        read.set()
        assert stops.wait(10)
        stream.receiver.source.settle(end)

    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert isinstance(stream.receiver.source, Receiver)
        stream.receiver.source._done_file = DoneFile(done, settle)
        assert stream.trigger()
        told(done, stream.end(1))
        assert read.wait(10)
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(stream.receiver.close)
            assert not stopped.done()
            stops.set()
            stopped.result()
        assert queue.count() == 0


@pytest.mark.parametrize("said", ["", "{", "7", "[7]", '[{"version": 1}]', "[" * 100_000])
def test_an_unreadable_done_file_settles_nothing(engine, queue, tmp_path, said):
    """It stops nothing either."""
    queue.insert(10)
    done = tmp_path / "done"
    with streaming(engine, queue, doneFile=str(done)) as stream:
        assert stream.trigger()
        done.write_text(said)
        assert free(queue) == 0
        told(done, stream.end(1))
        eventually(lambda: queue.count() == 0)


def test_a_look_at_a_done_file_that_fails_is_followed_by_another(tmp_path, monkeypatch):
    """Whatever the error is: it comes again at the next trigger, and ends the stream there."""
    monkeypatch.setattr(Offset, "if_ours", lambda said: said.get("serial"))
    errors, heard = [QueueError("no table"), ValueError("no number")], []

    def settle(end):
        heard.append(end)
        if errors:
            raise errors.pop()

    done = tmp_path / "done"
    watched = DoneFile(done, settle)
    watched.watch()
    for number in range(3):
        told(done, {"serial": number})
        eventually(lambda: len(heard) == number + 1)  # noqa: B023 -- it is called here
    watched.close()
    assert heard == [0, 1, 2]
