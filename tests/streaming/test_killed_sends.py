"""``kill -9`` at every named step of a send: after a restart each message is at its
destination exactly once.
"""

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.children import Forward
from tests.support.drivers import death
from tests.support.drivers.forward import LIMIT
from tests.support.messages import message_ids
from tests.support.outboxes import OutboxRows
from tests.support.sending import ids_in

KILLED, ENDED = -9, 0
PIPELINES = ("optimistic", "pessimistic", "atomic")
#: Each pipeline's messages have numbers of their own.
FIRST = {"optimistic": 0, "pessimistic": 10_000, "atomic": 20_000}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def queues(postgresql):
    """The queues of the pipelines, their outboxes, and the queue that they send to."""
    for endpoint in ("optimistic", "pessimistic"):
        outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), endpoint)
    return {name: postgresql.create_queue(name) for name in (*PIPELINES, "billing")}


def fill(queues, name, batches, *, start=0):
    queues[name].insert(LIMIT * batches, start=FIRST[name] + LIMIT * start)


def arrived(queues, name):
    """The message ids of a pipeline at its destination, sorted; one that is there twice comes twice."""
    first, last = message_ids((FIRST[name], FIRST[name] + 9_999))
    return sorted(each for each in ids_in(queues["billing"]) if first <= each <= last)


def sent(name, batches):
    return message_ids(range(FIRST[name], FIRST[name] + LIMIT * batches))


def state(queues, child, name):
    """Batches of a pipeline that wait in its queue, whose offset is logged,
    whose commit is logged, that arrived.
    """
    ids = arrived(queues, name)
    assert ids == sent(name, len(ids) // LIMIT)
    logs = (len(child.logged(name, log)) for log in ("offsets", "commits"))
    return queues[name].count() / LIMIT, *logs, len(ids) // LIMIT


def staged(postgresql):
    """How many chunks are on the stage, beside the mark."""
    return postgresql.fetch("""SELECT count(*) FROM "atomic.Outgoing" WHERE task <> ''""")[0][0]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.tier("nightly"))])
def test_each_message_arrives_once_despite_kills(postgresql, queues, tmp_path, every):
    """A chain over one checkpoint a pipeline; three pipelines die at once, each at its own step, where it has
    waited for the others. Those with an outbox die again and again in their first batch; the atomic one in
    its next. At night they die at every step, by day at the last three of them.
    """
    child = Forward(url=postgresql.url, folder=tmp_path, pipelines=PIPELINES)
    for name in PIPELINES:
        fill(queues, name, 3)
    deaths = [
        # where each pipeline dies; then of each: batches in the queue, offsets logged, commits logged,
        # batches that arrived
        (
            [(fail_points.IDS_CHECKED, 1), (fail_points.IDS_INSERTED, 1), (fail_points.ROWS_STAGED, 1)],
            [(3, 1, 0, 0), (3, 1, 0, 0), (3, 1, 0, 0)],
        ),
        (
            [(fail_points.ROWS_INSERTED, 1), (fail_points.ROWS_INSERTED, 2), (fail_points.STAGE_SEALED, 1)],
            [(3, 1, 0, 0), (3, 1, 0, 0), (3, 1, 0, 0)],
        ),
        (
            [(fail_points.IDS_INSERTED, 1), (fail_points.IDS_INSERTED, 2), (fail_points.COMMIT_LOGGED, 1)],
            [(3, 1, 0, 0), (3, 1, 0, 0), (3, 1, 1, 0)],
        ),
        (
            [(fail_points.CHUNK_SENT, 1), (fail_points.CHUNK_SENT, 2), (fail_points.DELETED, 1)],
            [(3, 1, 0, 1), (3, 1, 0, 1), (2, 2, 2, 1)],
        ),
        (
            [(fail_points.COMMITTED, 1), (fail_points.COMMITTED, 2), (fail_points.COMMITTED, 3)],
            [(2, 1, 1, 1), (2, 1, 1, 1), (0, 3, 3, 3)],
        ),
    ]
    for number, (where, after) in enumerate(deaths if every else deaths[2:]):
        code = child.run(death.together(tmp_path / f"steps-{number}", *where))
        assert (where, code, [state(queues, child, name) for name in PIPELINES]) == (where, KILLED, after)

    # The last run does two batches of each pipeline in turn, and loses a worker at every step;
    # Spark tries the task again.
    fill(queues, "atomic", 2, start=3)
    last = [
        *[
            (fail_points.IDS_CHECKED, 1),
            (fail_points.ROWS_INSERTED, 1),
            (fail_points.IDS_INSERTED, 2),
            (fail_points.CHUNK_SENT, 2),
        ],
        *[(fail_points.IDS_INSERTED, 5), (fail_points.ROWS_INSERTED, 6), (fail_points.CHUNK_SENT, 5)],
        *[(fail_points.ROWS_STAGED, 1), (fail_points.ROWS_STAGED, 3)],
    ]
    assert child.run(death.worker_deaths(tmp_path / "steps-last", *last), in_turn=True) == ENDED
    noted = (tmp_path / "steps-last").read_text().splitlines()
    assert {step: noted.count(step) for step, _ in last} == {
        fail_points.IDS_CHECKED: 6,
        fail_points.ROWS_INSERTED: 5 + 4,
        fail_points.IDS_INSERTED: 4 + 5,
        fail_points.CHUNK_SENT: 3 + 3,
        fail_points.ROWS_STAGED: 4,
    }
    assert [state(queues, child, name) for name in PIPELINES] == [(0, 3, 3, 3), (0, 3, 3, 3), (0, 5, 5, 5)]
    assert staged(postgresql) == 0
    for endpoint in ("optimistic", "pessimistic"):
        assert OutboxRows(postgresql, endpoint).message_ids() == sorted(sent(endpoint, 3))
