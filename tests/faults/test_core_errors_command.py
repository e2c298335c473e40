"""A retry or a discard of failed messages dies at any step:
each message is in exactly one place, or in the file.
"""

import contextlib
import json
import signal

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import error_discard, error_queue, failed_retry
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from tests.support import death_steps
from tests.support.driver import Crash, at_step, crash
from tests.support.drivers import death
from tests.support.error_rows import failed, failure, full
from tests.support.messages import body, message_ids, row_id
from tests.support.sending import ids_in, steps
from tests.support.waiting import eventually

pytestmark = [pytest.mark.needs("reads_json_as_documented"), pytest.mark.provokes("lock timeout")]

MANY = 30
ALL = message_ids(range(MANY))
#: Messages a second, which makes batches of ten.
RATE = 100


@pytest.fixture
def error(engine):
    queue = engine.create_queue("error")
    fill(engine, queue, MANY)
    return queue


@pytest.fixture
def orders(engine):
    return engine.create_queue()


@pytest.fixture
def billing(engine):
    return engine.create_queue("billing")


def fill(engine, queue, count):
    """Messages that have failed for orders and for billing in turn."""
    for number in range(count):
        to = full(engine, "billing" if number % 2 else "orders")
        queue.insert_row(id=row_id(number), headers=failed(number, failure(to)), body=body(number))


def options(engine):
    return ConnectionOptions.parse({"url": engine.url})


def retry(engine):
    return failed_retry.retry(options(engine), "error", Selection(), rate=RATE)


def discard(engine, file):
    return error_discard.discard(options(engine), "error", Selection(), file)


def everywhere(*queues):
    """The ids of all messages, one that is in two places twice."""
    return sorted(each for queue in queues for each in ids_in(queue))


def kept(file):
    """The numbers of the rows in a file; a line that was torn is none."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [json.loads(line)["rowVersion"] for line in lines if line.endswith(b"}")]


@pytest.mark.parametrize("step", death_steps.FAILED_STEPS)
@pytest.mark.parametrize("cut", [False, True], ids=["killed", "cut"])
def test_each_message_is_in_one_place_whatever_the_crash(engine, error, orders, billing, step, cut):
    happens = engine.cut_connections if cut else crash
    with steps(), at_step(step, happens, on=(2,)) as times, contextlib.suppress(Crash, ConnectionLost):
        retry(engine)
    assert times == [2]
    assert everywhere(error, orders, billing) == ALL
    assert 0 < error.count() < MANY
    retry(engine)
    assert (everywhere(orders, billing), error.count()) == (ALL, 0)


@pytest.mark.parametrize("step", death_steps.FAILED_STEPS)
@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
def test_another_retry_at_each_step_takes_nothing_twice(engine, error, orders, billing, step, dies):
    def meanwhile():
        retry(engine)
        if dies:
            crash()

    with steps(), at_step(step, meanwhile, on=(2,)), contextlib.suppress(Crash):
        retry(engine)
    assert everywhere(error, orders, billing) == ALL
    retry(engine)
    assert (everywhere(orders, billing), error.count()) == (ALL, 0)


@pytest.mark.parametrize("step", death_steps.FAILED_STEPS)
@pytest.mark.parametrize("cut", [False, True], ids=["killed", "cut"])
def test_nothing_is_gone_that_is_not_in_the_file(engine, error, tmp_path, monkeypatch, step, cut):
    monkeypatch.setattr(error_queue, "_BATCH_ROWS", 10)
    file = tmp_path / "kept.jsonl"
    happens = engine.cut_connections if cut else crash
    with steps(), at_step(step, happens, on=(2,)) as times, contextlib.suppress(Crash, ConnectionLost):
        discard(engine, file)
    assert times == [2]
    left = set(error.row_versions())
    assert left
    assert set(range(1, MANY + 1)) - left <= set(kept(file))
    discard(engine, file)
    assert (set(kept(file)), error.count()) == (set(range(1, MANY + 1)), 0)


def child(engine, tmp_path, number, step, *arguments):
    """The command in a process of its own, which is killed when it reaches the step for the second time."""
    return death.started(tmp_path / f"steps {number}", step, 2, engine.url, "errors", *arguments, "--yes")


def ended(engine, *children):
    assert [each.wait(60) for each in children] == [-signal.SIGKILL] * len(children)
    eventually(lambda: not engine.fetch(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"
    ))  # fmt: skip


@pytest.mark.parametrize(
    "where",
    [
        (fail_points.FAILED_LOCKED, fail_points.FAILED_DELETED),
        (fail_points.FAILED_PUT, fail_points.FAILED_COMMITTED),
    ],
    ids=["locked, deleted", "inserted, committed"],
)
def test_two_retries_at_once_are_killed(postgresql, tmp_path, where):
    """Each in a process of its own."""
    error, orders, billing = (postgresql.create_queue(name) for name in ("error", "orders", "billing"))
    fill(postgresql, error, 2 * MANY)
    expected = message_ids(range(2 * MANY))
    arguments = ("retry", "--rate", str(RATE))
    ended(postgresql, *(child(postgresql, tmp_path, *each, *arguments) for each in enumerate(where)))
    assert everywhere(error, orders, billing) == expected
    assert 0 < error.count() < len(expected)
    failed_retry.retry(options(postgresql), "error", Selection())
    assert (everywhere(orders, billing), error.count()) == (expected, 0)


def test_a_discard_is_killed_at_each_step(postgresql, tmp_path):
    """Of its second batch, each in a process of its own, on a queue of its own."""
    queues = {step: postgresql.create_queue(f"error {n}") for n, step in enumerate(death_steps.FAILED_STEPS)}
    children = []
    for number, (step, queue) in enumerate(queues.items()):
        queue.insert(260)
        arguments = ("discard", queue.name, "--to-file", str(tmp_path / step))
        children.append(child(postgresql, tmp_path, number, step, *arguments))
    ended(postgresql, *children)
    found = {step: (kept(tmp_path / step), queue.row_versions()) for step, queue in queues.items()}
    every, first, last = [*range(1, 261)], [*range(1, 251)], [*range(251, 261)]
    assert found == {
        fail_points.FAILED_LOCKED: (first, last),
        fail_points.FAILED_PUT: (every, last),
        fail_points.FAILED_DELETED: (every, last),
        fail_points.FAILED_COMMITTED: (every, []),
    }
