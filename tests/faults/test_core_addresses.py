"""Odd names of queues, and each way to write an address: the table that is meant is received from."""

from typing import Any

import pytest

from tests.support.driver import streaming
from tests.support.messages import row_ids

ODD_NAMES = [
    "my]od\"d t'able",
    "half?",
    "curly {queue} {0}",
    "back\\slash; DROP TABLE orders --",
    "[brackets]",
    '""',
    "Ünïcödé 队列",
    ".",
    "orders.2024",
]


@pytest.mark.needs("quotes_brackets")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_queue_of_any_name_is_received(engine, name):
    """It is drained, recovered and settled."""
    queue = engine.create_queue(name, schema="sch]e\"m'a {x} ?")
    queue.insert(10)
    with streaming(engine, queue, maxMessagesPerTrigger="4") as stream:
        assert stream.trigger()
        stream.crash()  # the next claim recovers
        assert stream.construct()
        stream.crash()  # the next plan replays
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_percent_sign_in_a_name_is_a_percent_sign(postgresql):
    postgresql.create_queue("plain").insert(10)
    queue = postgresql.create_queue("100% %s", schema="50%")
    queue.execute("INSERT INTO {table} (id, headers, body) SELECT id, headers, body FROM plain ORDER BY seq")
    with streaming(postgresql, queue, maxMessagesPerTrigger="4") as stream:
        assert stream.construct()
        stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


@pytest.mark.parametrize(
    "address, table",
    [
        ('"t@ble"', "t@ble"),
        ('"public"."a""b@[c]"', 'a"b@[c]'),
        ("orders@[public]", "orders"),
        ("orders@public", "orders"),
    ],
)
def test_postgresql_transport_addresses_are_understood(postgresql, address, table):
    queue = postgresql.create_queue(table)
    queue.insert(3)
    with streaming(postgresql, queue, queue=address) as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(3)), 0)


def test_a_queue_named_by_settings_is_found(postgresql):
    queue = postgresql.create_queue("Sales", schema="special")
    postgresql.create_queue("Sales", schema="public")
    queue.insert(3)
    settings: dict[str, Any] = {"queue": "Sales@[public]", "queue.SALES.schema": "special"}
    with streaming(postgresql, queue, **settings) as stream:
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(3)), 0)
