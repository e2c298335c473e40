"""Creates queues, stages, outboxes and other tables that are missing."""

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

from sqlqueue_spark.engines.database import length_in
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import ConfigurationError, Duplicate, NoRight, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.plain_text import for_shell, logger
from sqlqueue_spark.tables import queue_table
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.database_facts import database, schema_exists
from sqlqueue_spark.tables.stages.stage_name import table_named
from sqlqueue_spark.tables.stages.stage_table import StageTable
from sqlqueue_spark.tables.subscriptions import SubscriptionTable, table_of

log = logger(__name__)


class Created(NamedTuple):
    """A table that exists now; ``new`` says that this call created it."""

    table: str
    new: bool


class Beside(TypedDict, total=False):
    """What is wanted beside the queues that are named.

    :ivar instances: the callback queue of each instance: ``Sales.X`` for the queue ``Sales``.
    :ivar companions: further queues, for example ``error`` and ``audit``.
    :ivar stream: the stage of this atomic pipeline; else the pipeline's source creates it.
    :ivar subscriptions: whether the table of subscriptions of the default schema.
    """

    instances: Sequence[str]
    companions: Sequence[str]
    stream: str | None
    subscriptions: bool


class QueueItself(BaseTable):
    called = "the queue"
    word = kind = "queue"
    creating = ("create",)

    def exists(self) -> bool:
        return queue_table.find_queue(self.connection, self.table) is not None


class _Heap(QueueItself):
    creating = ("create_heap",)


#: The shapes of a new queue table. Only one with a clustered index gives back the room of deleted rows.
CLASSIC, HEAP = "classic", "heap"
SHAPES = {CLASSIC: QueueItself, HEAP: _Heap}


def wanted(
    dialect: Dialect, naming: Naming, queues: Sequence[str], beside: Beside, shape: str = CLASSIC
) -> list[tuple[type[BaseTable], Table]]:
    """The tables that are wanted, each with its kind.

    :param shape: one of :data:`SHAPES`.
    :raises ConfigurationError: the engine does not know this shape, or a name is too long.
    """
    queue = SHAPES[shape]
    if not any(map(dialect.statement, queue.creating)):
        raise ConfigurationError(
            f"A queue table on {dialect.title} has only one shape, which is not {shape!r}; leave the shape "
            "out."
        )
    named = naming.tables(queues, beside.get("instances", ()), beside.get("companions", ()))
    tables: list[tuple[type[BaseTable], Table]] = [(queue, table) for table in named]
    if (stream := beside.get("stream")) is not None:
        tables.append((StageTable, table_named(stream, naming.default_schema)))
    if beside.get("subscriptions"):
        tables.append((SubscriptionTable, table_of(naming.default_schema)))
    for _, table in tables:
        check_name(dialect, table)
    return tables


def lock_creation(connection: Connection, table: Table) -> None:
    """Wait until no session is creating this table, and keep others waiting until the transaction ends."""
    dialect = connection.dialect
    name = {"name": dialect.table(table)}
    connection.execute(dialect.statement("create_lock"), name, doing=f"waiting to create {table}")


def create_stage(connection: Connection, table: Table) -> None:
    """As :func:`create_if_missing`, for a stage."""
    if create_if_missing(StageTable(connection, table)):
        log.info("created stage=%s", table)


def create(new: BaseTable) -> Created:
    """As :func:`create_if_missing`; the table has the name that the database has for it."""
    is_new = create_if_missing(new)
    with new.connection.transaction():
        return Created(new.known_as(), is_new)


def is_missing(new: BaseTable) -> bool:
    """Whether a table is not there and may be created, as far as a look in the open transaction tells.

    :raises ConfigurationError: its name is too long, or its schema is not there.
    :raises QueueError: a table of another kind has its name.
    """
    connection, table = new.connection, new.table
    check_name(connection.dialect, table)
    if new.exists():
        return False
    if not schema_exists(connection, table, database(connection)):
        remedy = connection.dialect.render("create_schema", schema=connection.dialect.quote(table.schema))
        raise ConfigurationError(
            f"There is no schema {table.schema!r} for {new.called} {new.name}; create it with: {remedy}, or "
            "correct the schema."
        )
    return True


def create_if_missing(new: BaseTable) -> bool:
    """Create a table in a transaction of its own; True if it was not there. Errors as :func:`is_missing`.

    It is safe in a race: all who create the same table wait for one another, and "already there" is no error.

    :raises QueueError: also where something else than a table has its name.
    """
    connection, table, called = new.connection, new.table, f"{new.called} {new.name}"
    dialect = connection.dialect
    taken = QueueError(
        f"Something else than a table is called {new.name} (a view, say), so {new.called} was not created; "
        f"choose another {new.called_after}."
    )
    try:
        with connection.transaction():
            if not is_missing(new):
                return False
            lock_creation(connection, table)
            if new.exists():
                return False
            try:
                new.create()
            except QueueError as error:
                raise taken from error
            if not new.exists():
                raise taken
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
            if new.exists():
                return False
        raise


def check_name(dialect: Dialect, table: Table) -> None:
    """Refuse a table name that the database would cut.

    :raises ConfigurationError: it is too long.
    """
    longest, unit = dialect.longest_queue
    length = length_in(unit, table.table)
    if length > longest:
        raise ConfigurationError(
            f"The queue name {table.table!r} is {length} {unit} long, but a queue table on {dialect.title} "
            f"has at most {longest}; choose a shorter name."
        )
