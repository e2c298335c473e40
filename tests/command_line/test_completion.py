"""The names of queues and endpoints that a shell completes:
those that mean themselves in every shell, and no others.
"""

import json

from click.testing import CliRunner

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.options import ConnectionOptions
from tests.support.completing import completed, in_bash, in_fish, in_zsh, needs_fish, needs_zsh

ODD = (
    "my queue",
    "$(touch hacked)",
    "`id`",
    "a;b",
    "a&b",
    "it's",
    "*",
    "-o",
    "orders\n",
    "a$HOME",
    "~root",
    "a]b",
    "{a,b}",
)


def test_queues_are_completed_by_their_addresses(engine):
    for name in ("orders", "Sales.A", "order-lines", "größe"):
        engine.create_queue(name)
    engine.create_queue("orders", schema="sales")
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    assert completed("length", "--url", engine.url, "") == [
        "Sales.A",
        "größe",
        "order-lines",
        "orders",
        "orders@sales",
    ]
    assert completed("peek", "--url", engine.url, "--json", "orders") == ["orders", "orders@sales"]
    assert completed("errors", "list", "--url", engine.url, "S") == ["Sales.A"]
    own = "public" if engine.name == "postgresql" else "dbo"
    given = ("--url", engine.url, "--default-schema", "sales")
    assert completed("length", *given, "o") == [f"order-lines@{own}", "orders", f"orders@{own}"]


def test_a_name_that_a_shell_would_run_is_left_out(engine):
    for name in (*ODD, "orders"):
        engine.create_queue(name)
    assert completed("length", "--url", engine.url, "") == ["orders"]


def test_bash_completes_a_queue(postgresql, tmp_path):
    postgresql.create_queue("orders", schema="sales")
    postgresql.create_queue("Billing")
    environment = {"SQLQUEUE_URL": postgresql.url}
    assert in_bash(tmp_path, "sqlqueue length ", **environment) == (["Billing", "orders@sales"], "")
    # Bash has cut the word at the @, and puts the completion in the place of what follows.
    assert in_bash(tmp_path, "sqlqueue length orders@s", "@s", **environment) == (["@sales"], "")
    assert in_bash(tmp_path, f"sqlqueue length --url {postgresql.url} o") == (["orders@sales"], "")
    assert in_bash(tmp_path, "sqlqueue drain B", **environment) == (["Billing"], "")


@needs_fish
def test_fish_completes_a_queue(postgresql, tmp_path):
    for name in ("Billing", "$(touch hacked)"):
        postgresql.create_queue(name)
    assert in_fish(tmp_path, "sqlqueue length ", SQLQUEUE_URL=postgresql.url) == ["Billing"]
    assert in_fish(tmp_path, "sqlqueue forward orders --to B", SQLQUEUE_URL=postgresql.url) == ["Billing"]


@needs_zsh
def test_zsh_completes_a_queue(postgresql, tmp_path):
    postgresql.create_queue("orders", schema="sales")
    in_zsh(tmp_path, "sqlqueue length ord", "sqlqueue length orders@sales", SQLQUEUE_URL=postgresql.url)


def test_endpoints_are_completed_by_their_outboxes(engine):
    """Those of the schema in which the command looks."""
    url = engine.url
    outbox_tables.create(ConnectionOptions.parse({"url": url}), "Shop.Sales")
    engine.create_queue("Shop_Billing")
    assert completed("outbox", "report", "--url", url, "S") == ["Shop_Sales"]
    result = CliRunner().invoke(main, ["outbox", "report", "Shop_Sales", "--url", url, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["rows"]) == (0, 0)
    engine.create_queue("orders", schema="sales")
    outbox_tables.create(ConnectionOptions.parse({"url": url, "defaultSchema": "sales"}), "Other")
    assert completed("outbox", "report", "--url", url, "") == ["Shop_Sales"]
    assert completed("outbox", "report", "--url", url, "--schema", "sales", "") == ["Other"]
