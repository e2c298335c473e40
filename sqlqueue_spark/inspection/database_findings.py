"""Finds what stops or slows .NET endpoints: a subscription, a publication, an open transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlqueue_spark.engines.open_connection import Connection
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.queue_findings import Finding, told
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.tables import database_facts, subscriptions, table_code, table_kinds
from sqlqueue_spark.tables.queue_table import passed_over
from sqlqueue_spark.tables.queues import Holder
from sqlqueue_spark.tables.subscriptions import Subscription, SubscriptionTable

log = logger(__name__)

#: A transaction that is open for longer is a finding. A batch of a stream or a handler lasts seconds.
_LONG_SECONDS = 120


def of_database(connection: Connection) -> Iterator[Finding]:
    """Find what is wrong with a database for all of its queues. Only reads, inside the open transaction."""
    yield from _open_transactions(connection)
    yield from _published(connection)
    for table in subscriptions.readable_tables(connection):
        if why := passed_over(connection, table, table_code.LOOK):
            log.warning("not_looked_at table=%s: %s", table, why)
            continue
        yield from _lost_subscriptions(connection, table)


def _open_transactions(connection: Connection) -> Iterator[Finding]:
    for each in database_facts.open_transactions(connection, _LONG_SECONDS):
        statement = connection.dialect.statement("remedy_transaction")
        where = database_facts.database(connection)
        said = f"The {each.program} keeps a snapshot of the server: until it lets go"
        if each.since is not None:
            who = f"{each.login} ({each.program})"
            if each.session is not None:
                who = str(Holder(each.session, each.login or "unknown", each.host, each.program))
            said = f"A transaction of {who} has been open in the database {where!r} since "
            said += f"{told(each.since, each.now)}: until it ends"
        yield Finding(
            message=f"{said}, {each.costs}.",
            remedy_sql="" if each.session is None else statement.with_numbers({"session": each.session}),
        )


def _published(connection: Connection) -> Iterator[Finding]:
    """Find tables that cannot be used because a publication has them."""
    dialect = connection.dialect
    for table, key in table_kinds.unidentified(connection).items():
        named = replace(table, catalog=database_facts.database(connection))
        columns = ", ".join(map(dialect.quote, key))
        yield Finding(
            message=f"The table {named} is in a publication, and has neither a primary key nor another "
            "replica identity: the server lets no session change or delete its rows.",
            remedy_sql=str(dialect.render("remedy_key", queue=dialect.table(table), key=columns)),
        )


def _lost_subscriptions(connection: Connection, table: Table) -> Iterator[Finding]:
    """Find subscriptions whose address cannot be read or whose queue is missing; one finding an address."""
    dialect = connection.dialect
    here = database_facts.database(connection)
    naming = Naming(default_schema=table.schema, quoted_addresses=dialect.quoted_addresses)
    by_address: dict[str, list[Subscription]] = {}
    for each in SubscriptionTable(connection, table).all():
        by_address.setdefault(each.address, []).append(each)
    places: dict[str, Sequence[Table]] = {}
    wrong: dict[str, str] = {}
    for address in by_address:
        if read := subscriptions.unquoted(dialect, address):
            places[address] = read
            continue
        try:
            place = naming.table(address)
        except ConfigurationError:
            wrong[address] = "which is none"
        else:
            if place.catalog in (None, here):  # addresses in other databases cannot be checked from here
                places[address] = [replace(place, catalog=None)]
    there = subscriptions.present(connection, [each for tables in places.values() for each in tables])
    gone = "and there is no such table" + (", as far as this login sees" if dialect.hides_tables else "")
    lost = [address for address, tables in places.items() if there.isdisjoint(tables)]
    if misread := [address for address in lost if subscriptions.unquoted(dialect, address)]:
        statement = dialect.render("remedy_subscriptions", subscriptions=dialect.table(table))
        prefix = dialect.literal(f'{dialect.quote(table.schema)}."')
        text = (
            " without quotation marks, which a .NET endpoint reads as a schema and a table that are not "
            "there: publishing the event fails"
        )
        found = [each for address in misread for each in by_address[address]]
        yield _of_subscriptions(found, table, text, statement.written_out({"prefix": prefix}))
    wrong |= {address: gone for address in lost if address not in misread}
    for address, why in wrong.items():
        statement = dialect.render("remedy_subscription", subscriptions=dialect.table(table))
        remedy_sql = statement.written_out({"address": dialect.literal(address)})
        text = f", {why}: publishing the event fails, or its copy does"
        yield _of_subscriptions(by_address[address], table, text, remedy_sql)


def _of_subscriptions(found: list[Subscription], table: Table, wrong: str, remedy_sql: str) -> Finding:
    first, more = found[0], f"; so with {len(found) - 1} more" if len(found) > 1 else ""
    message = (
        f"The subscription of {first.endpoint!r} to {first.topic!r} in {table} has the address "
        f"{first.address!r}{wrong}{more}."
    )
    return Finding(message=message, remedy_sql=remedy_sql)
