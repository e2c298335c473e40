"""Source, sink, handler and mover agree where an address leads that a message in transit names."""

import json

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions
from tests.support import messages
from tests.support.crossing import crossing, drained, number_of
from tests.support.delayed import DelayedRows, move
from tests.support.messages import body, row_id
from tests.support.outcomes import outgoing
from tests.support.stored import create_home, numbers_in

pytestmark = [pytest.mark.tier("all"), pytest.mark.needs("reads_json_as_documented")]

#: Handled by the job: the queue of the job itself, orders of the schema public.
OWN = "own"
ERROR = '"public"."error"'
#: Tables beside it, by their schemas and names, in both databases.
RIVALS = ("public", "Orders"), ("sales", "orders"), ("public", "billing")
#: By the options of the job and the mover: where addresses lead. {here} and {there} are the databases' names.
WAYS = {
    "no options": (
        {},
        {
            "orders": OWN,
            "orders@public": OWN,
            "orders@[public]": OWN,
            "orders@[]": OWN,
            '"orders"': OWN,
            '"public"."orders"': OWN,
            "orders@[public]@[{here}]": OWN,
            "orders@@{here}": OWN,
            "orders@[public]@[{there}]": "error",
            "Orders": "public.Orders",
            '"public"."Orders"': "public.Orders",
            "Orders@[public]@[{here}]": "public.Orders",
            "Orders@[public]@[{there}]": "error",
            "orders@[PUBLIC]": "error",
            "orders@[sales]": "sales.orders",
            '"sales"."orders"': "sales.orders",
            "orders@MACHINE": "error",
            "orders@a@b@c": "error",
            "billing": "public.billing",
        },
    ),
    "schema of the queue": (
        {"queue.orders.schema": "public"},
        {"orders@[sales]": OWN, '"sales"."orders"': OWN, "Orders@[sales]": "public.Orders"},
    ),
    "schema of the endpoint": (
        {"endpoint.ord*.schema": "public"},
        {"orders@[sales]": OWN, '"sales"."orders"': OWN, "Orders@[sales]": "public.Orders"},
    ),
    "default schema": ({"defaultSchema": "sales"}, {"orders": "sales.orders", "orders@[public]": OWN}),
    "legacy addresses": (
        {"legacyAddresses": "true"},
        {
            "orders@MACHINE": OWN,
            "orders@a@b@c": OWN,
            '"sales"."orders"': "sales.orders",
            "Orders@X": "public.Orders",
        },
    ),
    "url of another endpoint": (
        {"endpoint.bill*.url": "{there}"},
        {
            "billing": "there public.billing",
            '"public"."billing"': "there public.billing",
            "billing@[public]@[{there}]": "there public.billing",
            "BILLING": "error",
            "orders": OWN,
            "Orders": "public.Orders",
        },
    ),
    "url of the own endpoint": (
        {"endpoint.orders.url": "{there}"},
        {
            "orders": OWN,
            "orders@[public]@[{here}]": OWN,
            "orders@[public]@[{there}]": "there public.orders",
            "Orders": "there public.Orders",
            '"sales"."orders"': "there sales.orders",
            "billing": "public.billing",
        },
    ),
    "url of this database": (
        {"endpoint.billing.url": "{here}"},
        {"billing": "public.billing", "orders": OWN},
    ),
}


def name_of(engine):
    return engine.fetch("SELECT current_database()")[0][0]


@pytest.fixture
def here(engine):
    return engine


@pytest.fixture
def orders(here):
    """The queue of the job, with an outbox in each schema that may be the default one."""
    here.execute("CREATE SCHEMA sales")
    outbox_tables.create(ConnectionOptions.parse({"url": here.url, "defaultSchema": "sales"}), "Cross")
    return create_home(here, "Cross", "orders")


@pytest.fixture
def there(elsewhere):
    create_home(elsewhere, "Cross", "orders")
    return elsewhere


@pytest.fixture
def everywhere(here, there, orders):
    """All queues that a message may come to, by what a case calls them."""
    queues = {OWN: here.create_queue("Handled"), "error": here.queue("error"), "orders": orders}
    for schema, name in RIVALS:
        queues[f"{schema}.{name}"] = here.create_queue(name, schema=schema)
        queues[f"there {schema}.{name}"] = there.create_queue(name, schema=schema)
    return {**queues, "there public.orders": there.queue("orders"), "there error": there.queue("error")}


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("route", ["received", "due"])
@pytest.mark.parametrize("gone", [False, True], ids=["all there", "no other queue here"])
@pytest.mark.parametrize("case", WAYS)
def test_a_message_comes_to_where_its_address_leads(here, there, orders, everywhere, case, gone, route):
    """Without other queues here the source and the mover cannot move it, and the sink judges it."""
    names = {"here": name_of(here), "there": name_of(there)}
    urls = {"{here}": here.url, "{there}": there.url}
    given = {name: urls.get(value, value) for name, value in WAYS[case][0].items()}
    ways = {address.format(**names): place for address, place in WAYS[case][1].items()}
    if gone:
        for schema, name in RIVALS:
            everywhere.pop(f"{schema}.{name}").execute("DROP TABLE {table}")
        ways = {address: place if place in everywhere else "error" for address, place in ways.items()}
    for number, address in enumerate(ways, start=1):
        text = messages.headers(number)[:-1] + f',"{FORWARD_DESTINATION}":{json.dumps(address)}}}'
        orders.insert_row(id=row_id(number), headers=text, body=body(number))
    if route == "due":
        later = DelayedRows(here, "orders").quoted
        past = "now()::timestamp - interval '1 day'"
        here.execute(
            f"INSERT INTO {later} (headers, body, due) SELECT headers, body, {past} FROM orders ORDER BY seq"
        )
        here.execute("DELETE FROM orders")
        move(here, "orders", ERROR, **given)
    handled = []

    def handler(message):
        handled.append(number_of(message))
        return [outgoing('"public"."Handled"', handled[-1])]

    with crossing(
        here, orders, {**given, "errorQueue": ERROR}, handler=handler, url=here.url, **given
    ) as job:
        drained(job)
    spelled = dict(enumerate(ways, start=1))
    found = [(spelled[number], place) for place, queue in everywhere.items() for number in numbers_in(queue)]
    assert sorted(found) == sorted(ways.items())
    own = {address for address, place in ways.items() if place == OWN}
    # The handler does not know its database's name. The sink does, and drops what the handler answers.
    in_any = {address for address in ways if address.startswith("orders@[public]@[")}
    assert own <= {spelled[number] for number in handled} <= own | in_any
