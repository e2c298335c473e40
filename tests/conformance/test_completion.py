"""The names of queues that a shell completes: those that mean themselves in every shell, and no others."""

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.completing import completed, in_bash

ODD = ("my queue", "$(touch hacked)", "`id`", "a;b", "a&b", "it's", "*", "-o", "orders\n", "a$HOME", "~root", "a]b", "{a,b}")  # fmt: skip


def test_queues_are_completed_by_their_addresses(engine):
    for name in ("orders", "Sales.A", "order-lines", "größe"):
        engine.create_queue(name)
    engine.create_queue("orders", schema="sales")
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    assert completed("length", "--url", engine.url, "") == ["Sales.A", "größe", "order-lines", "orders", "orders@sales"]  # fmt: skip
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
