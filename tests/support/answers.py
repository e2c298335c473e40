"""A table on SQL Server without SQL Server: each statement about it is answered with what a test says."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.statements import NOTHING, Parameters, Statement
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables.queue_table import Column, QueueTable

#: The table ``orders`` in a database with an odd name.
TABLE = QueueTable(
    table=Table(table="orders", schema="dbo", catalog="Shop]s"),
    name="orders@[dbo]@[Shop]]s]",
    object_id=42,
    identity="42",
    columns=(
        Column("Id", "uniqueidentifier", False, False),
        Column("Expires", "datetime", True, False),
        Column("Headers", "nvarchar(max)", False, False),
        Column("Body", "varbinary(max)", True, False),
        Column("RowVersion", "bigint", False, False),
    ),
    database="Shop]s",
)
#: What numbers its rows: the identity of the table itself, which has come to 7.
NUMBERS = [("dbo", "orders", 7, 9223372036854775807)]

_NAMES = {"queue": "[Shop]]s].[dbo].[orders]", "catalog": "[Shop]]s]"}


def answering(**answers: Sequence[tuple[Any, ...]]) -> Any:
    """A connection that knows the answers to these statements of the package, by their names,
    and to no other.

    ``asked`` has the parameters of each statement that was run.
    """
    asked: dict[str, Parameters] = {}

    def execute(statement: Statement, parameters: Parameters = NOTHING, **_: object) -> list[tuple[Any, ...]]:
        if not statement:
            return []
        name = next(each for each in answers if SQLSERVER.render(each, **_NAMES) == statement)
        asked[name] = parameters
        return list(answers[name])

    return SimpleNamespace(dialect=SQLSERVER, execute=execute, asked=asked, encoding="UTF8")


def databases(here: str, spelled: Mapping[str, str | None]) -> Any:
    """A connection to the database ``here``, whose server spells the names of databases so."""

    def execute(statement: Statement, parameters: Parameters = NOTHING, **_: object) -> list[tuple[Any, ...]]:
        assert statement == SQLSERVER.statement("database")
        return [(here, False, spelled.get(str(parameters["catalog"])))]

    return SimpleNamespace(dialect=SQLSERVER, execute=execute)


def rights_of(*held: bool | None) -> list[tuple[str, str, str, bool | None]]:
    """What the server says of the rights of the user ``shop``: to SELECT and DELETE as a receiver,
    to INSERT as a sender.
    """
    names = (("receiver", "SELECT"), ("receiver", "DELETE"), ("sender", "INSERT"))
    return [("shop", *name, has) for name, has in zip(names, held, strict=True)]
