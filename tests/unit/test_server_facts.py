"""What is told of a table on SQL Server, given what its statements answer; on PostgreSQL a real one answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from sqlqueue_spark.engines.dialects import SQLSERVER
from sqlqueue_spark.inspection import findings
from sqlqueue_spark.inspection.findings import Finding
from sqlqueue_spark.inspection.server_facts import facts
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import rights
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from sqlqueue_spark.tables.queues import QueueTable
from sqlqueue_spark.tables.rights import Rights

CLASSIC = [("Index_RowVersion", "RowVersion", False, "clustered", None)]
HEAP = [("Index_RowVersion", "RowVersion", False, "nonclustered", None), (None, None, False, "heap", None)]
NUMBERS = [("dbo", "orders", 7, 9223372036854775807)]
TABLE = QueueTable(
    table=Table(table="orders", schema="dbo", catalog="Shop]s"),
    name="orders@[dbo]@[Shop]]s]",
    object_id=42,
    identity="42",
    columns=("Id", "Headers", "RowVersion"),
    database="Shop]s",
)
ALL = Rights(user="shop", receiver_lacks=(), sender_lacks=())


def admin(**answers):
    """A keeper whose statements answer what is given here; what they are asked is remembered."""
    asked = {}

    def execute(statement, parameters=(), **_):
        name = next(each for each in answers if _begins_as(each, statement))
        asked[name] = parameters
        return answers[name]

    connection: Any = SimpleNamespace(dialect=SQLSERVER, execute=execute, asked=asked)
    return QueueAdmin(connection, TABLE)


def _begins_as(name, statement):
    names = {"queue": "[Shop]]s].[dbo].[orders]", "catalog": "[Shop]]s]"}
    return SQLSERVER.render(name, **names) == statement


def told(indexes, *pairs):
    given = admin(indexes=indexes, numbers=NUMBERS, settings=list(pairs))
    made = facts(given, ALL)
    assert given.connection.asked["settings"] == ("Shop]s", 42)
    return {each.name: (each.value, each.remedy_sql) for each in made}, made


def test_a_classic_table_s_settings_are_explained():
    known = [
        ("lock escalation", "TABLE"),
        ("read committed snapshot", "on"),
        ("snapshot isolation", "off"),
        ("delayed durability", "disabled"),
        ("Headers", "nvarchar"),
    ]
    found, made = told(CLASSIC, *known)
    assert found == {
        "shop may receive": ("yes", ""),
        "shop may send": ("yes", ""),
        "variant": ("clustered by RowVersion", ""),
        "last number": ("7 of 9,223,372,036,854,775,807", ""),
        **{name: (value, "") for name, value in known},
    }
    assert all(each.meaning for each in made if each.name in dict(known))


@pytest.mark.parametrize(
    "name,value,remedy",
    [
        ("lock escalation", "DISABLE", "ALTER TABLE [Shop]]s].[dbo].[orders] SET (LOCK_ESCALATION = TABLE);"),
        ("lock escalation", "AUTO", ""),
        ("Headers", "varchar, code page 1252", "ALTER TABLE [Shop]]s].[dbo].[orders] ALTER COLUMN Headers nvarchar(max) NOT NULL;"),
        ("Headers", "varchar, code page 65001", ""),
        ("snapshot isolation", "in_transition_to_on", ""),
        ("delayed durability", "allowed", ""),
    ],
)  # fmt: skip
def test_a_setting_to_change_has_its_statement(name, value, remedy):
    found, _ = told(HEAP, (name, value))
    assert (found["variant"], found[name]) == (("heap", ""), (value, remedy))


def test_forced_delayed_durability_is_a_finding():
    """Where a commit has to ask for the delay, it is none."""
    given = admin(settings=[("lock escalation", "TABLE"), ("delayed durability", "forced")])
    assert list(findings._durability_findings(given)) == [
        Finding(
            message="The database 'Shop]s' answers every commit before it is on the disk (DELAYED_DURABILITY = FORCED): a crash "
            "of the server takes back messages that count as sent, and brings back those that were processed.",
            remedy_sql="ALTER DATABASE [Shop]]s] SET DELAYED_DURABILITY = DISABLED;",
        )
    ]
    allowed = admin(settings=[("delayed durability", "allowed")])
    assert list(findings._durability_findings(allowed)) == []


def rights_of(*held):
    names = (("receiver", "SELECT"), ("receiver", "DELETE"), ("sender", "INSERT"))
    return [("shop", *name, has) for name, has in zip(names, held, strict=True)]


def test_a_right_that_is_not_told_counts_as_held():
    given = admin(rights=rights_of(True, None, False))
    assert rights.held(given.connection, TABLE) == Rights(
        user="shop", receiver_lacks=(), sender_lacks=("INSERT",)
    )
    assert given.connection.asked == {"rights": ("Shop]s", 42)}


def test_a_lacking_right_comes_with_its_grant():
    """In the database of the table."""
    given = admin(rights=rights_of(True, False, False), numbers=NUMBERS)
    held = rights.held(given.connection, TABLE)
    assert list(findings.of_rights(given, held, "receiver")) == [
        Finding(
            message="The user 'shop' may not receive from orders@[dbo]@[Shop]]s], for it lacks DELETE; have a receiver's "
            "rights granted.",
            remedy_sql="USE [Shop]]s];\nGRANT SELECT ON [dbo].[orders] TO [shop];\nGRANT DELETE ON [dbo].[orders] TO [shop];",
        )
    ]
    assert len(list(findings.of_rights(given, held, None))) == 2
    may = admin(rights=rights_of(True, True, False))
    held = rights.held(may.connection, TABLE)
    assert list(findings.of_rights(may, held, None)) == list(findings.of_rights(may, held, "receiver")) == []
