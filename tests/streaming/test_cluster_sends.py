"""On a cluster: each message is at its destination exactly once, though executors die on its way."""

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.children import Forward
from tests.support.drivers import death
from tests.support.drivers.forward import CALLED, LIMIT
from tests.support.messages import message_ids
from tests.support.sending import ids_in

pytestmark = [pytest.mark.slow, pytest.mark.tier("nightly"), pytest.mark.timeout(600)]

#: In each pipeline the first batch loses an executor at the first step, the second one at the second.
STEPS = {
    "optimistic": [(fail_points.IDS_CHECKED, 1), (fail_points.CHUNK_SENT, 2)],
    "atomic": [(fail_points.ROWS_STAGED, 1), (fail_points.ROWS_STAGED, 3)],
    "handled": [(CALLED, 3), (fail_points.CHUNK_SENT, 2)],
}


@pytest.mark.parametrize("name", STEPS)
def test_each_message_arrives_once_though_executors_die(postgresql, tmp_path, name):
    """Of a dead executor no process is left: the child in which a function is called ends with its worker."""
    if name != "atomic":
        outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), name)
    queue, billing, error = (postgresql.create_queue(each) for each in (name, "billing", "error"))
    queue.insert(2 * LIMIT)
    child = Forward(url=postgresql.url, folder=tmp_path, pipelines=[name], cluster=True)
    assert child.run(death.executor_deaths(tmp_path / "steps", *STEPS[name])) == 0
    assert sorted(ids_in(billing)) == message_ids(range(2 * LIMIT))
    noted = (tmp_path / "steps").read_text().splitlines()
    assert [noted.count(step) >= nth for step, nth in STEPS[name]] == [True, True]
    assert (queue.count(), error.count(), child.logged(name, "commits")) == (0, 0, [0, 1])
