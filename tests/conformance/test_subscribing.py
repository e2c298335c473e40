"""Queues subscribe to events and end that, by command and by function;
the rows are those of the .NET transport.
"""

import json

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import event_subscriptions, queue_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.pipeline import HandleOptions, subscribe
from tests.support.subscriptions import SubscriptionRows

pytestmark = pytest.mark.needs("reads_json_as_documented")

PLACED = "Shop.OrderPlaced"
QUALIFIED = f"{PLACED}, Shop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"


@pytest.fixture
def routing(engine):
    return SubscriptionRows(engine)


@pytest.fixture
def billing(engine):
    return engine.create_queue("Interop.Billing")


def options(engine):
    return ConnectionOptions.parse({"url": engine.url})


def run(engine, *arguments):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, [*arguments])


def said(engine, *arguments, code=0):
    result = run(engine, *arguments)
    assert (result.exit_code, result.stderr) == (code, "")
    return result.stdout


def test_a_subscription_lives_its_whole_life_by_command(engine, routing, billing):
    first = run(engine, "subscribe", "Interop.Billing", QUALIFIED)
    assert (first.exit_code, "There is no table SubscriptionRouting" in first.stderr) == (1, True)
    made = said(engine, "subscribe", "Interop.Billing", QUALIFIED, "Shop.Paid", "--create")
    address = routing.address(billing)
    assert made == (
        f"Interop.Billing has subscribed to {PLACED}, as {address}\nInterop.Billing has subscribed to "
        f"Shop.Paid, as {address}\n"
    )
    expected = [(address, "Interop.Billing", PLACED), (address, "Interop.Billing", "Shop.Paid")]
    assert routing.rows() == expected
    again = said(engine, "subscribe", "Interop.Billing", PLACED)
    assert again == f"Interop.Billing had subscribed to {PLACED} already, as {address}\n"
    assert routing.rows() == expected
    (line,) = said(engine, "subscriptions", QUALIFIED, "--json").splitlines()
    assert json.loads(line) == {"endpoint": "Interop.Billing", "topic": PLACED, "address": address}
    assert [each.split() for each in said(engine, "subscriptions").splitlines()] == [
        ["event", "endpoint", "queue"],
        [PLACED, "Interop.Billing", address],
        ["Shop.Paid", "Interop.Billing", address],
    ]
    billing.execute("DROP TABLE {table}")
    gone = said(engine, "unsubscribe", "Interop.Billing", QUALIFIED, "Shop.Never")
    assert gone == (
        f"Interop.Billing is no longer subscribed to {PLACED}\nInterop.Billing was not "
        "subscribed to Shop.Never\n"
    )
    assert routing.rows() == expected[1:]
    assert said(engine, "subscriptions", PLACED) == f"no endpoint has subscribed to {PLACED}\n"


def test_an_endpoint_has_one_queue_for_a_type(engine, routing, billing):
    """As with the transport: the newest one. To end a subscription of the other one is refused."""
    other = engine.create_queue("other")
    said(engine, "subscribe", "Interop.Billing", PLACED, "--endpoint", "E", "--create")
    moved = said(engine, "subscribe", "other", PLACED, "--endpoint", "E")
    theirs, ours = routing.address(other), routing.address(billing)
    assert moved == f"E has subscribed to {PLACED}, as {theirs} in the place of {ours}\n"
    assert routing.rows() == [(theirs, "E", PLACED)]
    stays = said(engine, "unsubscribe", "Interop.Billing", PLACED, "--endpoint", "E", code=1)
    assert stays == f"E has subscribed to {PLACED} as {theirs}, not as Interop.Billing: that stays\n"
    assert routing.rows() == [(theirs, "E", PLACED)]
    assert (
        said(engine, "unsubscribe", "other", PLACED, "--endpoint", "E")
        == f"E is no longer subscribed to {PLACED}\n"
    )
    assert routing.rows() == []


def test_a_queue_that_is_not_there_cannot_subscribe(engine, routing):
    routing.create()
    with pytest.raises(QueueError, match="There is no queue table nowhere"):
        event_subscriptions.subscribe(options(engine), "nowhere", [PLACED])
    assert routing.rows() == []


@pytest.mark.parametrize("event", ["", " ;", ", Shop", "Shop.A;Shop.B"])
def test_what_is_no_type_is_refused(engine, routing, billing, event):
    routing.create()
    with pytest.raises(
        ConfigurationError, match=r"is no name of one type; write it in full, like Shop\.OrderPlaced"
    ):
        event_subscriptions.subscribe(options(engine), "Interop.Billing", [PLACED, event])
    assert routing.rows() == []


@pytest.mark.parametrize("kind", ["x" * 201, "x" + "\U0001f4e6" * 100])
def test_a_type_that_does_not_fit_is_refused(engine, routing, billing, kind):
    """SQL Server takes a letter beyond the first 65,536 for two, and cuts what is longer without a word."""
    routing.create()
    with pytest.raises(
        ConfigurationError, match="has 201 characters, and a table of subscriptions keeps at most 200"
    ):
        event_subscriptions.subscribe(options(engine), "Interop.Billing", [PLACED, kind])
    assert routing.rows() == []


def test_hostile_names_are_just_odd_ones(engine, routing):
    queue = engine.create_queue("or\"]ders'; DROP")
    kind, endpoint = "Shop.It's`1[[Shop.A, Shop]]", "E'; --"
    event_subscriptions.subscribe(options(engine), "or\"]ders'; DROP", [kind], endpoint, create=True)
    assert routing.rows() == [(routing.address(queue), endpoint, kind)]
    event_subscriptions.unsubscribe(options(engine), "or\"]ders'; DROP", [kind], endpoint)
    assert routing.rows() == []


def test_another_table_of_that_name_is_none(engine, routing, billing):
    table = {"postgresql": '"SubscriptionRouting"', "sqlserver": "[SubscriptionRouting]"}[engine.name]
    engine.execute(f"CREATE TABLE {table} (a int)")
    for create in (False, True):
        with pytest.raises(QueueError, match="is no table of subscriptions: it lacks one of the columns"):
            event_subscriptions.subscribe(options(engine), "Interop.Billing", [PLACED], create=create)


def test_a_job_subscribes_its_queue_under_its_own_name(engine, routing, billing):
    source = SourceOptions.parse({"url": engine.url, "queue": "Interop.Billing"})
    sink = SinkOptions.parse({"url": engine.url, "endpoint": "Shop.Orders"})
    handle = {"checkpoint": "c", "handler": "shop:handle"}
    assert subscribe(source, sink, HandleOptions.parse(handle).subscribe, create=False) == []
    wanted = HandleOptions.parse({**handle, "subscribe": f"{QUALIFIED};Shop.Paid"}).subscribe
    with pytest.raises(QueueError, match="There is no table SubscriptionRouting"):
        subscribe(source, sink, wanted, create=False)
    address = routing.address(billing)
    for _ in range(2):
        assert subscribe(source, sink, wanted, create=True) == [
            f"subscribed event={each} endpoint=Shop.Orders queue={address}" for each in (PLACED, "Shop.Paid")
        ]
    assert routing.rows() == [(address, "Shop.Orders", PLACED), (address, "Shop.Orders", "Shop.Paid")]


def test_the_table_is_created_beside_queues_when_asked_for(engine, routing):
    made = queue_tables.create(options(engine), ["orders"], subscriptions=True)
    assert [(each.table.partition("@")[0], each.new) for each in made] == [
        ("orders", True),
        ("SubscriptionRouting", True),
    ]
    routing.add("x", PLACED)
    assert [each.new for each in queue_tables.create(options(engine), ["orders"], subscriptions=True)] == [
        False,
        False,
    ]
    assert routing.rows() == [("x", "x", PLACED)]


def test_the_script_creates_it_any_number_of_times(engine, routing):
    result = CliRunner().invoke(main, ["script", "orders", "--engine", engine.name, "--subscriptions"])
    for _ in range(2):
        engine.execute(result.stdout)
    assert routing.rows() == []
