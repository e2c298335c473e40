"""Names of queues and endpoints for a shell to complete, read from the database.

The url comes from the command line or from the environment. The shell waits for the answer, so it comes
within a second or is empty. Errors are not shown.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from threading import Thread
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.fields import camel

_SECONDS = 1.0
#: Names without characters that a shell interprets. A shell inserts names as they are, so others are left
#: out.
_PLAIN = re.compile(r"\w[\w.-]*(?:@\w[\w.-]*)?")
_BY_NAME = ("url", "user", "password", "access_token_provider", "default_schema", "legacy_addresses")


def queue_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the queues whose addresses begin with this text. Does not ask for a password."""
    return _beginning(incomplete, ctx, _queues)


def endpoint_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the endpoints whose names begin with this text, taken from the names of their outbox tables."""
    return _beginning(incomplete, ctx, _endpoints)


def _beginning(
    incomplete: str, ctx: click.Context, names: Callable[[_Tables], Iterable[str]]
) -> list[CompletionItem]:
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(Exception):
            given = {camel(name): ctx.params.get(name) for name in _BY_NAME}
            told = {name: str(value) for name, value in given.items() if value not in (None, False)}
            options = ConnectionOptions.parse({**told, "lockTimeout": "1s", "commandTimeout": "1s"})
            found.extend(sorted(filter(_PLAIN.fullmatch, names(_tables(options)))))

    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(_SECONDS)
    return [CompletionItem(name) for name in [*found] if name.startswith(incomplete)]


class _Tables(NamedTuple):
    """The queue and outbox tables of a database, and what is needed to shorten their names."""

    queues: list[Table]
    outboxes: list[Table]
    default_schema: str
    outbox_suffix: str


def _tables(options: ConnectionOptions) -> _Tables:
    # Imported here, because completing the name of an option must not wait for the drivers.
    from sqlqueue_spark.engines.connect import Target, connect
    from sqlqueue_spark.tables import database_tables

    with contextlib.closing(connect(Target.of(options), again=True)) as connection:
        dialect = connection.dialect
        found = database_tables.find(connection)
    queues, outboxes = (
        [each.table.table for each in found if each.kind == kind]
        for kind in (database_tables.QUEUE, database_tables.OUTBOX)
    )
    return _Tables(queues, outboxes, options.naming(dialect).default_schema, f"_{dialect.outbox_suffix}")


def _queues(tables: _Tables) -> Iterator[str]:
    for each in tables.queues:
        if "@" not in each.table:
            yield each.table if each.schema == tables.default_schema else f"{each.table}@{each.schema}"


def _endpoints(tables: _Tables) -> Iterator[str]:
    for each in tables.outboxes:
        if each.schema == tables.default_schema and each.table.endswith(tables.outbox_suffix):
            yield each.table.removesuffix(tables.outbox_suffix)
