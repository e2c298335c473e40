"""``kill -9`` at every named step of a micro-batch: after a restart each message is in Delta exactly once."""

import itertools

import pytest

from sqlqueue_spark import fail_points
from tests.conftest import GUARDED_ROLE
from tests.support import death_steps, delta
from tests.support.children import Drain
from tests.support.drivers import death
from tests.support.drivers.drain import DELTAS, FOREACH_BATCH, HALF_WRITTEN, NONE, PIPELINES, WRITTEN
from tests.support.messages import row_ids

KILLED, ENDED = -9, 0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # four starts of Spark


def sent(messages):
    return [str(each) for each in row_ids(range(messages))]


def files_that_tell(folder, secret):
    """Among what the runs said, their event logs, their checkpoints and their tables."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {"said-0.txt", "metadata"} <= {file.name for file in files}
    assert any(b"sqlqueue" in file.read_bytes() for file in (folder / "events").iterdir())
    return [str(file) for file in files if secret.encode() in file.read_bytes()]


def test_each_message_is_in_delta_once_despite_kills(postgresql, guarded_url, tmp_path):
    """Five pipelines, each a chain over one queue and one checkpoint: a run takes up what the one before
    left, and dies later. They die at once, each at its own step, where it has waited for the others.

    - Three into Delta's sink, so that everything dies at each step. Batches have two slices, and before each
      run 50 messages arrive. The most rows of a batch change from run to run: the same claim once more would
      hide that the last batch was never deleted.
    - Delta's sink in transaction mode none: a death loses what its batch had taken, and doubles nothing. In
      each batch two workers take half of its rows each, with one statement.
    - ``foreachBatch`` with two tables: between them everything dies, after both the driver alone. Spark's
      Python processes that outlive it end by themselves and give the rows back.

    The password stands in the environment, in an option or in a url. None of the runs may tell it.
    """
    queues = {name: postgresql.create_queue(name) for name in PIPELINES}
    for name in PIPELINES:
        postgresql.execute(f'GRANT SELECT, UPDATE, DELETE ON "{name}" TO {GUARDED_ROLE}')
    child = Drain(url=guarded_url, folder=tmp_path)
    steps = (tmp_path / f"steps-{number}" for number in itertools.count())
    messages = 0
    died: list[tuple[str, str]] = []

    def arrive(count):
        """As many messages more in each queue of Delta's sinks."""
        nonlocal messages
        (messages,) = {queues[name].insert(count, start=messages).stop for name in DELTAS}

    def state(name):
        """Rows left in the queue, batches whose offset is logged, batches whose commit is logged."""
        return queues[name].count(), *(len(child.logged(name, log)) for log in ("offsets", "commits"))

    def arrived(name, table="delta"):
        return sorted(delta.column(tmp_path / name / table, "Id"))

    def everything_dies(limit, *where):
        """Messages arrive, and each pipeline reaches its step.

        Of those into Delta's sinks: the state, and how many are in Delta.
        """
        arrive(50)
        orders = death.together(next(steps), *((death.of(name, step), nth) for name, step, nth in where))
        assert child.run(orders, *(name for name, *_ in where), limit=limit) == KILLED
        died.extend((name, step) for name, step, _ in where)
        found = {name: arrived(name) for name in DELTAS}
        for name, ids in found.items():
            assert (name, len(ids)) == (name, len(set(ids)))
            assert (name, sorted({*ids, *map(str, queues[name].ids())})) == (name, sent(messages))
        return [(*state(name), len(found[name])) for name in DELTAS]

    arrive(150)
    queues[NONE].insert(300)
    queues[FOREACH_BATCH].insert(200)
    assert everything_dies(
        100,
        *zip(DELTAS, death_steps.STEPS[:3], (2, 2, 4), strict=True),
        (NONE, fail_points.OFFSET_LOGGED, 2),
        (FOREACH_BATCH, HALF_WRITTEN, 2),
    ) == [(100, 1, 1, 100), (100, 2, 1, 100), (100, 2, 1, 100)]
    assert (state(NONE), state(FOREACH_BATCH)) == ((200, 2, 1), (100, 2, 1))
    assert (len(arrived(FOREACH_BATCH, "half")), len(arrived(FOREACH_BATCH))) == (200, 100)

    # In turn: a worker dies, Spark tries its task again, and the pipeline comes to its end;
    # then a driver dies.
    orders = death.each(
        next(steps),
        (death.of(NONE, fail_points.ROWS_TAKEN), 1, "this process"),
        (death.of(FOREACH_BATCH, WRITTEN), 1, "driver"),
    )
    assert child.run(orders, NONE, FOREACH_BATCH, in_turn=True) == KILLED
    assert (state(NONE), state(FOREACH_BATCH)) == ((0, 4, 4), (100, 2, 1))
    assert (len(arrived(FOREACH_BATCH, "half")), len(arrived(FOREACH_BATCH))) == (200, 200)
    # Rows 101 to 200 were planned when everything died, and none was taken;
    # then a worker died with a slice of them.
    lost = sorted(set(sent(300)) - set(arrived(NONE)))
    assert len(arrived(NONE)) == 250
    assert lost in (sent(300)[100:150], sent(300)[150:200])

    queues[NONE].insert(100, start=300)
    assert everything_dies(
        80,
        *zip(DELTAS, death_steps.STEPS[3:], (1, 1, 1), strict=True),
        (NONE, fail_points.ROWS_TAKEN, 1),
    ) == [(150, 2, 2, 180), (150, 2, 2, 200), (50, 2, 2, 200)]
    taken = 100 - queues[NONE].count()
    assert child.logged(NONE, "commits") == child.logged(NONE, "offsets")[:-1]
    assert taken in (40, 80)
    assert tuple(step for name, step in died if name in DELTAS) == death_steps.STEPS
    assert tuple(step for name, step in died if name == NONE) == death_steps.TAKING_STEPS

    # The last run loses a worker in the middle of a slice; Spark tries that task again.
    arrive(50)
    queues[FOREACH_BATCH].insert(50, start=200)
    half_read = death.of(DELTAS[0], fail_points.HALF_READ)
    last = next(steps)
    assert child.run(death.orders(last, half_read, 1, "this process"), *PIPELINES) == ENDED
    assert last.read_text().splitlines().count(half_read) == 4
    assert (state(FOREACH_BATCH), queues[NONE].count()) == ((0, 3, 3), 0)
    for name in DELTAS:
        assert (name, queues[name].count(), arrived(name)) == (name, 0, sent(messages))
        assert (name, child.logged(name, "commits")) == (name, child.logged(name, "offsets"))
    assert (arrived(FOREACH_BATCH, "half"), arrived(FOREACH_BATCH)) == (sent(250), sent(250))
    ids = arrived(NONE)
    assert (len(ids), len(set(ids))) == (350 - taken, 350 - taken)
    assert files_that_tell(tmp_path, "sesame") == []
