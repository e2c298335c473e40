"""Creating queues: the classic table, once, even if another session creates it at the same time, and
whatever it is called.
"""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from sqlqueue_spark.administration import delayed_tables, queue_peek, queue_tables
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import scripts
from sqlqueue_spark.tables.ddl import Created
from sqlqueue_spark.tables.queue_table import Column
from tests.conftest import GUARDED_PASSWORD

HOSTILE = [
    'or]de"rs',
    "with space",
    "my.table",
    "we?ird",
    "per%cent",
    "br{ace}",
    "o'clock",
    r"back\slash",
    "DROP TABLE x; --",
    "größe",
]
NEEDED_BY = {"]": "quotes_brackets", "'": "doubles_brackets_only", '"': "doubles_brackets_only"}
CLASSIC = {
    "postgresql": [
        Column("id", "uuid", False, False),
        Column("expires", "timestamp without time zone", True, False),
        Column("headers", "text", False, False),
        Column("body", "bytea", True, False),
        Column("seq", "bigint", False, False),
    ],
    "sqlserver": [
        Column("Id", "uniqueidentifier", False, False),
        Column("CorrelationId", "varchar", True, False),
        Column("ReplyToAddress", "varchar", True, False),
        Column("Recoverable", "bit", False, False),
        Column("Expires", "datetime", True, False),
        Column("Headers", "nvarchar(max)", False, False),
        Column("Body", "varbinary(max)", True, False),
        Column("RowVersion", "bigint", False, False),
    ],
}
INDEXED = {
    "postgresql": {("id",): ("btree", True), ("seq",): ("btree", True)},
    "sqlserver": {("RowVersion",): ("clustered", False), ("Expires",): ("nonclustered", False)},
}


def options(engine, **more):
    return ConnectionOptions.parse({"url": engine.url, **more})


def canonical(engine, name, schema=None):
    ask = {"postgresql": "SELECT current_database()", "sqlserver": "SELECT DB_NAME()"}[engine.name]
    database = engine.fetch(ask)[0][0]
    return f"{name}@[{schema or engine.default_schema}]@[{database}]"


@pytest.mark.needs("describes_indexes")
def test_a_created_table_is_the_classic_one(engine):
    assert queue_tables.create(options(engine), ["orders"]) == [
        Created(table=canonical(engine, "orders"), new=True)
    ]
    found = queue_tables.inspect(options(engine), "orders")
    indexed = {index.columns: (index.kind, index.unique) for index in found.indexes}
    assert (found.columns, indexed, found.findings) == (CLASSIC[engine.name], INDEXED[engine.name], [])


@pytest.mark.needs("keeps_case")
def test_the_stage_of_an_atomic_pipeline_is_created_once(engine):
    for new in (True, False):
        made = Created(table=canonical(engine, "Forward.Outgoing"), new=new)
        assert queue_tables.create(options(engine), [], stream="Forward") == [made]


def test_creating_again_changes_nothing(engine):
    queue = engine.create_queue()
    queue.insert(3)
    assert queue_tables.create(options(engine), ["orders"]) == [
        Created(table=canonical(engine, "orders"), new=False)
    ]
    assert queue.count() == 3


def test_eight_who_create_queues_at_once_all_succeed(engine):
    """They create the same ones, and each is made once."""
    names = [f"queue {number}" for number in range(10)]
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(lambda _: queue_tables.create(options(engine), names), range(8))]
    for number, name in enumerate(names):
        each = [result[number] for result in made]
        assert {created.table for created in each} == {canonical(engine, name)}
        assert [created.new for created in each].count(True) == 1


@pytest.mark.needs("tells_used_pages")
@pytest.mark.needs("reads_json_as_documented", "deletes_through_cte")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.needs(need) for mark, need in NEEDED_BY.items() if mark in name], id=name
        )
        for name in HOSTILE
    ],
)
def test_a_hostile_name_is_just_an_odd_name(engine, name):
    said = options(engine)
    queue_tables.create(said, [name])
    message_id = queue_tables.send(said, name, queue_tables.Draft(body=b"{}", message_type="T"))
    assert (message_id in engine.queue(name).rows()[0].headers, queue_tables.length(said, name).rows) == (
        True,
        1,
    )
    assert [message.body for message in queue_peek.look(said, name, count=10)] == [b"{}"]
    assert queue_tables.inspect(said, name).findings == []
    assert queue_tables.purge(said, name) == 1
    assert engine.queue(name).count() == 0


@pytest.mark.needs("keeps_case")
def test_callback_queues_and_companions_come_along(engine):
    """Each instance gets a callback queue."""
    made = queue_tables.create(
        options(engine), ["Sales"], instances=["A", "B"], companions=["error", "audit"]
    )
    names = ["Sales", "Sales.A", "Sales.B", "error", "audit"]
    assert made == [Created(table=canonical(engine, name), new=True) for name in names]


def test_a_missing_schema_is_named_with_its_remedy(engine):
    with pytest.raises(ConfigurationError) as caught:
        queue_tables.create(options(engine), ["orders@[no]]ne]"])
    remedy = {"postgresql": 'CREATE SCHEMA "no]ne"', "sqlserver": "CREATE SCHEMA [no]]ne]"}[engine.name]
    assert str(caught.value) == (
        f"There is no schema 'no]ne' for the queue orders@[no]]ne]; create it with: {remedy}, or correct "
        "the schema."
    )


def test_a_name_has_at_most_55_bytes(postgresql):
    fitting = "ü" * 27 + "x"
    assert queue_tables.create(options(postgresql), [fitting])[0].new
    assert queue_tables.inspect(options(postgresql), fitting).findings == []
    with pytest.raises(ConfigurationError) as caught:
        queue_tables.create(options(postgresql), [fitting + "x"])
    assert str(caught.value) == (
        f"The queue name '{fitting}x' is 56 bytes long, but a queue table on PostgreSQL has at most 55; "
        "choose a shorter name."
    )


def test_a_view_of_the_same_name_is_no_queue(postgresql):
    """The refusal says so."""
    postgresql.execute("CREATE VIEW orders AS SELECT 1 AS one")
    with pytest.raises(QueueError) as caught:
        queue_tables.create(options(postgresql), ["orders"])
    assert str(caught.value) == (
        "Something else than a table is called orders@[public] (a view, say), so the queue was not created; "
        "choose another name."
    )


@pytest.mark.parametrize(
    "name,called,create",
    [
        ("Go.Outgoing", "the stage", lambda given: queue_tables.create(given, [], stream="Go")),
        ("orders.Delayed", "the table", lambda given: delayed_tables.create(given, "orders")),
        (
            "SubscriptionRouting",
            "the table",
            lambda given: queue_tables.create(given, [], subscriptions=True),
        ),
    ],
)
def test_nor_is_it_a_table_beside_the_queues(postgresql, name, called, create):
    postgresql.execute(f'CREATE VIEW "{name}" AS SELECT 1 AS one')
    with pytest.raises(QueueError) as caught:
        create(options(postgresql))
    assert str(caught.value) == (
        f"Something else than a table is called {name}@[public] (a view, say), so {called} was not created; "
        "choose another name."
    )


def test_a_login_that_may_not_create_is_told_why(postgresql, guarded_url):
    """Which right is missing."""
    postgresql.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # who had it before PostgreSQL 15
    with pytest.raises(ConfigurationError, match="permission denied for schema public") as caught:
        queue_tables.create(ConnectionOptions.parse({"url": guarded_url}), ["orders"])
    assert GUARDED_PASSWORD not in str(caught.value)


def test_the_script_creates_the_same_table_each_time(postgresql):
    """The one for administrators, which may be run any number of times."""
    names = ["orders", *HOSTILE]
    script = scripts.create("postgresql", names, instances=["A"])
    for _ in range(2):
        with psycopg.connect(postgresql.url, autocommit=True) as connection:
            connection.execute(script)
    for name in (*names, "orders.A"):
        found = queue_tables.inspect(options(postgresql), name)
        indexed = {index.columns: (index.kind, index.unique) for index in found.indexes}
        assert (found.columns, indexed) == (CLASSIC["postgresql"], INDEXED["postgresql"])


@pytest.mark.needs("quotes_brackets")
def test_the_sql_server_script_may_be_run_again(sqlserver):
    """It creates the same table any number of times."""
    script = scripts.create("sqlserver", HOSTILE)
    for _ in range(2):
        for batch in script.split("\nGO\n"):
            if batch.strip():
                sqlserver.execute(batch)
    for name in HOSTILE:
        found = queue_tables.inspect(options(sqlserver), name)
        assert (found.columns, found.findings) == (CLASSIC["sqlserver"], [])
