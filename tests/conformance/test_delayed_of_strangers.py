"""A job over a pattern delivers what is due, and runs no code of a queue's owner. PostgreSQL only."""

import pytest

from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.running import delayed_delivery
from sqlqueue_spark.pipeline.running.delayed_delivery import delivering
from sqlqueue_spark.send.compose.database_of_address import Places
from tests.support.delayed import DelayedRows
from tests.support.waiting import eventually

_TOLD = """CREATE FUNCTION public.told() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN INSERT INTO public.ran VALUES (1); RETURN NEW; END'"""


@pytest.fixture
def sales(postgresql):
    """Another login, which owns the queue orders, its delayed table, and a trigger that tells when it ran."""
    postgresql.execute("CREATE ROLE delayed_sales")
    try:
        postgresql.create_queue("error")
        postgresql.create_queue("orders")
        waiting = DelayedRows(postgresql, "orders").create()
        postgresql.execute("CREATE TABLE public.ran (n int)")
        postgresql.execute("GRANT CREATE, USAGE ON SCHEMA public TO delayed_sales")
        postgresql.execute(_TOLD)
        postgresql.execute("ALTER FUNCTION public.told() OWNER TO delayed_sales")
        postgresql.execute(
            "CREATE TRIGGER told AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION public.told()"
        )
        for table in ("orders", '"orders.Delayed"'):
            postgresql.execute(f"ALTER TABLE {table} OWNER TO delayed_sales")
        postgresql.execute(
            """INSERT INTO "orders.Delayed" (headers, body, due) VALUES ('{"a":"b"}', '', '2020-01-01')"""
        )
        yield waiting
    finally:
        postgresql.execute("DROP OWNED BY delayed_sales CASCADE")
        postgresql.execute("DROP ROLE delayed_sales")


def places(postgresql, allowed="+billing"):
    sink = SinkOptions.parse(
        {"url": postgresql.url, "errorQueue": "error", "endpoint": "Shop", "allowedDestinations": allowed}
    )
    return Places(sink, sink)


def counts(postgresql):
    """How often the trigger ran, and the rows of the queue and of the error queue."""
    ((ran,),) = postgresql.fetch("SELECT count(*) FROM public.ran")
    return ran, *(postgresql.queue(name).count() for name in ("orders", "error"))


def test_a_trigger_runs_where_an_option_names_the_queue(postgresql, sales):
    with delivering(SourceOptions.parse({"url": postgresql.url, "queue": "orders"}), places(postgresql)):
        eventually(lambda: sales.count() == 0)
    assert counts(postgresql) == (1, 1, 0)


def test_nothing_is_moved_where_a_pattern_finds_a_queue_with_a_trigger(postgresql, sales, caplog):
    source = SourceOptions.parse({"url": postgresql.url, "queuePattern": "orders"})
    assert delayed_delivery._owners(source, places(postgresql)) == set()
    assert "its trigger 'told' would run as this login" in caplog.text
    assert (sales.count(), *counts(postgresql)) == (1, 0, 0, 0)


def test_a_trigger_that_comes_when_a_mover_runs_already_does_not_run(postgresql, sales, caplog):
    postgresql.execute("DROP TRIGGER told ON orders")
    source = SourceOptions.parse({"url": postgresql.url, "queuePattern": "orders"})
    with delivering(source, places(postgresql)):
        eventually(lambda: sales.count() == 0)
        postgresql.execute(
            'CREATE TRIGGER told BEFORE DELETE ON "orders.Delayed" '
            "FOR EACH ROW EXECUTE FUNCTION public.told()"
        )
        postgresql.execute(
            """INSERT INTO "orders.Delayed" (headers, body, due) VALUES ('{"a":"b"}', '', '2020-01-01')"""
        )
        eventually(lambda: "delivery_stopped" in caplog.text)
    assert (sales.count(), *counts(postgresql)) == (1, 0, 1, 0)


def test_a_trigger_of_a_delayed_table_runs_where_an_option_allows_it(postgresql, sales):
    postgresql.execute("DROP TRIGGER told ON orders")
    postgresql.execute(
        'CREATE TRIGGER told AFTER DELETE ON "orders.Delayed" FOR EACH ROW EXECUTE FUNCTION public.told()'
    )
    allowed = "+orders.Delayed"
    source = SourceOptions.parse(
        {"url": postgresql.url, "queuePattern": "orders", "allowedDestinations": allowed}
    )
    with delivering(source, places(postgresql, allowed)):
        eventually(lambda: sales.count() == 0)
    assert counts(postgresql) == (1, 1, 0)
