"""What is told of a table on SQL Server, given what its statements answer;
on PostgreSQL a real one answers.
"""

import pytest

from sqlqueue_spark.inspection.server_facts import facts
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from sqlqueue_spark.tables.rights import Rights
from tests.support.answers import NUMBERS, TABLE, answering

CLASSIC = [("Index_RowVersion", "RowVersion", False, "clustered", None)]
HEAP = [("Index_RowVersion", "RowVersion", False, "nonclustered", None), (None, None, False, "heap", None)]
ALL = Rights(user="shop", receiver_lacks=(), sender_lacks=())


def told(indexes, *pairs):
    given = answering(indexes=indexes, numbers=NUMBERS, settings=pairs)
    made = [*facts(QueueAdmin(given, TABLE), ALL)]
    asked = {"database": "Shop]s", "object_id": 42, "name": "[Shop]]s].[dbo].[orders]"}
    assert given.asked["settings"] == asked
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
        (
            "Headers",
            "varchar, code page 1252",
            "ALTER TABLE [Shop]]s].[dbo].[orders] ALTER COLUMN Headers nvarchar(max) NOT NULL;",
        ),
        ("Headers", "varchar, code page 65001", ""),
        ("snapshot isolation", "in_transition_to_on", ""),
        ("delayed durability", "allowed", ""),
    ],
)
def test_a_setting_to_change_has_its_statement(name, value, remedy):
    found, _ = told(HEAP, (name, value))
    assert (found["variant"], found[name]) == (("heap", ""), (value, remedy))
