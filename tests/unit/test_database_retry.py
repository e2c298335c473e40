"""A database that gives way is waited for, and an operator is told when that takes too long."""

import logging

import pytest
import stamina

from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, Duplicate, TryAgain


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def _without_pauses(caplog):
    caplog.set_level(logging.WARNING, "sqlqueue_spark")
    with stamina.set_testing(True, attempts=5):
        yield


def failing(clock, *, times, seconds, error=TryAgain):
    """A step that fails so often, and takes so long each time, before it returns the number of calls."""
    calls = 0

    def step():
        nonlocal calls
        calls += 1
        clock.now += seconds
        if calls <= times:
            raise error(f"failure {calls}")
        return calls

    return step


def said(caplog):
    return [
        (each.levelname, each.getMessage())
        for each in caplog.records
        if each.name == "sqlqueue_spark.engines.database_retry"
    ]


def test_the_log_does_not_tell_of_each_pause(clock, caplog):
    """The retries of others, in the same process, are said as they say them."""
    Retry("a queue", clock).retried(failing(clock, times=3, seconds=5))
    assert caplog.records == []
    for attempt in stamina.retry_context(on=TryAgain):
        with attempt:
            if attempt.num == 1:
                raise TryAgain("theirs")
    assert [each.getMessage() for each in caplog.records] == ["stamina.retry_scheduled"]


def test_a_step_is_run_again_until_it_succeeds(clock, caplog):
    """And the log does not hear of it."""
    seen: list[TryAgain] = []
    done = Retry("a queue", clock).retried(failing(clock, times=3, seconds=5), on_failure=seen.append)
    assert (done, [str(each) for each in seen], said(caplog)) == (
        4,
        ["failure 1", "failure 2", "failure 3"],
        [],
    )


@pytest.mark.parametrize("error", [ConnectionLost, Duplicate])
def test_what_is_not_retried_is_raised_at_once(clock, error):
    """What is not worth it, and what is configured wrong."""
    step = failing(clock, times=3, seconds=0, error=error)
    with pytest.raises(error, match="failure 1"):
        Retry("a queue", clock).retried(step, lambda _: False)
    with pytest.raises(ConfigurationError, match="failure 1"):
        Retry("a queue", clock).retried(failing(clock, times=3, seconds=0, error=ConfigurationError))


def test_the_last_error_is_raised_in_the_end(clock):
    with pytest.raises(TryAgain, match="failure 5"):
        Retry("a queue", clock).retried(failing(clock, times=9, seconds=1))


def test_thirty_seconds_of_failure_are_one_error(clock, caplog):
    """In the log, with what to check; and a warning says that it works again."""
    patience = Retry("receiving from orders", clock)
    assert patience.retried(failing(clock, times=4, seconds=11)) == 5
    assert said(caplog) == [
        (
            "ERROR",
            (
                "still_failing receiving from orders seconds=33: nothing has succeeded for so long; check "
                "that the server runs and can be reached from here, whether it fails over or is throttled, "
                "and who holds locks; last said: failure 4"
            ),
        ),
        ("WARNING", "works_again receiving from orders"),
    ]


def test_time_without_success_counts_over_steps(clock, caplog):
    """A caller that gives up and comes again finds the breaker as it left it."""
    patience = Retry("a queue", clock)
    for _ in range(2):
        with pytest.raises(TryAgain):
            patience.retried(failing(clock, times=1, seconds=31), lambda _: False)
    assert [level for level, _ in said(caplog)] == ["ERROR"]
    patience.retried(lambda: None)
    with pytest.raises(TryAgain):
        patience.retried(failing(clock, times=1, seconds=31), lambda _: False)
    assert [level for level, _ in said(caplog)] == ["ERROR", "WARNING"]


def test_a_connection_that_is_lost_late_is_opened_once_more(clock):
    """What vanishes without a word is noticed after a minute. That minute does not count, those after do."""
    assert Retry("a queue", clock).retried(failing(clock, times=1, seconds=61, error=ConnectionLost)) == 2
    for error, calls in ((ConnectionLost, 2), (TryAgain, 1)):
        with pytest.raises(error, match=f"failure {calls}"):
            Retry("a queue", clock).retried(failing(clock, times=9, seconds=61, error=error))
