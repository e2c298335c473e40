"""A connection that the caller has made: its driver is recognised,
and what it is told is written in the driver's way.
"""

import json
import pickle
import sys
from types import ModuleType

import psycopg
import pytest

from sqlqueue_spark.engines.engine_of_url import OUTBOX_DATABASES
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.engines.users_connection import UsersConnection
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.tables.outbox import Outbox
from sqlqueue_spark.tables.outbox_keys import process_key

#: https://peps.python.org/pep-0249/#paramstyle
STYLES = ("qmark", "numeric", "named", "format", "pyformat")


class Cursor:
    """Answers every statement with the same rows, and remembers what it was told."""

    description = (("id",),)
    rowcount = 1

    def __init__(self, connection):
        self.connection = connection
        self.sizes = None

    def execute(self, statement, parameters):
        self.connection.told.append((statement, parameters, self.sizes))

    def fetchall(self):
        return self.connection.rows

    def nextset(self):
        return None

    def close(self):
        self.connection.closed += 1


class Connection:
    def __init__(self, rows=()):
        self.rows, self.told, self.closed = list(rows), [], 0

    def cursor(self):
        return Cursor(self)


def asked(parameters):
    """The ids in the parameters of a statement of PostgreSQL."""
    return parameters["ids"].strip("{}").replace('"', "").split(",")


class TakingCursor(Cursor):
    """Answers with each id that it is asked for: it was new."""

    def fetchall(self):
        return [(each,) for each in asked(self.connection.told[-1][1])]


class Taking(Connection):
    def cursor(self):
        return TakingCursor(self)


def of_driver(monkeypatch, module, paramstyle=None, base=Connection, **attributes):
    """A connection as a driver's package makes it."""
    package = ModuleType(module)
    if paramstyle:
        vars(package)["paramstyle"] = paramstyle
    for name in (module.partition(".")[0], module):
        monkeypatch.setitem(sys.modules, name, package if name == module else ModuleType(name))
    return type("Connection", (base,), {"__module__": f"{module}.connections", **attributes})


@pytest.mark.parametrize(
    "module,paramstyle,dialect,placeholder,bound",
    [
        ("pyodbc", "qmark", "sqlserver", "?", ("a",)),
        ("pymysql", "pyformat", "mysql", "%(id)s", {"id": "a"}),
        ("MySQLdb", "format", "mysql", "%s", ("a",)),
        ("mariadb", "qmark", "mysql", "?", ("a",)),
        ("mysql.connector", "pyformat", "mysql", "%(id)s", {"id": "a"}),
        ("oracledb", "named", "oracle", ":id", {"id": "a"}),
    ],
)
def test_a_driver_tells_engine_and_placeholders(monkeypatch, module, paramstyle, dialect, placeholder, bound):
    connection = of_driver(monkeypatch, module, paramstyle)()
    adopted = UsersConnection(connection)
    assert adopted.dialect is OUTBOX_DATABASES[dialect]
    adopted.execute(Statement.parse("SELECT :id"), {"id": "a"})
    assert (connection.told, connection.closed) == ([(f"SELECT {placeholder}", bound, None)], 1)


def test_psycopg_is_recognised(database_url):
    with psycopg.connect(database_url) as connection:
        assert UsersConnection(connection).dialect is OUTBOX_DATABASES["postgresql"]


def test_a_sign_within_a_name_is_no_placeholder():
    """Neither a question mark nor a percent sign."""
    statement = Statement.parse("SELECT :b::text FROM {queue} WHERE a = :a OR b = :b")
    named = statement.render(queue='"wh?at %s :a"')
    values = {"a": 1, "b": 2, "c": 3}
    assert {style: named.bound(style, values) for style in STYLES} == {
        "qmark": ('SELECT ?::text FROM "wh?at %s :a" WHERE a = ? OR b = ?', (2, 1, 2)),
        "numeric": ('SELECT :1::text FROM "wh?at %s :a" WHERE a = :2 OR b = :3', (2, 1, 2)),
        "format": ('SELECT %s::text FROM "wh?at %%s :a" WHERE a = %s OR b = %s', (2, 1, 2)),
        "pyformat": (
            'SELECT %(b)s::text FROM "wh?at %%s :a" WHERE a = %(a)s OR b = %(b)s',
            {"a": 1, "b": 2},
        ),
        "named": ('SELECT :b::text FROM "wh?at %s :a" WHERE a = :a OR b = :b', {"a": 1, "b": 2}),
    }


def test_an_unknown_driver_needs_a_named_engine(monkeypatch):
    connection = of_driver(monkeypatch, "newdb")()
    with pytest.raises(ConfigurationError) as caught:
        Outbox("Sales").process(connection, ["a"])
    assert str(caught.value) == (
        "A connection of the package 'newdb' does not tell what database it leads to; "
        "say it with engine=, one of postgresql, sqlserver, mysql, oracle."
    )
    connection.rows = [("a",)]
    assert Outbox("Sales", engine="postgresql").process(connection, ["a"]) == ["a"]
    assert "%(ids)s" in connection.told[0][0]


@pytest.mark.parametrize(
    "attributes", [{"autocommit": True}, {"get_autocommit": lambda _: True, "autocommit": lambda _, on: on}]
)
def test_a_connection_in_autocommit_mode_is_refused(monkeypatch, attributes):
    connection = of_driver(monkeypatch, "pymysql", "pyformat", **attributes)()
    with pytest.raises(ConfigurationError, match="The connection is in autocommit mode"):
        Outbox("Sales").process(connection, ["a"])
    assert connection.told == []


def test_an_autocommit_that_is_off_is_accepted(monkeypatch):
    attributes = {"get_autocommit": lambda _: False, "autocommit": lambda _, on: on}
    connection = of_driver(monkeypatch, "pymysql", "pyformat", **attributes)()
    assert Outbox("Sales").process(connection, ["a"]) == []


def test_rows_may_come_as_dictionaries(monkeypatch):
    connection = of_driver(monkeypatch, "pymysql", "pyformat")([{"id": "a"}])
    assert Outbox("Sales").process(connection, ["b", "a"]) == ["a"]


class OracleCursor(Cursor):
    def setinputsizes(self, **sizes):
        self.sizes = sizes


class OracleConnection(Connection):
    def cursor(self):
        return OracleCursor(self)


def test_on_oracle_long_parameters_are_clobs(monkeypatch):
    made = of_driver(monkeypatch, "oracledb", "named", base=OracleConnection)
    vars(sys.modules["oracledb"])["DB_TYPE_CLOB"] = "clob"
    connection = made()
    Outbox("Sales").process(connection, [f"0-{number}" for number in range(1_000)])
    (added, parameters, sizes), (_, others, other_sizes) = connection.told
    assert added.startswith('INSERT /*+ IGNORE_ROW_ON_DUPKEY_INDEX(o (MessageId)) */ INTO "SALES_OD" o')
    assert (len(parameters["version"]), others == parameters) == (23, True)
    assert (sizes, other_sizes) == ({"ids": "clob"}, {"ids": "clob"})


def test_mangled_ids_are_not_taken_for_others(monkeypatch):
    connection = of_driver(monkeypatch, "pymysql", "pyformat")([("??",)])
    with pytest.raises(ConfigurationError, match="answered with '\\?\\?', which was not among them"):
        Outbox("Sales").process(connection, ["注文"])


@pytest.mark.parametrize("wrong", ["", None, 7])
def test_what_is_no_id_is_refused(monkeypatch, wrong):
    """Before any statement is executed."""
    connection = of_driver(monkeypatch, "pyodbc", "qmark")()
    with pytest.raises(ConfigurationError) as caught:
        Outbox("Sales").process(connection, ["a", wrong])
    assert str(caught.value).startswith(f"The message id {wrong!r} is no text with characters in it")
    assert connection.told == []


@pytest.mark.parametrize(
    "fits", ["a" * 200, "x" * 200, "\N{GRINNING FACE}" * 100], ids=["plain", "odd", "wide"]
)
def test_an_id_of_200_characters_fits(monkeypatch, fits):
    key = process_key(fits)
    assert len(key) <= 200
    answers = [[(key,)]] if key == fits else [[], [(key,)]]
    connection = of_driver(monkeypatch, "pyodbc", "qmark")()
    monkeypatch.setattr(Cursor, "fetchall", lambda _: answers.pop(0))
    assert Outbox("Sales").process(connection, [fits]) == [fits]


@pytest.mark.parametrize("long", ["a" * 201, "x" * 201, "\N{GRINNING FACE}" * 101, "Ä" * 100_000])
def test_a_longer_id_is_known_by_a_digest_alone(monkeypatch, long):
    """A sender may write one of any length, and it must not stop the stream."""
    key = process_key(long)
    assert len(key) <= 200
    connection = of_driver(monkeypatch, "pyodbc", "qmark")()
    monkeypatch.setattr(Cursor, "fetchall", lambda _: [(key,)])
    assert Outbox("Sales").process(connection, [long]) == [long]
    assert len(connection.told) == 1, "no table can hold the id itself"


def test_an_id_that_a_collation_may_equate_is_kept_with_a_digest(monkeypatch):
    """And first sought as it is, because an earlier version has kept it so; a plain one is kept as it is."""
    connection = of_driver(monkeypatch, "pyodbc", "qmark")()
    answers = [[("Old",)], [("ab-1",), (ORDER,)]]
    monkeypatch.setattr(Cursor, "fetchall", lambda _: answers.pop(0))
    assert Outbox("Sales").process(connection, ["Order", "ab-1", "Old", "Order"]) == ["Order", "ab-1"]
    (_, sought, _), (_, added, _) = connection.told
    assert (json.loads(sought[0]), json.loads(added[1])) == (["Old", "Order"], [ORDER, "ab-1"])


#: This is for good: another key would not tell that the id was processed.
ORDER = "Order>6be090825c9971035aee21d9ac0fc9c3"


@pytest.mark.parametrize(
    "group", [["order", "Order", "order ", "\uff4frder", "o\u200brder"], ["i", "I", "ı"]]
)
def test_ids_that_a_collation_equates_have_keys_that_none_does(group):
    keys = [process_key(each) for each in group]
    assert len({each.rstrip().casefold() for each in keys}) == len(group)
    assert all(each.isascii() for each in keys)


def test_a_statement_has_4000_sorted_ids_at_most(monkeypatch):
    """Everybody gives them in this order."""
    connection = of_driver(monkeypatch, "psycopg2", "pyformat", base=Taking)()
    ids = [f"{number:05}" for number in range(9_000)]
    assert Outbox("Sales").process(connection, reversed(ids)) == ids[::-1]
    assert [asked(parameters) for _, parameters, _ in connection.told] == [
        ids[:4_000],
        ids[4_000:8_000],
        ids[8_000:],
    ]


def test_an_outbox_goes_to_workers_and_back():
    outbox = Outbox("Sales", engine="mysql", schema="shop")
    assert pickle.loads(pickle.dumps(outbox)) == outbox  # noqa: S301 -- as Spark sends it
