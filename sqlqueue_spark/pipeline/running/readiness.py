"""Looks, before Spark starts, for what a job needs on this machine and in its databases.

Spark takes half a minute to its first batch. What is missing is known in a second, and created on request.
"""

import contextlib
import json
import os
import pwd
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from sqlqueue_spark.administration import event_subscriptions
from sqlqueue_spark.engines.open_connection import Connected, Connection, Target, connect, one_each
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, QueueError, TryAgain
from sqlqueue_spark.inspection.doctor.checks import Check
from sqlqueue_spark.inspection.doctor.database_checks import checks
from sqlqueue_spark.inspection.doctor.machine_checks import java
from sqlqueue_spark.messages.addresses import of_endpoint
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.running.delta_lake import fetches_delta
from sqlqueue_spark.pipeline.running.session import is_ours, missing_settings, runs
from sqlqueue_spark.pipeline.running.settings_files import settings_in, users_folder
from sqlqueue_spark.plain_text import logger, plain
from sqlqueue_spark.receive.claiming.checkpoint_owner import check_belongs
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool
from sqlqueue_spark.receive.claiming.queue_list import opened, tables_of
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.receive.reading.peek import check_visible
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import check_named
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.tables import ddl, delayed, queues, rights, table_kinds
from sqlqueue_spark.tables.base_table import BaseTable
from sqlqueue_spark.tables.database_facts import are_one
from sqlqueue_spark.tables.ddl import QueueItself
from sqlqueue_spark.tables.delayed import DelayedTable
from sqlqueue_spark.tables.outbox import OutboxTable
from sqlqueue_spark.tables.queues import Queue
from sqlqueue_spark.tables.rights import RECEIVER, SENDER
from sqlqueue_spark.tables.subscriptions import SubscriptionTable, table_of

log = logger(__name__)


def make_ready(
    source: SourceOptions,
    sink: Places | None = None,
    *,
    create: bool,
    retries: bool = False,
    events: Sequence[str] = (),
    outboxes: Iterable[SinkOptions] = (),
    checkpoint: str | None,
) -> None:
    """Check that what a job needs is in its databases. Errors and ``retries`` as for :func:`check_ready`.

    :param create: create what is missing first, with ``outboxes`` as below, and print a line for each.
    :param events: types of events to which the queue is then subscribed; a line is printed for each.
    :param checkpoint: the folder of the job's stream; None where the job only looks at the queue.
    """
    if create:
        with contextlib.suppress(QueueError):  # a queue that is missing is about to be created
            check_checkpoint(source, checkpoint)
        create_missing(source, sink, retries=retries, events=events, outboxes=outboxes, told=tell)
    if checkpoint is None:
        check_visible(source)
    else:
        check_ready(source, sink, retries=retries)
        check_checkpoint(source, checkpoint)
    if sink is not None:
        for line in subscribe(source, sink.home, events, create=create):
            tell(line)


def check_subscriber(source: SourceOptions, events: Sequence[str]) -> None:
    """:raises ConfigurationError: there are events, and not one queue that they could come to."""
    if events and source.queue is None:
        raise ConfigurationError(
            "Events come to one queue, and the source has several; subscribe each with sqlqueue subscribe."
        )


def subscribe(source: SourceOptions, sink: SinkOptions, events: Sequence[str], *, create: bool) -> list[str]:
    """Subscribe the source's queue to these types too, under the sink's name; returns a line for each.

    :raises QueueError: there is no such queue, or no such table.
    """
    check_subscriber(source, events)
    if not events:
        return []
    changes = event_subscriptions.subscribe(source, source.one_queue, events, sink.sender, create=create)
    return [
        f"subscribed event={each.topic} endpoint={each.endpoint} queue={each.address}" for each, *_ in changes
    ]


def tell(line: str) -> None:
    click.echo(plain(line))


def check_checkpoint(source: SourceOptions, folder: str | None) -> None:
    """:raises ConfigurationError: the folder lies on this machine, and has a checkpoint of another queue."""
    end = None if folder is None else _newest_end(Path(folder.removeprefix("file:")))
    if end is None:
        return
    with contextlib.closing(ConnectionPool(source, None)) as pool, pool.transaction() as session:
        try:
            check_belongs(end, session, source)
        except ConfigurationError as error:
            raise ConfigurationError(f"{error} The folder of the checkpoint is {folder!r}.") from error


def _newest_end(checkpoint: Path) -> Offset | None:
    """Where the newest batch of a checkpoint ends; None where it is not known to have one of a queue alone.

    A file of ``offsets`` has two lines, of its version and of the query's settings, and one for each source
    (org.apache.spark.sql.execution.streaming.OffsetSeqLog).
    """
    try:
        newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name), default=None)
        _, _, end = [] if newest is None else newest.read_text(encoding="utf-8").splitlines()
        return Offset.if_ours(json.loads(end))
    except (OSError, ValueError):
        return None


def check_ready(
    source: SourceOptions, sink: SinkOptions | Places | None = None, *, retries: bool = False
) -> None:
    """Check that the queues and the outbox of the options are there, and that the login may use them.

    This changes nothing, and waits for no lock. A destination that only the messages name is not known yet.

    :param retries: whether failed messages wait in a table of their queue. One of a pattern may lack it.
    :raises QueueError: something is missing or may not be used; the text says what, and the remedy.
    """
    sink = _places(sink)
    with one_each() as connected:
        own = connected(Target.of(source))
        naming = source.naming(own.dialect)
        with own.transaction():
            received = _received_from(own, source)
            if source.error_queue is not None:
                rights.check(own, queues.get(own, source.error_queue, naming).table, SENDER)
            for queue in received if retries else ():
                try:
                    delayed.get(own, queue.table.table)
                except QueueError as error:
                    if source.queue_pattern is None:
                        raise
                    log.warning(
                        "no_delayed_table queue=%s: what fails goes to error at once: %s", queue.name, error
                    )
            if sink is not None and sink.home.delayed_endpoint is not None:
                delayed.get(own, sink.sends_later(sink.at_home).table)
        if sink is not None:
            _check_sink(sink, connected, own, {each.table.name for each in received})


def check_may_receive(source: SourceOptions) -> None:
    """Refuse a login that may not receive, before a query starts. A database that is down is no error yet.

    :raises QueueError: the login lacks a right; the text says which, and who grants it.
    """
    target = replace(Target.of(source), hasty=True)
    with contextlib.suppress(TryAgain), connect(target) as own, own.transaction():
        _received_from(own, source)


def create_missing(
    source: SourceOptions,
    sink: SinkOptions | Places | None = None,
    *,
    retries: bool = False,
    events: Sequence[str] = (),
    outboxes: Iterable[SinkOptions] = (),
    told: Callable[[str], object] = id,
) -> list[str]:
    """Create the missing tables of the options; returns a line for each. ``retries`` and ``events`` as above.

    It begins when each database has answered, and no name and no table that is there was found wrong.

    :param outboxes: sinks of other databases that are to have an outbox, unless their database is down.
    :param told: is called with each line when its table is there.
    """
    sink = _places(sink)
    with one_each() as connected:
        if sink is not None:
            sink.check_reach()
            connected(Target.of(sink.away))  # to the others lead the tables that are wanted there
            check_logins(sink)
        reached = []
        for each in outboxes:
            try:
                reached.append(OutboxTable.of_sink(connected(Target.of(each)), each))
            except ConnectionLost as error:
                log.warning("not_created outbox=%s: %s", each.sender, error)

        def wanted() -> Iterator[BaseTable]:
            yield from _tables_to_receive(source, connected, retries=retries, events=events)
            yield from () if sink is None else _tables_to_send(sink, connected)
            yield from reached

        for new in wanted():
            with new.connection.transaction():
                there = not ddl.is_missing(new)
            if there and isinstance(new, OutboxTable):
                new.check()  # to write into it is not tried: another database may be down in that sense
        lines = []
        for new in wanted():  # a pattern may match what was just created
            if (made := ddl.create(new)).new:
                lines.append(f"created {new.kind}={made.table}")
                told(lines[-1])
    return lines


def _received_from(own: Connection, source: SourceOptions) -> list[Queue]:
    """The queues of a source, from all of which the login may receive, in the open transaction."""
    found = opened(own, source)
    for queue in found:
        rights.check(own, queue.table, RECEIVER)
    return found


def check_logins(sink: Places) -> None:
    """:raises ConfigurationError: a database refuses the login. One that is down may come back."""
    for target in sink.everywhere():
        with contextlib.suppress(TryAgain), connect(replace(target, hasty=True)):
            pass


def _tables_to_receive(
    source: SourceOptions, connected: Connected, *, retries: bool, events: Sequence[str]
) -> Iterator[BaseTable]:
    own = connected(Target.of(source))
    naming = source.naming(own.dialect)
    # A pattern names no queue that could be missing.
    named = source.queues if source.queue is None else (source.queue,)
    for address in filter(None, (*named, source.error_queue)):
        yield QueueItself(own, naming.table(address))
    if retries:
        with own.transaction():
            owners = tables_of(own, source)
        for owner in owners:
            yield DelayedTable(own, delayed.table_of(owner))
    if events:
        yield SubscriptionTable(own, table_of(naming.default_schema))


def _tables_to_send(sink: Places, connected: Connected) -> Iterator[BaseTable]:
    if sink.home.delayed_endpoint is not None:
        later = sink.sends_later(sink.at_home)
        yield DelayedTable(connected(later.target), delayed.table_of(later.table))
    if sink.away.publish:
        there = Target.of(sink.away)
        yield SubscriptionTable(connected(there), table_of(sink.away.naming(there.dialect).default_schema))
    for _, place in sink.named:
        yield QueueItself(connected(place.target), place.table)
    if sink.home.uses_outbox:
        # What fails, waits or is owed is known at home.
        for target in dict.fromkeys([sink.at_home, *(place.target for _, place in sink.named)]):
            yield OutboxTable.of_sink(connected(target), sink.at(target))


def _places(sink: SinkOptions | Places | None) -> Places | None:
    """Where a sink sends to whose rows are received in its own database."""
    return Places(sink, sink) if isinstance(sink, SinkOptions) else sink


def _check_sink(sink: Places, connected: Connected, own: Connection, received: Collection[str]) -> None:
    routes = Routes(Destinations(sink.home, sink.away), connected)
    check_named(routes, received=True)
    for address, place in sink.named:
        if sink.is_stored(place) or address == sink.home.store_and_forward:
            continue
        found = routes.at(place)
        if found.table.name in received and are_one(own, connected(found.target)):
            raise ConfigurationError(
                f"By another url the queue {address!r} of the sink is one of the source, {found.table.name}: "
                "what goes there would go round for ever, or be dropped as sent before; name another queue."
            )


def of_others(places: Places) -> Iterator[Check]:
    """Check each other database of a job: may it send there, to the queues that its options name?"""
    for target in places.everywhere()[1:]:
        for check in checks(places.at(target), None, SENDER, partial(_named, places, target)):
            yield replace(check, said=f"{places.option_of(target)}: {check.said}")


def _named(places: Places, target: Target, connection: Connection) -> Iterable[str]:
    """The queues of a database that options name: ``endpoint.<name>.url`` does so in any letters."""
    urls, naming = places.away.endpoint_urls, places.at(target).naming(target.dialect)
    queues = {name: name for name, url in urls.items() if url == target.url and not name.endswith("*")}
    for table in (each.table for each in table_kinds.find(connection) if each.kind == table_kinds.QUEUE):
        name = table.table  # by itself it means no table of another schema
        if "@" not in name and naming.table(name) == table and of_endpoint(urls, name) == target.url:
            queues[name.lower()] = name
    named = [place.table for _, place in places.named if place.target == target]
    return (queues | {each.table.lower(): str(each) for each in named}).values()


def check_machine(*, delta: bool = True, folders: Mapping[str, str] | None = None) -> None:
    """Look whether this machine has what Spark needs, where this process starts it.

    :param folders: those into which a job writes, by their options.
    :raises SqlQueueError: Java or Delta Lake's package is missing, or a folder cannot be written.
    """
    try:
        os.getcwd()  # noqa: PTH109 -- Java needs one too
    except OSError as error:
        raise ConfigurationError(
            f"The working folder cannot be used ({error.strerror}); change into another one."
        ) from error
    for name, path in (folders or {}).items():
        if path.startswith("file:") or (_files_are_local() and ":" not in path):
            check_folder(f"The option {name}", path)
    if not runs():
        java()
    if delta and is_ours():
        theirs = settings_in(users_folder())
        if fetches_delta(missing_settings(theirs, delta=True), theirs):
            # That of Java's user.home, which does not follow HOME.
            with contextlib.suppress(KeyError):
                jars = theirs.get("spark.jars.ivy") or f"{pwd.getpwuid(os.getuid()).pw_dir}/.ivy2.5.2"
                check_folder("Spark's setting spark.jars.ivy", jars)


def check_folder(name: str, path: str) -> None:
    """Refuse a folder of this machine that cannot be made or written. It is tried, and nothing is left.

    :raises ConfigurationError: a file is in its place or on the way there, or the system refuses.
    """
    folder = Path(path.removeprefix("file:")).absolute()
    # It is False for what this user may not see, where Path.exists() fails.
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))  # noqa: PTH110
    if not there.is_dir():
        raise ConfigurationError(f"{name} is {path!r}, and {there} is a file; name a folder.")
    try:  # under another name: a job that starts beside this one may be making the folder
        with tempfile.TemporaryDirectory(prefix=".sqlqueue-", dir=there) as tried:
            (Path(tried) / folder.relative_to(there)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{name} is {path!r}, and this user cannot write into {there} ({error.strerror}); name another "
            "folder, or have that allowed."
        ) from error


def check_file(name: str, path: str) -> None:
    """Refuse a file of this machine that cannot be made; arguments and errors as :func:`check_folder`."""
    if Path(path).is_dir():
        raise ConfigurationError(f"{name} is {path!r}, which is a folder; name a file.")
    check_folder(f"{name} is {path!r}; its folder", str(Path(path).parent))


def _files_are_local() -> bool:
    """Whether a path without a scheme surely means a file of this machine."""
    folder, theirs = users_folder(), settings_in(users_folder())
    elsewhere = (
        not theirs.get("spark.master", "local").startswith("local"),
        "spark.hadoop.fs.defaultFS" in theirs,
        "HADOOP_CONF_DIR" in os.environ,
        *((folder / each).exists() for each in ("core-site.xml", "spark-env.sh")),
    )
    return is_ours() and not any(elsewhere)
