"""A queue read by executors that are other processes than the driver, and die by themselves."""

import pytest

from sqlqueue_spark import fail_points
from tests.conftest import GUARDED_ROLE
from tests.support import delta
from tests.support.children import Drain
from tests.support.drivers import death
from tests.support.drivers.drain import DELTAS, FOREACH_BATCH, HALF_WRITTEN, NONE
from tests.support.messages import row_ids

KILLED, ENDED = -9, 0
DELTA = DELTAS[0]
pytestmark = [pytest.mark.tier("nightly"), pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def queues(postgresql, guarded_url):
    found = {name: postgresql.create_queue(name) for name in (DELTA, FOREACH_BATCH, NONE)}
    for name in found:
        postgresql.execute(f'GRANT SELECT, UPDATE, DELETE ON "{name}" TO {GUARDED_ROLE}')
    return found


def test_each_message_is_in_delta_once_despite_dead_executors(queues, guarded_url, tmp_path):
    """An executor dies while it reads a slice, in each of two pipelines; then everything dies between two
    tables of a batch, and an executor while the next run replays that batch. In mode none an executor that
    dies loses at most its slice, and doubles nothing.
    """
    child = Drain(url=guarded_url, folder=tmp_path, cluster=True)
    for queue in queues.values():
        queue.insert(300)

    def arrived(name, table="delta"):
        return sorted(delta.column(tmp_path / name / table, "Id"))

    def steps(run, step):
        return (tmp_path / f"steps-{run}").read_text().splitlines().count(step)

    delta_read, half_read = (death.of(each, fail_points.HALF_READ) for each in (DELTA, FOREACH_BATCH))
    orders = death.each(
        tmp_path / "steps-0",
        (delta_read, 2, "executor"),
        (half_read, 1, "executor"),
        (death.of(FOREACH_BATCH, HALF_WRITTEN), 2, "everything"),
    )
    assert child.run(orders, DELTA, FOREACH_BATCH, in_turn=True) == KILLED
    assert steps(0, delta_read) > 6, "three batches have two slices each, and one was read again"
    assert (queues[DELTA].count(), queues[FOREACH_BATCH].count()) == (0, 200)
    assert (len(arrived(FOREACH_BATCH, "half")), len(arrived(FOREACH_BATCH))) == (200, 100)

    orders = death.each(
        tmp_path / "steps-1",
        (half_read, 1, "executor"),
        (death.of(NONE, fail_points.ROWS_TAKEN), 1, "executor"),
    )
    assert child.run(orders, FOREACH_BATCH, NONE, in_turn=True) == ENDED
    sent = [str(each) for each in row_ids(range(300))]
    assert [arrived(DELTA), arrived(FOREACH_BATCH), arrived(FOREACH_BATCH, "half")] == [sent] * 3
    assert [each.count() for each in queues.values()] == [0, 0, 0]
    lost = sorted(set(sent) - set(arrived(NONE)))
    assert lost in (sent[:50], sent[50:100])
    assert sorted([*arrived(NONE), *lost]) == sent
