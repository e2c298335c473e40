"""Triggers, rules and functions of a table: those of strangers do not run, and none drops rows unnoticed.

No code of strangers runs as this login in a table that no option names: :func:`found` finds it, and
:func:`keep_out` keeps more of it out.

The server reports no error for a row that a trigger or a rule drops. So every insert of this package passes
its count through :func:`check_went_in`. On SQL Server a trigger INSTEAD OF the insert stays unseen, because
the server counts its rows as inserted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.engines.driver_errors import Doing
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.addresses import Table

#: The events of the statements ``foreign_table`` and ``foreign_code``: what is about to happen to rows.
LOOK, INSERT, DELETE, UPDATE = 0, 4, 8, 16
#: Its reasons, in words that end a sentence.
_REASONS = {
    "kind": "it is no ordinary table",
    "column": "it has no column{name} as a queue has it",
    **{
        reason: f"{code} would run as this login"
        for reason, code in {
            "partition": "a trigger of the table that it is a part of",
            "schema": "what{name}, who owns the schema, puts in its place",
            "type": "what converts its column{name}",
            "trigger": "its trigger{name}",
            "rule": "its rule{name}",
            "policy": "its row-security policy{name}",
            "reference": "what its foreign key{name} leads to",
            "default": "what the default of its column{name} computes",
            "check": "what its check{name} computes",
            "computed": "what its column{name} computes",
            "index": "what its index{name} computes",
            "statistics": "what its statistics{name} compute",
        }.items()
    },
}


class Found(NamedTuple):
    """Why a table is left alone, in words that end a sentence, and whose it is, if not a trusted owner's."""

    why: str | None = None
    owner: str | None = None


def keep_out(connection: Connection, tables: Sequence[Table], *, looking: bool = False) -> bool:
    """Keep new code out of these tables until the transaction ends; False where no lock does.

    :param looking: with the right to look alone, which keeps out neither triggers nor indexes.
    """
    statement = connection.dialect.statement("look_lock" if looking else "code_lock")
    rendered = statement.render(queue=", ONLY ".join(map(connection.dialect.table, tables)))
    what = "keeping new code out of"
    one = Doing(what, str(tables[0])) if len(tables) == 1 else f"{what} {_several(tables)}"
    connection.execute(rendered, doing=one)
    return bool(statement)


def found(
    connection: Connection, tables: Sequence[Table], event: int, *, shaped: bool, trusted: Sequence[int] = ()
) -> list[Found]:
    """What would run in each of these tables, and whose it is.

    :param shaped: whether the tables must have the columns of a queue.
    :param trusted: the object ids of tables whose owners are trusted.
    """
    dialect, made = connection.dialect, [Found()] * len(tables)
    columns = [f"{name} {kind}" for name, kinds in dialect.queue_columns.items() for kind in kinds]
    fixed = {
        "event": event,
        "trusted": dialect.bind_texts(list(map(str, trusted))),
        "columns": dialect.bind_texts(columns if shaped else []),
        "wanted": len(dialect.queue_columns) if shaped else 0,
    }
    asked = list(range(len(tables)))
    for statement in filter(None, map(dialect.statement, ("foreign_table", "foreign_code"))):
        left = set()
        # Where the statement asks about one table, that may lie in another database.
        for part in [asked] if asked and "tables" in statement.parameters else [[at] for at in asked]:
            its = [tables[at] for at in part]
            which = {"catalog": its[0].catalog or "", "schema": its[0].schema, "name": its[0].table} | {
                "schemas": dialect.bind_texts([each.schema for each in its]),
                "tables": dialect.bind_texts([each.table for each in its]),
            }
            doing = f"looking whose code runs in {_several(its)}"
            for reason, name, owner, *number in connection.execute(statement, fixed | which, doing=doing):
                at = part[number[0] - 1 if number else 0]
                if reason == "code":
                    left.add(at)
                elif reason == "key":
                    connection.renewing = True
                elif reason != "own" and made[at].why is None:
                    why = None if reason == "stranger" else _REASONS[reason]
                    made[at] = Found(why and why.format(name=f" {name!r}" if name else ""), owner)
        asked = [at for at in asked if at in left]
    return made


def _several(tables: Sequence[Table]) -> str:
    return f"{tables[0]} and {len(tables) - 1} others" if len(tables) > 1 else str(tables[0])


class Swallowed(QueueError):
    """A table took fewer rows than were inserted, and reported no error. With 0 it may take none at all."""

    def __init__(self, text: str, *, took: int = 0) -> None:
        super().__init__(text)
        self.took = took


def check_went_in(took: int, wanted: int, table: object) -> int:
    """How many rows a table took, which is as many as it should have.

    :raises Swallowed: it is not. The transaction is to be rolled back, or the part of it that inserted.
    """
    if took != wanted:
        raise Swallowed(
            f"{table} took {took} of the {wanted} rows that were inserted into it, and reported no error: a "
            "trigger or a rule drops them; take it away, or let it raise an error.",
            took=took,
        )
    return took
