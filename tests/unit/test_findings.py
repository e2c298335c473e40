"""What is found wrong with a table on SQL Server, given what its statements answer; on PostgreSQL a real one answers."""

from collections.abc import Sequence
from typing import Any

from sqlqueue_spark.inspection.findings import Finding, findings
from tests.support.answers import NUMBERS, TABLE, answering, rights_of

#: What a classic table answers, with which nothing is wrong.
CLASSIC: dict[str, Sequence[tuple[Any, ...]]] = {
    "columns": [
        ("Id", "uniqueidentifier", False, False),
        ("Expires", "datetime", True, False),
        ("Headers", "nvarchar(max)", False, False),
        ("Body", "varbinary(max)", True, False),
        ("RowVersion", "bigint", False, False),
    ],
    "indexes": [
        ("Index_RowVersion", "RowVersion", False, "clustered", None),
        ("Index_Expires", "Expires", False, "nonclustered", None),
    ],
    "space": [],
    "numbers": NUMBERS,
    "settings": [("lock escalation", "TABLE"), ("delayed durability", "disabled")],
    "compatibility": [("compatibility level", 160, 130)],
    "rights": rights_of(True, True, True),
}


def found(role=None, **answers):
    return findings(answering(**CLASSIC | answers), TABLE, role)


def test_a_classic_table_on_sql_server_has_no_findings():
    assert [found(role) for role in (None, "receiver", "sender")] == [[], [], []]


def test_forced_delayed_durability_is_a_finding():
    """Where a commit has to ask for the delay, it is none."""
    assert found(settings=[("lock escalation", "TABLE"), ("delayed durability", "forced")]) == [
        Finding(
            message="The database 'Shop]s' answers every commit before it is on the disk (DELAYED_DURABILITY = FORCED): a crash "
            "of the server takes back messages that count as sent, and brings back those that were processed.",
            remedy_sql="ALTER DATABASE [Shop]]s] SET DELAYED_DURABILITY = DISABLED;",
        )
    ]
    assert found(settings=[("delayed durability", "allowed")]) == []


def test_a_lacking_right_comes_with_its_grant():
    """In the database of the table."""
    lacking = rights_of(True, False, False)
    assert found("receiver", rights=lacking) == [
        Finding(
            message="The user 'shop' may not receive from orders@[dbo]@[Shop]]s], for it lacks DELETE; have a receiver's "
            "rights granted.",
            remedy_sql="USE [Shop]]s];\nGRANT SELECT ON [dbo].[orders] TO [shop];\nGRANT DELETE ON [dbo].[orders] TO [shop];",
        )
    ]
    assert len(found(rights=lacking)) == 2
    sends_not = rights_of(True, True, False)
    assert found(rights=sends_not) == found("receiver", rights=sends_not) == []
