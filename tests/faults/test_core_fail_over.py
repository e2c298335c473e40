"""The server of home forgets its last commits: with ``outboxEndpoint`` no message is lost.

PostgreSQL only: its tables are put back as they were. Another database keeps what it got.
"""

import json
from datetime import timedelta

import pytest

from sqlqueue_spark import fail_points
from tests.support.crossing import crossing, drained, drained_twice, number_of
from tests.support.delayed import DelayedRows
from tests.support.driver import Stream, at_step
from tests.support.forwarding import MESSAGE_100, forwarding, staged
from tests.support.messages import body, message_ids, row_id
from tests.support.outcomes import failure, outgoing
from tests.support.sending import OUTBOXES, ids_in
from tests.support.stored import create_home, create_outbox, numbers_in

MANY = 8


@pytest.fixture
def home(engine):
    if engine.name != "postgresql":
        pytest.skip("only there can all tables be put back")
    return engine


@pytest.fixture
def orders(home):
    home.create_queue("near")
    queue = create_home(home, "Cross", "orders")
    queue.insert(MANY)
    return queue


@pytest.fixture
def billing(elsewhere):
    create_outbox(elsewhere, "Cross")
    return elsewhere.create_queue("billing")


@pytest.fixture(params=OUTBOXES)
def sink(request, elsewhere):
    return {"outbox": request.param, "endpoint.billing.url": elsewhere.url}


class Replica:
    """What another server has of all tables of a database, under the same numbers and Ids."""

    def __init__(self, engine):
        self._engine = engine
        found = engine.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        self._tables = [str(name) for (name,) in found]

    def catch_up(self):
        self._engine.execute("DROP SCHEMA IF EXISTS kept CASCADE")
        self._engine.execute("CREATE SCHEMA kept")
        for name in self._tables:
            self._engine.execute(f'CREATE TABLE kept."{name}" AS TABLE public."{name}"')

    def take_over(self, job: Stream):
        """The job's process loses its connections too."""
        job.crash()
        for name in self._tables:
            self._engine.execute(f'TRUNCATE public."{name}"')
            self._engine.execute(f'INSERT INTO public."{name}" TABLE kept."{name}"')


@pytest.fixture
def replica(home, orders, billing):
    found = Replica(home)
    found.catch_up()
    return found


class Handler:
    """Answers to both databases, fails, and has messages tried again. ``called`` has their numbers."""

    def __init__(self):
        self.called = []

    def __call__(self, message):
        number = number_of(message)
        self.called.append(number)
        if number % 4 == 2:
            return {"Failure": failure()}
        if number % 4 == 3:
            return {"Failure": failure(RetryAfter=timedelta(hours=1))}
        return [outgoing("billing" if number % 4 else "near", number)]


def where(home, orders, billing):
    """The numbers that are near, in the other database, in error, and that wait; and what is left."""
    waiting = [json.loads(row.body or b"")["order"] for row in DelayedRows(home, "orders").rows()]
    found = [numbers_in(home.queue("near")), numbers_in(billing), numbers_in(home.queue("error")), waiting]
    return [sorted(each) for each in found], orders.count()


HANDLED = ([[0, 4], [1, 5], [2, 6], [3, 7]], 0)


@pytest.mark.parametrize("batches", [1, 2])
def test_handled_rows_whose_outcomes_were_forgotten_come_again(home, orders, billing, replica, sink, batches):
    """After two batches the other database has what the first one stored for it, and gets it again."""
    with crossing(home, orders, sink, handler=Handler(), outboxEndpoint="Cross") as job:
        for _ in range(batches):
            assert job.trigger()
        replica.take_over(job)
        drained_twice(job)
    assert where(home, orders, billing) == HANDLED


def test_rows_whose_outcomes_the_replica_has_are_settled_and_the_others_come_again(
    home, orders, billing, replica, sink
):
    """The replica has what the first of two tasks did."""
    handler = Handler()
    with crossing(home, orders, sink, handler=handler, outboxEndpoint="Cross") as job:
        with at_step(fail_points.CHUNK_SENT, replica.catch_up) as caught_up:
            assert job.trigger()
        assert caught_up == [1]
        replica.take_over(job)
        drained(job)
    assert where(home, orders, billing) == HANDLED
    assert sorted(handler.called) == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]


def test_rows_that_were_settled_and_then_brought_back_have_no_outcome_again(
    home, orders, billing, replica, sink
):
    """The replica lacks only that the batch was settled."""
    handler = Handler()
    with crossing(home, orders, sink, handler=handler, outboxEndpoint="Cross") as job:
        assert job.trigger()
        replica.catch_up()
        drained(job)
        job.crash()
        replica.take_over(job)
        drained_twice(job)
    assert where(home, orders, billing) == HANDLED


def test_rows_that_were_passed_on_and_forgotten_are_passed_on_again_where_they_are_missing(
    home, orders, billing, replica, sink
):
    orders.insert_row(id=row_id(99), headers="no JSON", body=body(99))
    replica.catch_up()
    with crossing(home, orders, sink, to=["near", "billing"], outboxEndpoint="Cross") as job:
        assert job.trigger()
        assert len(numbers_in(billing)) == MANY
        replica.take_over(job)
        drained_twice(job)
    every = [*range(MANY)]
    assert where(home, orders, billing) == ([every, every, [99], []], 0)


def test_known_rows_are_settled_and_others_come_again_if_the_process_dies_before_they_are_settled(
    home, orders, billing, sink
):
    handler = Handler()
    with crossing(home, orders, sink, handler=handler, outboxEndpoint="Cross") as job:
        assert job.trigger()
        job.crash()
        drained(job)
    assert where(home, orders, billing) == HANDLED
    assert sorted(handler.called) == [*range(MANY)]


def test_rows_that_were_passed_on_come_again_and_nothing_is_doubled_if_the_process_dies(
    home, orders, billing, sink
):
    """Home does not know of them; their destinations do."""
    orders.insert_row(id=row_id(99), headers="no JSON", body=body(99))
    with crossing(home, orders, sink, to=["near", "billing"], outboxEndpoint="Cross") as job:
        assert job.trigger()
        job.crash()
        assert drained(job).repeated == 2 * MANY
    every = [*range(MANY)]
    assert where(home, orders, billing) == ([every, every, [99], []], 0)


@pytest.mark.parametrize("planned", [False, True], ids=["logged", "planned"])
def test_what_an_atomic_batch_had_staged_for_another_source_goes_out_again(home, planned):
    """The replica knows the batch as sealed and not as settled. Spark has logged the next offset."""
    queue, billing = home.create_queue("orders"), home.create_queue("billing")
    queue.insert(10)
    with forwarding(home, queue, maxMessagesPerTrigger="10", claimAhead="false") as stream:
        stream.others[0] = [MESSAGE_100]
        assert stream.trigger()
        queue.insert(10, start=10)
        replica = Replica(home)
        replica.catch_up()
        assert stream.construct()  # it settles the first batch
        if planned:
            stream.plan()
        replica.take_over(stream)
        assert (ids_in(billing), queue.count()) == ([], 20)
        stream.drain()
        assert sorted(ids_in(billing)) == sorted(message_ids([*range(20), 100]))
        assert (queue.count(), staged(home)) == (0, 0)
