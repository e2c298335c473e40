"""A login with the rights of its role can do all of its work, and with one of them less it cannot."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import outbox_tables, queue_peek, queue_tables
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.tables import scripts
from tests.conftest import GUARDED_PASSWORD
from tests.support.driver import streaming
from tests.support.engines import Engine
from tests.support.forwarding import NAME, forwarding, staged
from tests.support.messages import message_ids
from tests.support.sending import PLAIN, batch, ids_in, options, send
from tests.support.stages import gives_way

pytestmark = [pytest.mark.needs("makes_logins"), gives_way]

LIMITED = "limited_login"


def parsed(url, **more):
    return ConnectionOptions.parse({"url": url, **more})


@pytest.fixture
def limited_url(engine: Engine, request: pytest.FixtureRequest) -> Iterator[str]:
    """A login that has no right to anything in this database."""
    if engine.name == "postgresql":
        url = request.getfixturevalue("guarded_url")
        engine.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")  # which else may use it
        yield url
        return
    engine.execute(f"CREATE LOGIN {LIMITED} WITH PASSWORD = N'{GUARDED_PASSWORD}', CHECK_POLICY = OFF")
    try:
        engine.execute(f"CREATE USER {LIMITED} FOR LOGIN {LIMITED}")
        yield str(OdbcString.of(engine.url).replaced({"UID": LIMITED, "PWD": GUARDED_PASSWORD}))
    finally:
        engine.cut_connections()
        engine.execute(f"DROP USER IF EXISTS {LIMITED}")
        engine.execute(f"DROP LOGIN {LIMITED}")


def user_of(engine_name: str) -> str:
    return {"postgresql": "guarded", "sqlserver": LIMITED}[engine_name]


def lines(engine_name, role, queue="orders", **more):
    return scripts.grants(engine_name, user_of(engine_name), role, [queue], **more).splitlines()


# What a role has and does. Another login makes the tables.


def receiver(engine_name):
    return lines(engine_name, "receiver")


def receive(engine, url):
    queue = engine.queue()
    queue.insert(30)
    for mode in ("receiveOnly", "none"):
        with streaming(engine, queue, url=url, transactionMode=mode, maxMessagesPerTrigger="10") as stream:
            assert stream.trigger()
            assert stream.construct()
            stream.stop()  # the next process begins with a replay and a recovery
            stream.drain()
        assert queue.count() == 0
        queue.insert(30)
    said = parsed(url)
    assert (queue_tables.length(said, "orders").rows, len([*queue_peek.look(said, "orders", count=10)])) == (
        30,
        10,
    )
    assert queue_tables.purge(said, "orders") == 30


def sender(engine_name):
    return lines(engine_name, "sender", endpoint="Sales")


def send_with_outbox(engine, url):
    for first, mode in ((0, "optimistic"), (20, "pessimistic")):
        given = options(engine, url=url, outbox=mode)
        prepare(Destinations(given), PLAIN, ["orders"])
        assert send(given, batch(range(first, first + 10))) == (10, 0)
        assert send(given, batch(range(first, first + 12))) == (2, 10)
    assert outbox_tables.cleanup(parsed(url), "Sales", timedelta(days=7)) == 0
    assert outbox_tables.report(parsed(url), "Sales").found.rows == 24
    queue_tables.send(parsed(url), "orders", queue_tables.Draft(message_type="T"))
    assert ids_in(engine.queue())[:-1] == message_ids([*range(12), *range(20, 32)])


def atomic(engine_name):
    return [*lines(engine_name, "receiver", stream=NAME), *lines(engine_name, "sender", "billing")]


def forward(engine, url):
    queue = engine.queue()
    queue.insert(30)
    with forwarding(engine, queue, "billing", url=url, maxMessagesPerTrigger="10") as stream:
        while stream.trigger():
            pass
    assert (queue.count(), staged(engine), ids_in(engine.queue("billing"))) == (0, 0, message_ids(range(30)))


def installer(engine_name):
    return lines(engine_name, "installer", "new")


def install(engine, url):
    made = queue_tables.create(parsed(url), ["new"], companions=["error"])
    assert [each.new for each in made] == [True, True]
    assert not queue_tables.create(parsed(url), ["new"])[0].new
    assert outbox_tables.create(parsed(url), "New").new


WORK = {receiver: receive, sender: send_with_outbox, atomic: forward, installer: install}
LEFT_OUT = [
    (engine, role, line)
    for engine in ("postgresql", "sqlserver")
    for role in WORK
    for line in dict.fromkeys(role(engine))
]


@pytest.fixture
def tables(engine):
    """All that the work needs but what it makes itself."""
    engine.create_queue()
    engine.create_queue("billing")
    outbox_tables.create(parsed(engine.url), "Sales")
    for part in 2 * scripts.create(engine.name, [], stream=NAME).split("\nGO\n"):
        if part.strip():
            engine.execute(part)


def grant(engine, wanted):
    for line in wanted:
        engine.execute(line)


@pytest.mark.parametrize("role", WORK, ids=lambda role: role.__name__)
def test_what_the_script_grants_is_enough(engine, tables, limited_url, role):
    grant(engine, role(engine.name))
    WORK[role](engine, limited_url)


@pytest.mark.parametrize(
    "engine,role,line",
    LEFT_OUT,
    indirect=["engine"],
    ids=lambda each: getattr(each, "__name__", str(each).partition(" TO ")[0]),
)
def test_no_line_of_it_can_be_left_out(engine, tables, limited_url, role, line):
    grant(engine, (each for each in role(engine.name) if each != line))
    # SQL Server hides a table from those who have no right to it.
    with pytest.raises((ConfigurationError, QueueError), match=r"lacks a right|There is no"):
        WORK[role](engine, limited_url)
