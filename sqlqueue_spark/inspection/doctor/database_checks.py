"""Checks the way to queues, step by step: network, login, database, queue, rights, and a sink's outbox."""

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlqueue_spark.engines.hosts import Host, hosts
from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import QueueError, SqlQueueError
from sqlqueue_spark.inspection.database_findings import of_database
from sqlqueue_spark.inspection.doctor.checks import Check, Open, State, Wrong, checked
from sqlqueue_spark.inspection.queue_findings import of_rows, of_table
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.plain_text import age, for_shell, shell_word
from sqlqueue_spark.tables import queue_table, queues, rights
from sqlqueue_spark.tables.database_facts import now, server
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.rights import RECEIVER, SENDER

STEPS = ("network", "login", "database", "queue", "rights")

_SECONDS_TO_ANSWER = 3.0
_STATEMENT = timedelta(seconds=10)
#: Clocks that differ by less are no finding.
_APART = timedelta(seconds=5)


def checks(
    options: ConnectionOptions,
    queue: str | None,
    role: str | None,
    more: Callable[[Connection], Iterable[str]] = lambda _: (),
) -> Iterator[Check]:
    """Check each step, also of ``more`` queues, and the outbox if the options are those of a sink.

    After a failure, only the steps that depend on it are not tried.
    """
    target = replace(Target.of(options), command_timeout=_STATEMENT, lock_timeout=_STATEMENT)
    try:
        wanted = hosts(target.url)
    except SqlQueueError as error:
        yield Check(name="url", state=State.WRONG, said=str(error))
        yield from _rest("network", "the url cannot be read")
        return
    network = checked("network", lambda: _network(wanted))
    yield network
    if network.state is State.WRONG:
        yield from _rest("login", "no server answers")
        return
    try:
        connection = connect(target)
    except SqlQueueError as error:
        yield Check(name="login", state=State.WRONG, said=str(error))
        yield from _rest("database", "there is no connection")
        return
    with connection:
        in_transaction = connection.transaction()
        yield checked("login", in_transaction(lambda: server(connection).login))
        yield checked("database", in_transaction(lambda: _database(connection)))
        try:
            addresses = [*filter(None, [queue]), *in_transaction(more)(connection)]
        except SqlQueueError as error:
            addresses = []
            yield Check(name="queue", state=State.WRONG, said=str(error))
        else:
            if not addresses:
                yield from _rest("queue", "no QUEUE is named")
        for each in addresses:
            yield checked("queue", in_transaction(partial(_queue, connection, options, each)))
            yield checked("rights", in_transaction(partial(_rights, connection, options, each, role)))
        if isinstance(options, SinkOptions) and options.uses_outbox:
            yield checked("outbox", lambda: OutboxTable.of_sink(connection, options).rehearse())


def _database(connection: Connection) -> str:
    there = server(connection)
    if there.is_ < there.needed:
        raising = str(connection.dialect.render("remedy_compatibility"))
        raise Wrong(
            f"The {there.what} of {there.database!r} is {there.is_}, but {there.needed} is needed; "
            + (f"raise it with: {raising}" if raising else "upgrade the server.")
        )
    for finding in of_database(connection):
        statement = " ".join(finding.remedy_sql.split())
        raise Wrong(finding.message + (f" Run: {statement}" if statement else ""))
    began, there_now, ended = datetime.now(UTC), now(connection), datetime.now(UTC)
    if (apart := max(began - there_now, there_now - ended)) > _APART:
        raise Wrong(
            f"The clock of the server and that of this machine are {age(apart)} apart, and both count "
            "(docs/limits.md): let NTP set them."
        )
    return f"{there.database} on {there.version}"


def _queue(connection: Connection, options: ConnectionOptions, address: str) -> str:
    dialect = connection.dialect
    try:
        found = queues.get(connection, address, options.naming(dialect), shaped=False)
    except QueueError as error:
        hidden = f" {dialect.title} hides a table from a login without any right to it."
        raise Wrong(f"{error}{hidden if dialect.hides_tables else ''}") from error
    admin = QueueAdmin(connection, found.table, options)
    if wrong := [*of_table(admin), *of_rows(admin, rights.held(connection, found.table))]:
        named = dialect.address(found.table.table)
        raise Wrong(f"{wrong[0].message} See what to run with: sqlqueue inspect {for_shell(named)}")
    return found.table.name


def _rights(connection: Connection, options: ConnectionOptions, address: str, role: str | None) -> str:
    try:
        queue = queues.get(connection, address, options.naming(connection.dialect), shaped=False)
    except SqlQueueError as error:
        raise Open("not tried: there is no table to have rights to") from error
    held = rights.held(connection, queue.table)
    doing = {RECEIVER: "receive", SENDER: "send"}
    asked = tuple(doing) if role is None else (role,)
    if may := [doing[each] for each in asked if not held.lacks(each)]:
        return f"{held.user} may {' and '.join(may)}{_lent(queue)}"
    lacking = "; ".join(f"to {doing[each]} it lacks {', '.join(held.lacks(each))}" for each in asked)
    script = f"sqlqueue script --engine {connection.dialect.name} --grants {shell_word(held.user)}"
    named = connection.dialect.address(queue.table.table)
    raise Wrong(
        f"The user {held.user!r} may not {' or '.join(doing[each] for each in asked)} ({lacking}); "
        f"have an administrator run what this prints: {script} --role {asked[0]} "
        f"{for_shell(named)}{' (or sender)' if role is None else ''}"
    )


def _lent(queue: Queue) -> str:
    """Say what code of others a login lends its power to, and how much power that is."""
    power = rights.power(queue.connection, queue.table)
    code = queue_table.passed_over(queue.connection, queue.table.table)
    said = f"; it {power}, as no job's login should (docs/rights.md)" if power else ""
    return f"{said}; note of {queue.name}: {code}" if code else said


def _network(wanted: list[Host]) -> str:
    if not wanted:
        raise Open(
            "not tried: the url names no host and port (but a local socket, a data source or a named "
            "instance)"
        )
    failed = []
    for host, port in wanted:
        began = time.monotonic()
        try:
            socket.create_connection((host, port), timeout=_SECONDS_TO_ANSWER).close()
        except (OSError, UnicodeError, OverflowError) as error:  # the last two: an odd name, an odd port
            failed.append(f"{host}:{port} ({getattr(error, 'strerror', None) or error})")
        else:
            return f"{host}:{port} answers in {(time.monotonic() - began) * 1000:.0f} ms"
    raise Wrong(
        f"No server answers at {' or '.join(failed)}; check host and port, that the server runs, and that no "
        "firewall is in between."
    )


def _rest(first: str, why: str) -> Iterator[Check]:
    for name in STEPS[STEPS.index(first) :]:
        yield Check(name=name, state=State.OPEN, said=f"not tried: {why}")
