"""Tells how a queue table is set up and what that means, without judging it."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlqueue_spark.inspection.queue_findings import remedy
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from sqlqueue_spark.tables.rights import Rights


@dataclass(frozen=True, kw_only=True)
class ServerFact:
    """One setting, what it means here, and a statement to change it, if that may be wanted."""

    name: str
    value: str
    meaning: str = ""
    remedy_sql: str = ""


_EITHER_WAY = "the statements of this package lock what they must either way"
#: What each setting of a database means, by name and value.
_MEANINGS = {
    "lock escalation": {
        "TABLE": "the default, and fine: no statement of this package takes the 5,000 locks that lead to one "
        "on the whole table. DISABLE keeps nearly all large statements of others from it too, and costs "
        "memory for each lock",
        "AUTO": "fine: as TABLE, but by partition where the table has partitions",
        "DISABLE": "next to no statement locks the whole table and so stops the senders; large ones of "
        "others cost memory for each lock instead, and fail without it (error 1204). This package does not "
        "need it",
    },
    "read committed snapshot": {
        "on": f"plain reads of others do not wait; {_EITHER_WAY}",
        "off": f"plain reads of others wait for rows that are being sent or received; {_EITHER_WAY}",
    },
    "snapshot isolation": {
        "on": "a sink may have isolationLevel=Snapshot",
        "off": "a sink cannot have isolationLevel=Snapshot; no other one is concerned",
    },
    "Headers": {"nvarchar": "keeps every letter", "varchar, code page 65001": "UTF-8: keeps every letter"},
    "write-ahead log": {
        "on": "what is committed outlives a crash of the server",
        "off": "a crash of the server empties the table: every message in it is lost",
    },
    "fsync": {
        "on": "what is committed outlives a crash of the machine too",
        "off": "a crash of the machine can take back what was committed, and damage the database; no session "
        "can ask for more",
    },
    "delayed durability": {
        "disabled": "what is committed outlives a crash of the server",
        "allowed": "fine: a commit is delayed only where it asks for it, and none of this package does",
        "forced": "a crash of the server takes back what was committed just before: messages are lost",
    },
    "autovacuum": {
        "on": "the room of deleted rows is used again",
        "off": "the room of deleted rows is used again only after a VACUUM by hand: the table grows, "
        "receiving gets slower",
    },
    "row security": {
        "on": "policies decide which rows this login sees: a receiver leaves the others where they are"
    },
}
_LOSSY = (
    "others lose the letters that this code page does not have; this package writes them as \\u escapes, and "
    "loses none"
)
#: The statements that change a setting, by its name and value.
_REMEDIES = {
    ("lock escalation", "DISABLE"): "lock_escalation",
    ("write-ahead log", "off"): "write_ahead_log",
    ("fsync", "off"): "fsync",
    ("autovacuum", "off"): "autovacuum",
}


def facts(admin: QueueAdmin, rights: Rights) -> Iterator[ServerFact]:
    """Yield what this login may do, and how the table is set up. Only reads, inside the open transaction."""
    for name, lacks in (("receive", rights.receiver_lacks), ("send", rights.sender_lacks)):
        value = f"no, lacks {', '.join(lacks)}" if lacks else "yes"
        yield ServerFact(name=f"{rights.user} may {name}", value=value)
    if admin.connection.dialect.statement("create_heap"):
        yield _variant(admin)
    if (numbers := admin.numbers) is not None:
        last = "?" if numbers.last is None else f"{numbers.last:,}"
        meaning = "none was given yet, or this login may not see it" if numbers.last is None else ""
        yield ServerFact(name="last number", value=f"{last} of {numbers.highest:,}", meaning=meaning)
    for name, value in admin.settings:
        meaning, change = _MEANINGS.get(name, {}).get(value, ""), _REMEDIES.get((name, value))
        if name == "Headers" and not meaning:  # a code page that is not listed
            meaning, change = _LOSSY, "headers"
        statement = remedy(admin, change) if change else ""
        yield ServerFact(name=name, value=value, meaning=meaning, remedy_sql=statement)


def _variant(admin: QueueAdmin) -> ServerFact:
    """The generation of a table on SQL Server. PostgreSQL has one only."""
    clustered = next((index for index in admin.indexes if index.kind == "clustered"), None)
    if clustered is None:
        value, meaning = "heap", "as newer installers create it; only a rebuild gives its emptied pages back"
    else:
        value = f"clustered by {', '.join(clustered.columns)}"
        meaning = "as the classic installer creates it by RowVersion; gives its pages back as they empty"
    return ServerFact(name="variant", value=value, meaning=meaning)
