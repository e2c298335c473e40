"""Who may take a slice of mode ``none``: its first reading, on each attempt; a worker asks the driver."""

import logging
import socket
from unittest import mock

import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.receive.reading import first_reading
from sqlqueue_spark.receive.reading.first_reading import FirstReadings, Reading, check_first

SECOND = "A slice of orders is read a second time"


@pytest.fixture
def readings():
    driver = FirstReadings()
    yield driver
    driver.close()


def reading(name):
    return Reading(name, "localhost")


def test_a_task_that_is_tried_again_is_the_same_reading(readings):
    asking = readings.begin()
    for _ in range(2):
        check_first(asking(0), "orders", reading("4.0"))


def test_another_task_is_refused_however_often_it_is_tried(readings):
    asking = readings.begin()
    check_first(asking(0), "orders", reading("4.0"))
    check_first(asking(1), "orders", reading("4.1"))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=SECOND):
            check_first(asking(0), "orders", reading("5.0"))
    check_first(asking(0), "orders", reading("4.0"))


def test_a_slice_of_an_older_batch_is_refused(readings):
    older, asking = readings.begin(), readings.begin()
    with pytest.raises(ConfigurationError, match=SECOND):
        check_first(older(0), "orders", reading("4.0"))
    check_first(asking(0), "orders", reading("6.0"))


def test_where_spark_may_run_a_task_twice_at_once_nothing_is_taken(readings):
    """Both copies are the same reading, and Spark throws away what the slower one has taken."""
    asking = readings.begin()
    with pytest.raises(ConfigurationError) as refused:
        check_first(asking(0), "orders", reading("4.0")._replace(speculative=True))
    assert str(refused.value) == (
        "No row of orders is taken: spark.speculation is true, so Spark may run a task twice at once, and "
        "with transactionMode none it would lose what the slower one has taken; set spark.speculation to "
        "false, or take transactionMode receiveOnly."
    )


def test_a_stranger_who_connects_stops_nothing(readings):
    asking = readings.begin()
    with socket.create_connection(("localhost", asking(0).port)) as silent:
        with socket.create_connection(("localhost", asking(0).port)) as other:
            other.sendall(b"\xff" * 10_000 + b"\n")
        check_first(asking(0), "orders", reading("4.0"))
        silent.close()


def test_without_a_way_to_the_driver_a_worker_takes_its_rows_and_says_so_once(readings, caplog, monkeypatch):
    monkeypatch.setattr(first_reading, "_UNREACHABLE", {})
    asking = readings.begin()
    readings.close()
    with caplog.at_level(logging.WARNING):
        for name in ("4.0", "5.0"):
            check_first(asking(0), "orders", reading(name))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"second_readings_not_noticed driver=localhost:{asking(0).port} reason=")


def test_a_driver_that_could_not_be_reached_once_is_asked_again_after_two_minutes(readings, monkeypatch):
    """Until then a plan that reads a batch twice loses rows without an error."""
    now = [1_000.0]
    monkeypatch.setattr(first_reading, "_UNREACHABLE", {})
    monkeypatch.setattr(first_reading, "time", mock.Mock(monotonic=lambda: now[0]))
    asking = readings.begin()
    with monkeypatch.context() as broken:
        broken.setattr(socket, "create_connection", mock.Mock(side_effect=TimeoutError("timed out")))
        check_first(asking(0), "orders", reading("4.0"))
    now[0] += 119
    check_first(asking(0), "orders", reading("4.0"))
    check_first(asking(0), "orders", reading("5.0"))
    now[0] += 2
    check_first(asking(0), "orders", reading("4.0"))
    with pytest.raises(ConfigurationError, match=SECOND):
        check_first(asking(0), "orders", reading("5.0"))
