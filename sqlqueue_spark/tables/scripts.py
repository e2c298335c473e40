"""Scripts for a database administrator to run: nothing here needs a connection."""

from __future__ import annotations

from collections.abc import Sequence

from sqlqueue_spark.engines.database import Database
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.engine_of_url import DIALECTS
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.tables import rights
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.ddl import CLASSIC, check_name, of_shape
from sqlqueue_spark.tables.stages.stage_table import StageTable, table_named
from sqlqueue_spark.tables.subscriptions import SubscriptionTable, table_of


def create(
    engine: str,
    wanted: Sequence[str],
    *,
    instances: Sequence[str] = (),
    companions: Sequence[str] = (),
    stream: str | None = None,
    subscriptions: bool = False,
    shape: str = CLASSIC,
    default_schema: str | None = None,
    legacy_addresses: bool = False,
) -> str:
    """A script that creates queue tables, to run as it is, any number of times.

    :param stream: an atomic pipeline whose stage the script creates too.
    :param subscriptions: whether it creates the table of subscriptions of the default schema, too.
    :param shape: one of :data:`sqlqueue_spark.tables.ddl.SHAPES`.
    :raises ConfigurationError: a name is too long.
    """
    dialect = DIALECTS[engine]
    naming = naming_of(dialect, default_schema, legacy_addresses=legacy_addresses)
    created = []
    for table in naming.tables(wanted, instances, companions):
        check_name(dialect, table)
        created.append(script_of(of_shape(dialect, shape), dialect, table))
    if stream is not None:
        created.append(script_of(StageTable, dialect, table_named(stream, naming.default_schema)))
    if subscriptions:
        created.append(script_of(SubscriptionTable, dialect, table_of(naming.default_schema)))
    return "".join(created)


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
    wanted: Sequence[str],
    *,
    instances: Sequence[str] = (),
    companions: Sequence[str] = (),
    endpoint: str | None = None,
    stream: str | None = None,
    subscriptions: bool = False,
    default_schema: str | None = None,
    legacy_addresses: bool = False,
) -> str:
    """A script that gives a user the rights of a role and no others; granting again is harmless.

    :param role: one of :data:`sqlqueue_spark.tables.rights.ROLES`.
    :param endpoint: the script also gives the rights on the outbox of this endpoint.
    :param stream: the script also gives the rights on the stage of this atomic pipeline.
    :param subscriptions: the script also lets a sender publish, and a receiver subscribe.
    :raises ConfigurationError: a name is too long.
    """
    dialect = DIALECTS[engine]
    naming = naming_of(dialect, default_schema, legacy_addresses=legacy_addresses)
    tables = naming.tables(wanted, instances, companions)
    for table in tables:
        check_name(dialect, table)
    wanted_rights, beside = [(role, table) for table in tables], naming.default_schema
    if endpoint is not None:
        wanted_rights.append(("outbox", dialect.outbox_table(endpoint, beside)))
    if stream is not None:
        wanted_rights.append(("stage", table_named(stream, beside)))
    if subscriptions:
        wanted_rights.append((rights.SUBSCRIBING.get(role, role), table_of(beside)))
    return rights.script(dialect, user, wanted_rights)


def naming_of(dialect: Dialect, default_schema: str | None, *, legacy_addresses: bool = False) -> Naming:
    """How addresses become tables without asking a database."""
    return Naming(
        default_schema=default_schema or dialect.default_schema,
        legacy_addresses=legacy_addresses,
        quoted_addresses=dialect.quoted_addresses,
    )
