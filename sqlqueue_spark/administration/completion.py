"""Names of queues and endpoints for a shell to complete, read from the database.

The url comes from the command line or from the environment. The shell waits for the answer, so it comes
within a second or is empty. Errors are not shown.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from threading import Thread
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.fields import camel

_SECONDS = 1.0
#: Names without characters that a shell interprets. A shell inserts names as they are, so others are left
#: out.
_PLAIN = re.compile(r"\w[\w.-]*(?:@\w[\w.-]*)?")
#: The parameters that lead to a database. The options of the same names are in camelCase.
CONNECTION = (
    "url",
    "user",
    "password",
    "access_token_provider",
    "default_schema",
    "legacy_addresses",
    "allowed_destinations",
)


def queue_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the queues whose addresses begin with this text. Does not ask for a password."""
    return _beginning(incomplete, ctx, lambda tables: tables.queues)


def endpoint_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the endpoints whose names begin with this text, taken from the names of their outbox tables."""
    return _beginning(incomplete, ctx, lambda tables: tables.endpoints)


class _Tables(NamedTuple):
    """What the tables of a database are named after: the addresses of its queues, and its endpoints."""

    queues: list[str]
    endpoints: list[str]


def _beginning(
    incomplete: str, ctx: click.Context, names: Callable[[_Tables], list[str]]
) -> list[CompletionItem]:
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(Exception):
            given = {camel(name): ctx.params.get(name) for name in CONNECTION}
            told = {name: str(value) for name, value in given.items() if value not in (None, False)}
            options = ConnectionOptions.parse({**told, "lockTimeout": "1s", "commandTimeout": "1s"})
            found.extend(sorted(filter(_PLAIN.fullmatch, names(_tables(options)))))

    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(_SECONDS)
    return [CompletionItem(name) for name in [*found] if name.startswith(incomplete)]


def _tables(options: ConnectionOptions) -> _Tables:
    # Imported here, because completing the name of an option must not wait for the drivers.
    from sqlqueue_spark.engines.connect import Target, connect
    from sqlqueue_spark.tables import database_tables

    with contextlib.closing(connect(Target.of(options), again=True)) as connection:
        there = [(each.kind, each.table.table) for each in database_tables.find(connection)]
    schema = options.naming(connection.dialect).default_schema
    suffix = f"_{connection.dialect.outbox_suffix}"
    queues = [
        each.table if each.schema == schema else f"{each.table}@{each.schema}"
        for kind, each in there
        if kind == database_tables.QUEUE and "@" not in each.table
    ]
    endpoints = [
        each.table.removesuffix(suffix)
        for kind, each in there
        if kind == database_tables.OUTBOX and each.schema == schema and each.table.endswith(suffix)
    ]
    return _Tables(queues, endpoints)
