"""Finds what is wrong with an existing queue table, and tells the statement that corrects it.

All generations of queue tables in the field are accepted: clustered or heap, with or without Recoverable,
CorrelationId and ReplyToAddress, with either text type for Headers, with further columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.messages.header_json import time_sent
from sqlqueue_spark.plain_text import age, moment
from sqlqueue_spark.tables import queue_table, rights
from sqlqueue_spark.tables.allowed_destinations import LeftAlone
from sqlqueue_spark.tables.database_facts import server
from sqlqueue_spark.tables.queue_admin import Numbers, QueueAdmin
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.rights import Rights

#: The pages of a heap of 8 MB. A smaller heap is scanned quickly.
_FEW_PAGES = 1_000
#: Dead rows of a busy queue between two vacuums, and seconds until the next vacuum, that are no finding.
_FEW_DEAD_ROWS = 100_000
_VACUUM_DUE_SECONDS = 600

#: What another encoding than UTF-8 costs.
_ENCODED = {
    "SQL_ASCII": "it takes any bytes for a text, and a row whose headers are no UTF-8 is poison: it goes to "
    "the error queue."
}
_LESS = (
    "headers name letters beyond ASCII by escapes of JSON, and no queue or subscription can have a letter "
    "that the encoding lacks."
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong: a sentence, and the statement that corrects it, if there is one."""

    message: str
    remedy_sql: str = ""


def findings(connection: Connection, table: QueueTable, role: str | None = None) -> list[Finding]:
    """Find what is wrong with a table. Only reads, inside the open transaction, and never commits.

    :param role: the role of the login, receiver or sender; each missing right of this role is a finding.
        Without a role it is a finding only if the login can neither receive nor send.
    """
    admin = QueueAdmin(connection, table)
    return [*of_table(admin), *of_rights(admin, rights.held(connection, table), role)]


def of_table(admin: QueueAdmin) -> list[Finding]:
    """Find what is wrong with a table for every login. Only reads, as :func:`findings` does."""
    if not (found := list(_column_findings(admin))):
        found = [*_index_findings(admin), *_space_findings(admin), *_number_findings(admin, admin.numbers)]
    return [*found, *_database_findings(admin)]


def of_rights(admin: QueueAdmin, held: Rights, role: str | None) -> Iterator[Finding]:
    """Find missing rights of a login, as :func:`findings` says."""
    for sentence, remedy in rights.wanted(admin, held, role):
        yield Finding(message=sentence, remedy_sql=remedy)


def of_rows(admin: QueueAdmin, held: Rights) -> Iterator[Finding]:
    """Find what is wrong with the rows at the head of a queue, if the login may read them."""
    if "SELECT" in held.receiver_lacks or any(_column_findings(admin)):
        return
    try:
        yield from _stopping_row(admin)
    except LeftAlone as error:
        yield Finding(message=str(error))
        return
    if admin.numbers is not None and admin.numbers.last is None:  # this login cannot read the sequence
        yield from _number_findings(admin, admin.numbers._replace(last=admin.highest()))


def _column_findings(admin: QueueAdmin) -> Iterator[Finding]:
    for misfit in queue_table.misfits(admin.table, admin.connection.dialect.queue_columns):
        yield Finding(message=misfit.message)


def _index_findings(admin: QueueAdmin) -> Iterator[Finding]:
    dialect = admin.connection.dialect
    row_version = dialect.row_version
    if not admin.finds_row_versions:
        name = dialect.row_version_index(admin.table.table.table)
        yield Finding(
            message=f"{admin.table.name} has no index that begins with {row_version}: every look at the "
            "queue reads the whole table, and receiving is refused or slow.",
            remedy_sql=remedy(admin, "index_row_version", index=admin.new_index_name(name)),
        )
    indexed = dialect.statement("remedy_index_expires")
    if indexed and not any(index.leads_with("Expires") for index in admin.indexes):
        yield Finding(
            message=f"{admin.table.name} has no index that begins with Expires: purging expired messages "
            "is refused, and other receivers read the whole table for them.",
            remedy_sql=remedy(admin, "index_expires", index=admin.new_index_name("Index_Expires")),
        )


def _space_findings(admin: QueueAdmin) -> Iterator[Finding]:
    space, is_heap = admin.space(), bool(admin.connection.dialect.statement("create_heap"))
    if space is None:
        return
    lately = space.idle_seconds is not None and space.idle_seconds < _VACUUM_DUE_SECONDS
    said = ""
    # Each row of a heap lies on one page. So if there are more pages than rows, most of the pages are dead.
    if is_heap and space.pages > max(space.live, _FEW_PAGES):
        said = (
            f"is a heap of {space.pages} pages for about {space.live} rows: a heap does not give emptied "
            "pages back, and scans read them all."
        )
    elif not is_heap and space.dead > max(space.live, _FEW_DEAD_ROWS) and not lately:
        said = (
            f"holds about {space.dead} dead rows beside {space.live} live ones: autovacuum does not keep up, "
            "or an open transaction holds it back."
        )
    if said:
        yield Finding(message=f"{admin.table.name} {said}", remedy_sql=remedy(admin, "space"))


def _number_findings(admin: QueueAdmin, numbers: Numbers | None) -> Iterator[Finding]:
    """Find out whether the rows of a queue are numbered, and whether the numbers run out."""
    dialect = admin.connection.dialect
    if numbers is None:
        yield Finding(
            message=f"Nothing numbers the rows of {admin.table.name}: {dialect.row_version} is neither an "
            "identity nor filled from a sequence, so senders cannot send; create a table of another name "
            "with sqlqueue create and move the rows."
        )
    elif numbers.last is not None and numbers.last > numbers.highest // 2:
        yield Finding(
            message=f"{admin.table.name} has used {numbers.last} of the {numbers.highest} numbers that "
            f"{dialect.row_version} can have; no message can be sent after the last one.",
            remedy_sql=remedy(admin, "numbers", sequence=dialect.table(numbers.source)),
        )


def _stopping_row(admin: QueueAdmin) -> Iterator[Finding]:
    if (found := admin.stopping_row()) is None:
        return
    what = "has no body (NULL)" if found.bodyless else "has the JSON null for headers"
    sent, behind = time_sent(found.headers), time_sent(found.behind)
    if sent is not None:
        since = f"it was sent at {told(sent, found.now)}"
    elif behind is not None:
        since = f"the row behind it was sent at {told(behind, found.now)}"
    else:
        since = "it does not tell when it was sent"
    yield Finding(
        message=f"The row {found.row_version} of {admin.table.name} (Id {found.id}) {what}: a .NET endpoint "
        f"fails at it, gives it back, and handles nothing that stands behind it; {since}.",
        remedy_sql=remedy(admin, "stopping_row"),
    )


def _database_findings(admin: QueueAdmin) -> Iterator[Finding]:
    # On PostgreSQL our sessions set for themselves how durable a commit is.
    if ("delayed durability", "forced") in admin.settings:
        yield Finding(
            message=f"The database {admin.table.database!r} answers every commit before it is on the disk "
            "(DELAYED_DURABILITY = FORCED): a crash of the server takes back messages that count as sent, "
            "and brings back those that were processed.",
            remedy_sql=remedy(admin, "durability"),
        )
    if (encoding := admin.connection.encoding) != "UTF8":
        yield Finding(
            message=f"The database {admin.table.database!r} keeps texts in {encoding}, not in UTF8: "
            + _ENCODED.get(encoding, _LESS)
        )
    found = server(admin.connection)
    if found.is_ < found.needed:
        yield Finding(
            message=f"The {found.what} of {admin.table.database!r} is {found.is_}, but {found.needed} is "
            "needed.",
            remedy_sql=remedy(admin, "compatibility"),
        )


def remedy(admin: QueueAdmin, name: str, **names: str) -> str:
    dialect = admin.connection.dialect
    quoted = {key: dialect.quote(value) if key == "index" else value for key, value in names.items()}
    catalog = dialect.quote(admin.table.database)
    queue = dialect.table(admin.table.table)
    return str(dialect.render(f"remedy_{name}", queue=queue, catalog=catalog, **quoted))


def told(at: datetime, now: datetime) -> str:
    """Return a time, and how long ago it was."""
    return f"{moment(at)} ({age(max(now - at, timedelta(0)))} ago)"
