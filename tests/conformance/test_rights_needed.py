"""Who lacks a right is told which rights the very work needs, and how an administrator gives them."""

import re
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import outbox_tables, queue_tables
from sqlqueue_spark.errors import NoRight
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from tests.command_line.test_cli import said
from tests.support.sending import PLAIN


@pytest.fixture
def limited(guarded_url):
    return ConnectionOptions(url=guarded_url)


def refusal(act):
    with pytest.raises(NoRight) as caught:
        act()
    fact, needed = str(caught.value).split("; ", 1)
    assert re.match(r"User 'guarded' lacks a right at \S+ while ", fact)
    return needed


SCRIPT = "sqlqueue script --engine postgresql --grants 'guarded' --role installer"


def test_a_login_that_creates_a_queue_is_told_an_installers_rights(postgresql, limited):
    needed = refusal(lambda: queue_tables.create(limited, ["x'y"]))
    assert needed == (
        'a login that creates the queue x\'y@[public] needs USAGE ON SCHEMA "public", CREATE ON SCHEMA '
        '"public"; an administrator '
        f"gives it with what this prints: {SCRIPT} 'x'\"'\"'y@[public]'"
    )
    script = said(
        postgresql, "script", "x'y", "--engine", "postgresql", "--grants", "guarded", "--role", "installer"
    )
    for statement in script.splitlines():
        postgresql.execute(statement)
    assert [made.new for made in queue_tables.create(limited, ["x'y"])] == [True]


def test_a_login_that_creates_a_stage_is_told_an_installers_rights(postgresql, limited):
    postgresql.create_queue()
    needed = refusal(lambda: queue_tables.create(limited, ["orders"], stream="Orders"))
    assert needed.startswith(
        'a login that creates the stage Orders.Outgoing@[public] needs USAGE ON SCHEMA "public", CREATE ON '
    )


def test_a_login_that_creates_an_outbox_is_told_an_installers_rights(limited):
    needed = refusal(lambda: outbox_tables.create(limited, "Sales"))
    assert needed == (
        'a login that creates the outbox table "public"."Sales_OutboxData" needs USAGE ON SCHEMA "public", '
        "CREATE ON SCHEMA "
        f"\"public\"; an administrator gives it with what this prints: {SCRIPT} 'Sales_OutboxData@[public]'"
    )


@pytest.mark.parametrize("act", ["report", "cleanup", "send"])
def test_a_login_that_uses_an_outbox_is_told_its_rights(postgresql, guarded_url, act):
    options = ConnectionOptions(url=guarded_url)
    outbox_tables.create(ConnectionOptions(url=postgresql.url), "Sales")
    postgresql.create_queue()
    sink = SinkOptions(url=guarded_url, queue="orders", endpoint="Sales")
    acts = {
        "report": lambda: outbox_tables.report(options, "Sales"),
        "cleanup": lambda: outbox_tables.cleanup(options, "Sales", timedelta(days=7)),
        "send": lambda: prepare(Destinations(sink), PLAIN, ["orders"]),
    }
    assert refusal(acts[act]) == (
        "an outbox needs SELECT, INSERT and DELETE (and UPDATE on PostgreSQL, to lock rows) on its table; "
        "sqlqueue script QUEUE --engine postgresql --grants 'guarded' --role sender --endpoint 'Sales' "
        "writes the statements."
    )
