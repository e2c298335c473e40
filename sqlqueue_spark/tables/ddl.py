"""Creates queues, stages, outboxes and other tables that are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ConfigurationError, Duplicate, NoRight, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.plain_text import for_shell, logger
from sqlqueue_spark.tables import queue_shape, queue_table
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.database_facts import database, schema_exists
from sqlqueue_spark.tables.stages.stage import Stage

log = logger(__name__)

#: The shapes of a new queue table. Only one with a clustered index gives back the room of deleted rows.
CLASSIC, HEAP = "classic", "heap"
SHAPES = (CLASSIC, HEAP)
_CREATIONS = {CLASSIC: "create", HEAP: "create_heap"}


class Created(NamedTuple):
    """A table that exists now; ``new`` says that this call created it."""

    table: str
    new: bool


def created(connection: Connection, table: Table, *, new: bool) -> Created:
    """A table that exists now, by the name that the database has for it; in a transaction of its own."""
    with connection.transaction():
        found = queue_table.find(connection, table)
    return Created(found.name if found else str(table), new)


def create_queue(connection: Connection, table: Table, shape: str = CLASSIC) -> bool:
    """Create a queue table, in its own transaction; True if it is new. Errors as :func:`create_if_missing`.

    :param shape: one of :data:`SHAPES`.
    :raises ConfigurationError: also where the name is too long, or the engine does not know the shape.
    :raises QueueError: the name belongs to something else than a table.
    """
    check_name(connection.dialect, table)
    statement = creation(connection.dialect, table, shape)

    def exists() -> bool:
        return queue_shape.find_queue(connection, table) is not None

    def create() -> None:
        connection.execute(statement, doing=f"creating {table}")
        if not exists():
            raise QueueError(
                f"Something else than a table is called {table} (a view, say), so the queue was not created; "
                "choose another name."
            )

    return create_if_missing(connection, table, exists, create, called=f"the queue {table}")


def creation(dialect: Dialect, table: Table, shape: str) -> Statement:
    """The statement that creates a queue table.

    :param shape: one of :data:`SHAPES`.
    :raises ConfigurationError: the engine does not know this shape.
    """
    statement = dialect.render(_CREATIONS[shape], queue=dialect.table(table))
    if not statement:
        raise ConfigurationError(
            f"A queue table on {dialect.title} has only one shape, which is not {shape!r}; leave the shape "
            "out."
        )
    return statement


def lock_creation(connection: Connection, table: Table) -> None:
    """Wait until no session is creating this table, and keep others waiting until the transaction ends."""
    dialect = connection.dialect
    name = {"name": dialect.table(table)}
    connection.execute(dialect.statement("create_lock"), name, doing=f"waiting to create {table}")


def create_stage(connection: Connection, table: Table) -> bool:
    """As :func:`create_beside`, for a stage."""
    new = create_beside(Stage(connection, table), "the stage")
    if new:
        log.info("created stage=%s", table)
    return new


def create_beside(new: BaseTable, called: str = "the table") -> bool:
    """Create a table beside the queues, in its own transaction; True if it is new.

    Errors as :func:`create_if_missing`.

    :raises ConfigurationError: also where the name is too long.
    """
    check_name(new.connection.dialect, new.table)
    return create_if_missing(new.connection, new.table, new.exists, new.create, called=f"{called} {new.name}")


def create_if_missing(
    connection: Connection,
    table: Table,
    exists: Callable[[], bool],
    create: Callable[[], None],
    *,
    called: str,
) -> bool:
    """Create a table in a transaction of its own; True if it was not there.

    It is safe in a race: all who create the same table wait for one another, and "already there" is no error.

    :raises ConfigurationError: its schema is not there.
    """
    dialect = connection.dialect
    try:
        with connection.transaction():
            if exists():
                return False
            if not schema_exists(connection, table, database(connection)):
                remedy = dialect.render("create_schema", schema=dialect.quote(table.schema))
                raise ConfigurationError(
                    f"There is no schema {table.schema!r} for {called}; create it with: {remedy}, or correct "
                    "the schema."
                )
            lock_creation(connection, table)
            if exists():
                return False
            create()
            return True
    except NoRight as error:
        grants = str(dialect.render("grants_installer", schema=dialect.quote(table.schema), user="USER"))
        needed = " ".join(grants.split()).replace(" TO USER;", ",").rstrip(",").replace("GRANT ", "")
        raise error.needing(
            f"a login that creates {called} needs {needed}; an administrator gives it with what this prints: "
            f"sqlqueue script --engine {dialect.name} --grants USER --role installer {for_shell(str(table))}"
        ) from error.__cause__
    except SqlQueueError as error:
        if isinstance(error, ConfigurationError | TryAgain) and not isinstance(error, Duplicate):
            raise
        # A session that takes no lock, or another lock, may have created the table meanwhile.
        with connection.transaction():
            if exists():
                return False
        raise


def check_name(dialect: Dialect, table: Table) -> None:
    """Refuse a table name that the database would cut.

    :raises ConfigurationError: it is too long.
    """
    longest, unit = dialect.longest_queue
    length = len(table.table.encode()) if unit == "bytes" else len(table.table)
    if length > longest:
        raise ConfigurationError(
            f"The queue name {table.table!r} is {length} {unit} long, but a queue table on {dialect.title} "
            f"has at most {longest}; choose a shorter name."
        )
