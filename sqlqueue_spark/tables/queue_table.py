"""Which table an address means: finds it in the catalogue, checks it, and tells what is there instead."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple

from sqlqueue_spark.engines.connection import Connection, Row
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.statements import Parameters
from sqlqueue_spark.errors import ConfigurationError, LockTimeout, NoRight, QueueError, SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.plain_text import for_shell
from sqlqueue_spark.tables import database_facts, table_code

_BYTES = {"bytea", "varbinary", "binary", "image"}
_TEXTS = {"text", "character varying", "character", "varchar", "nvarchar", "char", "nchar", "ntext"}
_DOCUMENTS = {"json", "jsonb", "xml"}
#: What a message is made of, and types with which each is never what it should be: the server converts them.
CONTENT = {"headers": _BYTES | _DOCUMENTS, "body": _TEXTS | _DOCUMENTS}
#: Columns that some generations of queue tables lack; a missing one is read as NULL.
OPTIONAL_COLUMNS = ("CorrelationId", "ReplyToAddress", "Recoverable")
#: What to do with a misshapen table.
_ANEW = "create a table of another name with sqlqueue create and move the rows, or correct the queue name"


class Column(NamedTuple):
    name: str
    type: str
    nullable: bool
    computed: bool


class Misfit(NamedTuple):
    """A column that a table lacks or has of another type: a sentence, and whether the table is of no use."""

    message: str
    unusable: bool


@dataclass(frozen=True, kw_only=True)
class QueueTable:
    """Which table an address means: its name, and an identity that stays while rows come and go."""

    table: Table
    #: Canonical, with the names as the database spells them: ``orders@[public]@[shop]``.
    name: str
    object_id: int
    #: Changes when the table is dropped and created again, not when it is truncated or rewritten.
    identity: str
    database: str
    #: In their order.
    columns: tuple[Column, ...]
    #: The column that tells when a message is due; None for the table of a queue.
    due: str | None = None
    #: Whether that database is read-only here: a readable copy, or one on a standby server.
    read_only: bool = False
    #: Whether plain reads see row versions: also those of rows that an open transaction has deleted. A claim
    #: then deletes its rows at once, as the one-row receivers do, and settling it is only the commit.
    row_versions: bool = False
    #: Whether a claim keeps a lock on the index key of a row that it has stepped over.
    keeps_skipped: bool = False
    #: The name of that database as its server spells it; None where it is the connection's own database.
    foreign: str | None = None
    #: The column of numbers that may be NULL and that the server fills by nothing; None where there is none.
    numberless: str | None = None

    @property
    def address(self) -> str:
        """Which table of its server this is, in one spelling, independent of the connection's database."""
        return str(replace(self.table, catalog=self.foreign))

    @property
    def digits(self) -> str:
        """Which table of its server this is, whatever its name: characters of ``[0-9a-f-]``."""
        own = "" if self.foreign is None else f"-{sha256(self.foreign.encode()).hexdigest()[:8]}"
        return f"{self.object_id}{own}"

    @property
    def spelled(self) -> Mapping[str, str]:
        """The columns as the table spells them, by their names in lower case."""
        return {column.name.lower(): column.name for column in self.columns}

    def filled(self, dialect: Dialect) -> list[str]:
        """Those of a message's columns that it has, as it spells them; a computed one takes no value."""
        own = {each.name.lower(): each.name for each in self.columns if not each.computed}
        return [own[name.lower()] for name in dialect.message_columns if name.lower() in own]

    @property
    def identified(self) -> Parameters:
        """The parameters by which statements find the table in the catalogue."""
        return {"database": self.database, "object_id": self.object_id}


#: How long a look at one of several tables waits for a lock, in milliseconds.
LOCKED_MS = 500


def find(connection: Connection, table: Table) -> QueueTable | None:
    """Look a table up; None when it is not there.

    :raises ConfigurationError: the address names a database that cannot be reached from this connection.
    """
    dialect = connection.dialect
    doing = f"looking for {table}"
    database, read_only, spelled = _database(connection, table)
    if table.catalog is not None and table.catalog != database and not dialect.reaches_other_databases:
        raise ConfigurationError(
            f"The queue {table} lies in database {table.catalog!r} but the url leads to {database!r}; "
            f"{dialect.title} reaches one database a connection, so put the queue's database into the url."
        )
    catalog = table.catalog or database
    if not all(map(connection.holds, (catalog, table.schema, table.table))):
        return None
    names = {"schema": table.schema, "name": table.table}
    in_catalog = {"catalog": dialect.quote(catalog)}
    try:
        found = connection.execute(dialect.render("identity", **in_catalog), names, doing=doing)
    except QueueError as error:
        if table.catalog is None:
            raise
        raise ConfigurationError(
            f"The queue {table} lies in database {table.catalog!r}, which is not there ({error}); correct "
            "the address."
        ) from error
    rows = found and connection.execute(dialect.render("columns", **in_catalog), names, doing=doing)
    if not rows:  # also where it has just been dropped
        return None
    schema, name, object_id, _ = found[0]
    columns = tuple(Column(*row[:4]) for row in rows)
    number = dialect.row_version.lower()
    unfilled = [name for name, _, null, _, filled in rows if name.lower() == number and null and not filled]
    dues = [column.name for column in columns if column.name.lower() == "due"]
    spelled = spelled or catalog
    return QueueTable(
        table=Table(table=name, schema=schema, catalog=table.catalog),
        name=str(Table(table=name, schema=schema, catalog=catalog)),
        object_id=object_id,
        identity=identity_of(found[0]),
        columns=columns,
        due=dues[0] if dues and not dialect.has_queue_columns(each.name for each in columns) else None,
        database=catalog,
        read_only=bool(read_only),
        foreign=None if spelled == database else spelled,
        numberless=unfilled[0] if unfilled else None,
    )


def has_database(connection: Connection, table: Table) -> bool:
    """Whether the database that an address names is there, as far as this login may know."""
    if table.catalog is None or not connection.dialect.reaches_other_databases:
        return True
    here, _, spelled = _database(connection, table)
    return spelled is not None or here == table.catalog


def _database(connection: Connection, table: Table) -> tuple[str, bool, str | None]:
    asked = {"catalog": table.catalog if table.catalog and connection.holds(table.catalog) else ""}
    statement = connection.dialect.statement("database")
    return connection.execute(statement, asked, doing=f"looking for {table}")[0]


def find_queue(connection: Connection, table: Table) -> QueueTable | None:
    """As :func:`find`, for a queue.

    :raises QueueError: the table is of no use as one.
    """
    if (found := find(connection, table)) is not None:
        if found.due:
            owner = replace(found.table, table=found.table.table.removesuffix(".Delayed"))
            raise QueueError(
                f"{found.name} is a table of delayed messages; name its queue, or look at it with: sqlqueue "
                f"delayed length {for_shell(str(owner))}."
            )
        check_shape(found, connection.dialect.queue_columns)
    return found


def misfits(table: QueueTable, wanted: Mapping[str, Sequence[str]]) -> Iterator[Misfit]:
    """Which columns a table lacks or has of another type.

    It is of no use without a column, with headers that are no text, with a body that is no bytes, or where a
    row may have no number: so is a copy that CREATE TABLE … AS has made.

    :param wanted: the columns that it must have, each with the types that it may have.
    """
    columns = {column.name.lower(): column for column in table.columns}
    for name, allowed in wanted.items():
        found, told = columns.get(name.lower()), " or ".join(allowed)
        kind = found.type.partition("(")[0] if found else ""
        if found is None:
            yield Misfit(f"{table.name} has no column {name} ({told}); {_ANEW}.", unusable=True)
        elif found.type not in allowed and kind not in allowed:
            message = f"The column {name} of {table.name} is {found.type}, not {told}; {_ANEW}."
            yield Misfit(message, unusable=kind in CONTENT.get(name.lower(), ()))
        elif table.numberless is not None and name.lower() == table.numberless.lower():
            why = f"{name} may be NULL and nothing fills it, and no receiver sees a row without a number"
            message = f"The rows of {table.name} may have no number: {why}; make it an identity, or {_ANEW}."
            yield Misfit(message, unusable=True)


def check_shape(table: QueueTable, wanted: Mapping[str, Sequence[str]]) -> None:
    """:raises QueueError: the first of :func:`misfits` that makes the table useless, even an empty one."""
    for each in misfits(table, wanted):
        if each.unusable:
            raise QueueError(each.message)


def identity_of(found: tuple[object, ...]) -> str:
    """The object id and, where the engine knows it, the creation date."""
    _, _, object_id, created = found
    return f"{object_id}/{created}" if created else str(object_id)


def left_alone(
    connection: Connection, table: Table, event: int = table_code.DELETE, *, shaped: bool = False
) -> str | None:
    """Why a table that no option names is left alone: what of a stranger would run as this login.

    None where nothing would, until the transaction ends. On PostgreSQL a lock keeps new code out; a login
    that may only look cannot keep out indexes.

    :param event: what happens to rows, as for :func:`table_code.found`.
    :param shaped: as for :func:`table_code.found`: with columns of another type, an operator may be his.
    """
    if connection.dialect.statement("code_lock"):
        for look_alone in (False, True):
            with contextlib.suppress(NoRight), connection.attempt(hurried=True):
                table_code.keep_out(connection, [table], looking=look_alone)
                break
    (found,) = table_code.found(connection, [table], event, shaped=shaped)
    return found.why and f"it belongs to {found.owner!r}, and {found.why}"


def passed_over(
    connection: Connection, table: Table, event: int = table_code.DELETE, *, shaped: bool = False
) -> str | None:
    """As :func:`left_alone`, for one of many tables, so that none of them holds up the others for long."""
    connection.hurry(LOCKED_MS)
    try:
        return left_alone(connection, table, event, shaped=shaped)
    except LockTimeout:
        return "another session has locked it"
    finally:
        with contextlib.suppress(SqlQueueError):  # the transaction may be over
            connection.hurry(None)


def missing(connection: Connection, table: Table, where: str, what: str) -> QueueError:
    """The error for a missing queue table. It tells what has the name instead, or nearly the name.

    :param where: where the table was looked for.
    :param what: what the user should correct.
    """
    catalog = table.catalog or database_facts.database(connection)
    rows: list[Row] = []
    if connection.holds(table.table) and connection.holds(catalog):
        statement = connection.dialect.render("namesakes", catalog=connection.dialect.quote(catalog))
        rows = connection.execute(statement, {"name": table.table}, doing=f"looking for {table}")
    kinds = {Table(table=name, schema=schema): kind for schema, name, kind in rows}
    here = Table(table=table.table, schema=table.schema)
    if (kind := kinds.pop(here, "table")) != "table":  # else it has just been created
        return QueueError(f"{table} is a {kind}, not a queue table; correct {what} or its schema.")
    near = [str(replace(each, catalog=table.catalog)) for each, kind in kinds.items() if kind == "table"]
    but = f", but there is {' and '.join(near)}" if near else ""
    short = "@" not in table.table and table == replace(here, schema=connection.dialect.default_schema)
    named = table.table if short else connection.dialect.address(table)
    return QueueError(
        f"There is no queue table {table} {where}{but}; create it with: sqlqueue create "
        f"{for_shell(named)}, or correct {what} or its schema."
    )
