"""A job over a pattern delivers what is due, and runs no code of a queue's owner. PostgreSQL only."""

import pytest

from sqlqueue_spark.options import SinkOptions, SourceOptions
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


@pytest.mark.parametrize(
    "named,there", [({"queue": "orders"}, ([(1,)], 1, 0)), ({"queuePattern": "orders"}, ([(0,)], 0, 1))]
)
def test_a_trigger_runs_where_an_option_names_the_queue_alone(postgresql, sales, named, there):
    source = SourceOptions.parse({"url": postgresql.url, **named})
    sink = SinkOptions.parse(
        {"url": postgresql.url, "errorQueue": "error", "endpoint": "Shop", "allowedDestinations": "+billing"}
    )
    with delivering(source, Places(sink, sink)):
        eventually(lambda: sales.count() == 0)
    ran = postgresql.fetch("SELECT count(*) FROM public.ran")
    counts = [postgresql.queue(name).count() for name in ("orders", "error")]
    assert (ran, *counts) == there
