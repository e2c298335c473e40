"""A driver stands still, another one takes its checkpoint, and the first one goes on: each message is in the
sink once, and the first one deletes nothing that the other has not logged as done.
"""

import contextlib
import threading

import pytest

from sqlqueue_spark.errors import ClaimLost, RowsHeld
from sqlqueue_spark.fail_points import COMMITTED, ROWS_LOCKED
from tests.support.driver import OFFSET_NOT_LOGGED, STEPS, Stream, at_step, watched_connections
from tests.support.messages import row_ids


class LoggedAlreadyError(Exception):
    """Spark finds that the file it is about to write into a log is there already."""


class Log:
    """The checkpoint and the sink that drivers share. No file of it is written twice."""

    def __init__(self):
        self.offsets, self.done, self.sink = [], 0, {}


class Driver(Stream):
    """A process that read the checkpoint when it started, and then knows what it has written there itself."""

    def __init__(self, engine, queue, log, **options):
        super().__init__(engine, queue, **options)
        self.log, self.offsets, self.done, self.sink = log, [*log.offsets], log.done, log.sink

    def construct(self):
        before = len(self.offsets)
        found = super().construct()
        if len(self.offsets) > before:
            if len(self.log.offsets) > before:
                raise LoggedAlreadyError
            self.log.offsets.append(self.offsets[-1])
        return found

    def run(self):
        super().run()
        if self.log.done >= self.done:
            raise LoggedAlreadyError
        self.log.done = self.done
        return True


OPTIONS = {"maxMessagesPerTrigger": "30", "minMessagesPerPartition": "10", "lockTimeout": "300ms"}


#: The steps at which a batch is logged that is not settled.
BEGUN = [step for step in STEPS if step not in (ROWS_LOCKED, OFFSET_NOT_LOGGED, COMMITTED)]


@contextlib.contextmanager
def standing_still(driver, step, *, on):
    """A driver that stands still at a step; the block gets what lets it go on, and returns why it ended."""
    still, on_again, why = threading.Event(), threading.Event(), []

    def run():
        try:
            while driver.trigger():
                pass
        except Exception as error:  # noqa: BLE001 -- the test asserts it
            why.append(error)
        driver.stop()

    def stand():
        if threading.current_thread() is thread:
            still.set()
            assert on_again.wait(60)

    thread = threading.Thread(target=run)

    def go_on():
        on_again.set()
        thread.join(60)
        assert not thread.is_alive()
        return why

    with at_step(step, stand, on={on}):
        thread.start()
        assert still.wait(60)
    try:
        yield go_on
    finally:
        on_again.set()


@contextlib.contextmanager
def one_that_stands_still(engine, queue, step):
    """The log, a driver that stands still in its second batch, and what lets it go on."""
    log = Log()
    old = Driver(engine, queue, log, **OPTIONS)
    with watched_connections(old.opened), standing_still(old, step, on=2) as go_on:
        yield log, old, go_on


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_goes_on_after_another_took_its_place_changes_nothing(engine, queue, step):
    """The database has ended its sessions meanwhile, as it does with a machine that stands still."""
    queue.insert(100)
    with one_that_stands_still(engine, queue, step) as (log, _, go_on):
        engine.cut_connections()
        new = Driver(engine, queue, log, **OPTIONS)
        while new.trigger():
            pass
        seen = [*log.offsets]
        queue.insert(50, start=100)
        assert [type(each) for each in go_on()] in ([LoggedAlreadyError], [ClaimLost]), step
        assert (log.offsets, queue.count()) == (seen, 50)
        while new.trigger():
            pass
        new.stop()
    assert sorted(new.ids()) == row_ids(range(150))
    assert queue.count() == 0


@pytest.mark.parametrize("step", BEGUN)
def test_while_a_driver_stands_still_its_rows_stay_its_own(engine, queue, step):
    """Another one ends with a sentence that names the session, and the first one goes on to the end."""
    queue.insert(100)
    with one_that_stands_still(engine, queue, step) as (log, old, go_on):
        new = Driver(engine, queue, log, **OPTIONS)
        with pytest.raises(
            RowsHeld, match=rf"session \d+ \({old.name}, .*; end that session if it is a stopped"
        ):
            new.trigger()
        new.stop()
        assert go_on() == []
    assert (old.ids(), queue.count()) == (row_ids(range(100)), 0)
