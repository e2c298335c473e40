"""Scripts for a database administrator to run: nothing here needs a connection."""

from collections.abc import Sequence
from typing import Unpack

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.engine_of_url import DIALECTS
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.tables import rights
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.ddl import CLASSIC, Beside, wanted


def create(
    engine: str,
    queues: Sequence[str],
    *,
    shape: str = CLASSIC,
    default_schema: str | None = None,
    legacy_addresses: bool = False,
    **beside: Unpack[Beside],
) -> str:
    """A script that creates queue tables, to run as it is, any number of times.

    :param shape: one of :data:`sqlqueue_spark.tables.ddl.SHAPES`.
    :raises ConfigurationError: a name is too long.
    """
    dialect = DIALECTS[engine]
    naming = naming_of(dialect, default_schema, legacy_addresses=legacy_addresses)
    tables = wanted(dialect, naming, queues, beside, shape)
    return "".join(script_of(kind, dialect, table) for kind, table in tables)


def script_of(kind: type[BaseTable], database: Database, table: Table) -> str:
    """A script that creates a table of a kind, to run as it is, any number of times.

    Where the table is there already, some engines must be told to skip the rest.
    """
    statements = kind.create_statements(database, table)
    name = database.literal(database.table(table))
    begin = database.statement("script_begin").written_out({"name": name})
    parts = (begin, ";\n".join(map(str, statements)), str(database.statement("script_end")))
    return "\n".join(part for part in parts if part) + "\n"


def grants(
    engine: str,
    user: str,
    role: str,
    queues: Sequence[str],
    *,
    endpoint: str | None = None,
    default_schema: str | None = None,
    legacy_addresses: bool = False,
    **beside: Unpack[Beside],
) -> str:
    """A script that gives a user the rights of a role and no others; granting again is harmless.

    :param role: one of :data:`sqlqueue_spark.tables.rights.ROLES`.
    :param endpoint: the script also gives the rights on the outbox of this endpoint.
    :raises ConfigurationError: a name is too long.
    """
    dialect = DIALECTS[engine]
    naming = naming_of(dialect, default_schema, legacy_addresses=legacy_addresses)
    on = {"queue": role, "subscriptions": rights.SUBSCRIBING.get(role, role)}
    granted = [
        (on.get(kind.word, kind.word), table) for kind, table in wanted(dialect, naming, queues, beside)
    ]
    if endpoint is not None:
        before_subscriptions = len(granted) - bool(beside.get("subscriptions"))
        outbox = dialect.outbox_table(endpoint, naming.default_schema)
        granted.insert(before_subscriptions, ("outbox", outbox))
    return rights.script(dialect, user, granted)


def naming_of(dialect: Dialect, default_schema: str | None, *, legacy_addresses: bool = False) -> Naming:
    """How addresses become tables without asking a database."""
    return Naming(
        default_schema=default_schema or dialect.default_schema,
        legacy_addresses=legacy_addresses,
        quoted_addresses=dialect.quoted_addresses,
    )
