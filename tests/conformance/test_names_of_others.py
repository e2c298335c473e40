"""No statement calls a function or an operator of another schema, however well its arguments fit.

Those of others stand in schemas of ``search_path`` and may not be called: where a statement means one of
them, the server refuses the statement, whether it has met a row or not.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from sqlqueue_spark import Outbox
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL
from sqlqueue_spark.engines.open_connection import Connection, Target, connect, open_reader
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.engines.users_connection import UsersConnection
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from tests.support.messages import row_id
from tests.support.postgresql import fresh_database
from tests.support.statements import FOR_PEOPLE

STATEMENTS = {name: text for name, text in POSTGRESQL.statements().items() if text}
#: The types of what our statements compare and pass on, and of what others may take for it.
TYPES = (
    *("name", "varchar", "text", "bpchar", '"char"', "uuid", "bytea", "boolean", "inet", "timestamp"),
    *("timestamptz", "interval", "smallint", "integer", "bigint", "numeric", "float8", "oid", "xid", "tid"),
    *("regclass", "regproc", "regtype", "pg_node_tree", "jsonb", "text[]", "bigint[]", "uuid[]", "bytea[]"),
    *("boolean[]", "timestamp[]", "smallint[]", "oid[]", "int2vector", "anyelement", "anyarray"),
)  # fmt: skip
#: Of functions with two and with three arguments.
FEWER = ("name", "varchar", "text", "integer", "bigint", "oid", "smallint", "interval", "anyelement")
FEWEST = ("name", "varchar", "text", "integer", "boolean")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "||", "+", "-", "*", "/", "&", ">>", "~~", "~")
#: Of arguments that are named: no other function has any.
NAMED = [f"make_interval(secs {type_})" for type_ in ("smallint", "integer", "bigint", "numeric")]
LOGIN = "sqlqueue_beside_others"
IDS = f"{{{row_id(1)}}}"
HEADERS = '{"NServiceBus.MessageId":"1"}'
VALUES = {
    "after": LOWEST, "up_to": HIGHEST, "left_to": 5, "onward": 5, "count": 10, "most": 10,
    "first": 1, "last": 9, "firsts": [1], "lasts": [9], "own": [7], "seconds": 60, "too_many": 1 << 20,
    "workers_take": 0, "schema": "public", "name": "orders", "schemas": "{public}", "tables": "{orders}",
    "address": "orders", "endpoint": "Sales", "topics": '{"Shop.Event"}', "version": "sqlqueue 0.1.0",
    "destination": "billing", "tasks": "{task}", "mark": "{}", "zone": "UTC", "lock_timeout": 1_000,
    "way": ',"to":"there"}', "ending": ',"to":', "since": "2026-01-02T03:04:05", "statement_timeout": 60_000,
    "rows": '{"(0,1)"}', "kept": '{"0"}', "rests": '{"x"}', "ids": IDS,
    "dues": [datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None)],
    "expires": [None], "headers": [HEADERS], "bodies": [b"{}"],
    "trusted": "{}", "event": 4, "columns": '{"id uuid"}', "wanted": 1,
}  # fmt: skip
NO_ROWS = (b"PGCOPY\n\xff\r\n\x00" + bytes(8), b"\xff\xff")
#: They create what the others look at.
CREATING = [
    name for name in STATEMENTS if re.search("create$|_index(_|$)|_storage$", name) and name not in FOR_PEOPLE
]


def rendered(name: str) -> Statement:
    tables = {"queue": "orders", "stage": "Go.Outgoing", "delayed": "Go.Delayed", "subscriptions": "Routing"}
    return POSTGRESQL.render(
        name,
        **{word: POSTGRESQL.table(Table(table=table, schema="public")) for word, table in tables.items()},
        **dict.fromkeys(("in_transit", "CorrelationId", "ReplyToAddress", "Recoverable"), "NULL"),
        largest_row="1000000000",
        index='"Go.Delayed_Due"',
        mark='"Go.Outgoing_mark"',
        attempt="attempt",
        columns="id, expires, headers, body",
        values="id, expires, headers, body",
        time="expires",
        **POSTGRESQL.outbox_names(Table(table="Sales_OutboxData", schema="public")),
    )


@pytest.fixture(scope="module")
def url(server) -> Iterator[str]:
    """For a login in a database where others have made functions and operators of all names that we use."""
    database = f"names_{os.getpid()}"
    with fresh_database(server.url(), database) as administrators:
        with psycopg.connect(administrators, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {LOGIN} LOGIN PASSWORD 'open sesame'")
            _set_up(connection)
        yield server.url(database, user=LOGIN, password="open sesame")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE {LOGIN}")


def _set_up(connection: psycopg.Connection) -> None:
    connection.execute("CREATE SCHEMA others")
    connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as from version 15 on
    connection.execute(
        f"GRANT USAGE ON SCHEMA others TO {LOGIN}; GRANT CREATE, USAGE ON SCHEMA public TO {LOGIN}"
    )
    connection.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    connection.execute("SET check_function_bodies TO off")
    known = connection.execute(
        "SELECT DISTINCT proname, n "
        "FROM pg_proc, LATERAL (VALUES (pronargs), (pronargs - pronargdefaults)) AS v (n) "
        "WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (%s)",
        [re.findall(r"(\w+)\(", " ".join(map(str, STATEMENTS.values())))],
    ).fetchall()
    types = {0: (), 1: TYPES, 2: FEWER, 3: FEWEST}
    calls = [
        f"{name}({', '.join(arguments)})"
        for name, count in known
        if count in types
        for arguments in itertools.product(types[count], repeat=count)
    ]
    functions = (f"public.{name}" for name in [*calls, *NAMED])
    compared = [*itertools.product(TYPES, repeat=2)]
    made = [f"CREATE FUNCTION {name} RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0'" for name in functions]
    made += [
        f"CREATE FUNCTION others.f({left}, {right}) RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0'"
        for left, right in compared
    ]
    made += [
        f"CREATE OPERATOR others.{name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = others.f)"
        for name in OPERATORS
        for left, right in compared
    ]
    made += [
        f"CREATE DOMAIN others.{name} AS bigint" for name in ("text", "oid", "tid", "uuid", "bytea", "jsonb")
    ]
    connection.execute(";".join(made).encode())
    connection.execute(f"ALTER ROLE {LOGIN} SET search_path TO others, public, pg_catalog")


def say(connection: Connection, name: str, values: dict[str, object]) -> None:
    statement = rendered(name)
    if name.startswith("attempt_") and name != "attempt_begin":
        say(connection, "attempt_begin", values)
    if str(statement).startswith("COPY"):
        connection.load(statement, NO_ROWS)
    elif str(statement).startswith("VACUUM"):
        connection.maintain(statement)
    elif name == "isolation":  # the level is written into the text
        connection.isolate("Snapshot")
    else:
        connection.execute(statement, values)


@pytest.fixture(scope="module")
def values(url) -> dict[str, object]:
    """What our statements are given. Their tables are there now, made by ours."""
    with connect(Target(url=url)) as connection, connection.transaction():
        for name in CREATING:
            say(connection, name, VALUES)
        for table in ("public.orders", 'public."Go.Delayed"'):  # a column may be one of them
            connection.execute(f"ALTER TABLE {table} ALTER headers TYPE varchar")
        ((database, *_),) = connection.execute(rendered("database"))
        ((_, _, object_id, *_),) = connection.execute(rendered("identity"), VALUES)
    return {**VALUES, "database": database, "object_id": object_id}


def test_no_statement_calls_them(url, values):
    refused = []
    with connect(Target(url=url)) as connection:
        for name in STATEMENTS:
            if name in (*FOR_PEOPLE, *CREATING):
                continue
            try:
                say(connection, name, values)
            except SqlQueueError as error:
                refused.append((name, str(error.__cause__)))
            connection.rollback()
    assert refused == []


@pytest.mark.parametrize("name", sorted(FOR_PEOPLE & STATEMENTS.keys()))
def test_what_people_run_names_its_functions_and_operators_whole(name):
    """Their sessions find them by any path."""
    text = re.sub(r"--.*|(SET|,)\s+\w+ =", "", str(STATEMENTS[name]))
    text = re.sub(r"OPERATOR\(pg_catalog\.\S+\)", "", text)
    called = {each for each in re.findall(r"([\w.]+) ?\(", text) if not each.startswith("pg_catalog.")}
    assert (called - {"RESET", "UPDATE", "KEY", "coalesce"}, re.findall("[<>=~|+]+", text)) == (set(), [])


def test_no_reader_calls_them(url, values):
    with contextlib.closing(open_reader(Target(url=url))) as reader:
        for name in ("read", "read_unexpired"):
            assert list(reader.batches(rendered(name), RowSet([(1, 9)]), SCHEMA)) == []
        assert reader.take(rendered("take"), RowSet([(1, 9)]), SCHEMA) == []


def test_no_outbox_calls_them_on_a_connection_of_the_user(url, values):
    with psycopg.connect(url) as raw:
        raw.execute("SET search_path TO others, public")
        assert Outbox("Sales").process(raw, ["1", "2"]) == ["1", "2"]
        connection = UsersConnection(raw)
        for name in STATEMENTS:
            if name.startswith("outbox_") and name not in CREATING:
                connection.execute(rendered(name), values)
