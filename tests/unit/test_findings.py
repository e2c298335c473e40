"""What is found wrong with a table on SQL Server, given what its statements answer;
on PostgreSQL a real one answers.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlqueue_spark.inspection.database_findings import of_database
from sqlqueue_spark.inspection.queue_findings import Finding, findings
from tests.support.answers import NUMBERS, TABLE, answering, rights_of

#: What a classic table answers, with which nothing is wrong.
CLASSIC: dict[str, Sequence[tuple[Any, ...]]] = {
    "indexes": [
        ("Index_RowVersion", "RowVersion", False, "clustered", None),
        ("Index_Expires", "Expires", False, "nonclustered", None),
    ],
    "space": [],
    "numbers": NUMBERS,
    "settings": [("lock escalation", "TABLE"), ("delayed durability", "disabled")],
    "server": [("sa", "shop", "SQL Server 16", "compatibility level", 160, 130)],
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
            message="The database 'Shop]s' answers every commit before it is on the disk (DELAYED_DURABILITY "
            "= FORCED): a crash of the server takes back messages that count as sent, and brings back "
            "those that were processed.",
            remedy_sql="ALTER DATABASE [Shop]]s] SET DELAYED_DURABILITY = DISABLED;",
        )
    ]
    assert found(settings=[("delayed durability", "allowed")]) == []


def test_a_lacking_right_comes_with_its_grant():
    """In the database of the table."""
    lacking = rights_of(True, False, False)
    assert found("receiver", rights=lacking) == [
        Finding(
            message="The user 'shop' may not receive from orders@[dbo]@[Shop]]s], for it lacks DELETE; "
            "have a receiver's rights granted.",
            remedy_sql="USE [Shop]]s];\nGRANT SELECT ON [dbo].[orders] TO [shop];\nGRANT DELETE ON "
            "[dbo].[orders] TO [shop];",
        )
    ]
    assert len(found(rights=lacking)) == 2
    sends_not = rights_of(True, True, False)
    assert found(rights=sends_not) == found("receiver", rights=sends_not) == []


def test_a_transaction_that_stays_open_is_found_on_sql_server():
    """With who has it and the statement that ends it; the login may be hidden,
    and the program may tell no name.
    """
    since, now = datetime(2026, 1, 2, 3, 4, 5), datetime(2026, 1, 2, 4, 10, 5)  # noqa: DTZ001 -- as the driver gives them
    costs = "its locks stay, the log cannot be truncated, and old versions of rows are kept"
    connection = answering(
        open_transactions=[(costs, 51, "shop", "box", None, since, now)],
        database=[("Shop]s", 0)],
        subscription_tables=[],
    )
    assert list(of_database(connection)) == [
        Finding(
            message="A transaction of session 51 (unnamed program, shop@box) has been open in the "
            f"database 'Shop]s' since 2026-01-02 03:04:05Z (66 min ago): until it ends, {costs}.",
            remedy_sql="KILL 51;",
        )
    ]
    assert connection.asked["open_transactions"] == {"seconds": 120}
    assert list(of_database(answering(open_transactions=[], subscription_tables=[]))) == []
