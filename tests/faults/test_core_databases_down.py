"""A database that answers and takes nothing is down: rows for it wait, and hold no others up.

PostgreSQL only: its server makes the trouble.
"""

import contextlib
import threading

import psycopg
import pytest

from sqlqueue_spark.engines import database_retry
from sqlqueue_spark.errors import DatabaseTakesNothing, QueueError, TryAgain
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.databases_down import database_came_back
from tests.support.crossing import crossing, drained, drained_twice
from tests.support.delayed import DelayedRows
from tests.support.driver import at_step
from tests.support.gate import gated
from tests.support.messages import message_ids
from tests.support.sending import OUTBOXES, batch, ids_in, options, send, sent_all, steps
from tests.support.stored import create_home, create_outbox, numbers_in
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all", variants="nightly")


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """A database is given up after a moment."""
    monkeypatch.setattr(database_retry, "RETRY_SECONDS", 0.3)


@pytest.fixture
def orders(engine):
    if engine.name != "postgresql":
        pytest.skip("only its server makes this trouble")
    engine.create_queue("near")
    return create_home(engine, "Cross", "orders")


@pytest.fixture
def billing(elsewhere):
    create_outbox(elsewhere, "Cross")
    return elsewhere.create_queue("billing")


@pytest.fixture
def other(third):
    create_outbox(third, "Cross")
    return third.create_queue("other")


@contextlib.contextmanager
def read_only(there):
    name = there.url.rpartition("/")[2]
    there.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    yield
    there.execute("SET default_transaction_read_only = off")
    there.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')


@contextlib.contextmanager
def locked(there, table='"billing"'):
    with psycopg.connect(there.url) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield


@contextlib.contextmanager
def without_its_outbox(there):
    there.execute('ALTER TABLE "Cross_OutboxData" RENAME TO kept')
    yield
    there.execute('ALTER TABLE kept RENAME TO "Cross_OutboxData"')


@contextlib.contextmanager
def full(there, table='"billing"'):
    there.execute(
        "CREATE OR REPLACE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'could not extend file' USING ERRCODE = '53100'; END $$"
    )
    there.execute(f"CREATE TRIGGER no_room BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION no_room()")
    yield
    there.execute(f"DROP TRIGGER no_room ON {table}")


OUTBOX = '"Cross_OutboxData"'
TROUBLE = {
    "read-only": read_only,
    "locked": locked,
    "its outbox locked": lambda there: locked(there, OUTBOX),
    "without its outbox": without_its_outbox,
    "full": full,
    "full where its outbox is": lambda there: full(there, OUTBOX),
}


def urls(elsewhere, third):
    return {
        "endpoint.billing.url": elsewhere.url,
        "endpoint.other.url": third.url,
        "lockTimeout": "200ms",
    }


def to(number):
    return [("near", "billing", "other")[number % 3]]


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_rows_for_a_database_that_takes_nothing_wait_and_go_when_it_does(
    engine, elsewhere, third, orders, billing, other, trouble, outbox
):
    orders.insert(3)
    waiting, error = DelayedRows(engine, "orders"), engine.queue("error")
    sink = {**urls(elsewhere, third), "outbox": outbox}
    with crossing(engine, orders, sink, to=to) as job:
        job.databases.look()
        assert drained(job).sent == 3
        with TROUBLE[trouble](elsewhere):
            orders.insert(3, start=3)
            done = drained(job)
            assert (done.sent, done.waiting, done.failed) == (2, 1, 0)
            job.databases.look()  # whatever it finds
            drained(job)
            assert (waiting.count(), orders.count(), error.count()) == (1, 0, 0)
            assert (numbers_in(engine.queue("near")), numbers_in(other)) == ([0, 3], [2, 5])
        assert job.databases.look() == 1
        drained_twice(job)
    assert (numbers_in(billing), waiting.count(), orders.count(), error.count()) == ([1, 4], 0, 0, 0)


@pytest.mark.parametrize(
    "trouble", ["read-only", "its outbox locked", "without its outbox", "full where its outbox is"]
)
def test_a_database_is_down_until_it_takes_what_must_be_written(
    engine, elsewhere, third, orders, billing, other, trouble
):
    """What waits is not put back before."""
    orders.insert(3)
    with crossing(engine, orders, urls(elsewhere, third), to=to) as job:
        job.databases.look()
        assert drained(job).sent == 3
        with TROUBLE[trouble](elsewhere):
            orders.insert(3, start=3)
            assert drained(job).waiting == 1
            assert job.databases.look() == 0
            assert [*map(job.places.option_of, job.databases.down())] == ["endpoint.billing.url"]
        assert job.databases.look() == 1
        assert job.databases.down() == set()


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_plain_batch_for_a_database_that_takes_nothing_fails_no_message(
    engine, elsewhere, orders, billing, trouble, outbox
):
    given = SinkOptions.parse(
        {
            "url": engine.url,
            "endpoint": "Cross",
            "queue": "billing",
            "errorQueue": "error",
            "endpoint.billing.url": elsewhere.url,
            "lockTimeout": "200ms",
            "outbox": outbox,
        }
    )
    assert send(given, batch(range(2))) == (2, 0)
    with TROUBLE[trouble](elsewhere), pytest.raises((TryAgain, DatabaseTakesNothing, QueueError)):
        send(given, batch(range(4)))
    assert engine.queue("error").count() == 0
    assert send(given, batch(range(4))) == (2, 2)
    assert ids_in(billing) == message_ids(range(4))


@pytest.mark.parametrize(
    "trouble", ["read-only", "its outbox locked", "without its outbox", "full where its outbox is"]
)
def test_a_plain_batch_waits_for_a_database_that_takes_nothing(
    engine, elsewhere, orders, billing, trouble, caplog
):
    given = SinkOptions.parse(
        {
            "url": engine.url,
            "endpoint": "Cross",
            "endpoint.billing.url": elsewhere.url,
            "retryInterval": "50ms",
        }
    )
    done = []
    with TROUBLE[trouble](elsewhere):
        thread = threading.Thread(
            target=lambda: done.append(database_came_back(Places(given, given), 7, reached=True))
        )
        thread.start()
        eventually(lambda: len(caplog.records) == 1)
        assert done == []
    thread.join(20)
    assert done == [True]
    assert [each.getMessage().partition(" retry")[0] for each in caplog.records] == [
        "batch_waits batch=7 database=endpoint.billing.url",
        "database_back database=endpoint.billing.url",
    ]


@pytest.mark.parametrize("refusing", ["billing", "other"])
def test_a_database_that_comes_back_and_refuses_holds_up_no_other_one(
    engine, elsewhere, third, orders, billing, other, refusing
):
    """Both were down when the job began, and one has lost its outbox."""
    there = {"billing": elsewhere, "other": third}
    there[refusing].execute(f"DROP TABLE {OUTBOX}")
    [sound] = there.keys() - {refusing}
    orders.insert(3)
    with gated(elsewhere.url) as first, gated(third.url) as second:
        first.shut()
        second.shut()
        sink = {"endpoint.billing.url": first.url, "endpoint.other.url": second.url}
        with crossing(engine, orders, sink, to=[sound]) as job:
            assert job.databases.look() == 0
            assert drained(job) == Sent(waiting=3)
            first.open()
            second.open()
            with pytest.raises(QueueError, match="outbox table"):
                job.databases.look()
            assert [*map(job.places.option_of, job.databases.down())] == [f"endpoint.{refusing}.url"]
            assert drained(job) == Sent(sent=3)
    assert numbers_in(there[sound].queue(sound)) == [0, 1, 2]


@pytest.mark.parametrize("back", [True, False], ids=["at once", "later"])
def test_a_connection_that_breaks_before_a_look_for_another_queue_is_made_anew(
    engine, elsewhere, orders, billing, back
):
    """The look is the first that the task has to do there since."""
    far = elsewhere.create_queue("billing.2")
    orders.insert(8400)

    def to(number):
        return ["billing.2"] if 4100 <= number < 4200 else ["billing"]

    with (
        gated(elsewhere.url) as gate,
        crossing(engine, orders, {"endpoint.billing*.url": gate.url}, to=to) as job,
    ):
        with steps(), at_step("chunk sent", gate.cut if back else gate.shut, on=(1,)):
            job.trigger()
        first = job.sent
        if not back:
            gate.open()
        job.databases.look()
        assert first + drained(job) == Sent(sent=8400, waiting=first.waiting)
        assert (first.waiting == 0) is back
    assert (billing.count(), far.count()) == (8300, 100)


def test_a_connection_that_breaks_is_made_anew_for_plain_messages(engine, elsewhere, orders, billing):
    far = elsewhere.create_queue("billing.2")

    rows = batch(range(4100), Destination=["billing"] * 4050 + ["billing.2"] * 50)
    with gated(elsewhere.url) as gate:
        given = options(engine, endpoint="Cross", errorQueue="error", **{"endpoint.billing*.url": gate.url})
        with steps(), at_step("chunk sent", gate.cut):
            assert sent_all(given, rows) == Sent(sent=4100)
    assert (billing.count(), far.count()) == (4050, 50)


@contextlib.contextmanager
def refusing_logins(server, role, name):
    server.execute(f"ALTER ROLE {role} NOLOGIN")
    yield
    server.execute(f"ALTER ROLE {role} LOGIN")


@contextlib.contextmanager
def of_another_password(server, role, name):
    server.execute(f"ALTER ROLE {role} PASSWORD 'another'")
    yield
    server.execute(f"ALTER ROLE {role} PASSWORD 'open sesame'")


@contextlib.contextmanager
def renamed(server, role, name):
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    server.execute(f'ALTER DATABASE "{name}" RENAME TO "{name}_meanwhile"')
    yield
    server.execute(f'ALTER DATABASE "{name}_meanwhile" RENAME TO "{name}"')


@pytest.mark.parametrize("trouble", [refusing_logins, of_another_password, renamed])
def test_a_login_that_is_refused_since_a_while_lets_rows_wait(
    engine, elsewhere, server, orders, billing, request, trouble
):
    """A handler's answers, of which the driver does not know where they go."""
    name, role = elsewhere.url.rpartition("/")[2], f"role_{abs(hash(request.node.name))}"
    elsewhere.execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'open sesame'")
    url = server.url(name, user=role, password="open sesame")

    def handler(message):
        return [{"Destination": "billing", "Body": message["Body"]}]

    try:
        with crossing(engine, orders, {"endpoint.billing.url": url}, handler=handler) as job:
            job.databases.look()
            orders.insert(1)
            assert drained(job) == Sent(sent=2, handled=1)  # the answer is stored at home, and sent on
            with trouble(engine, role, name):
                orders.insert(1, start=1)
                assert drained(job) == Sent(sent=1, handled=1, waiting=1)
                assert job.databases.look() == 0
            assert job.databases.look() == 1
            assert drained(job) == Sent(sent=1)
        assert numbers_in(billing) == [0, 1]
    finally:
        engine.execute(f"DROP ROLE {role}")
