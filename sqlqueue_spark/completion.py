"""The names of queues that a shell completes, from the database to which the rest of the line, or the environment, leads.

A shell waits for them: so they come within a second or not at all, and whatever goes wrong is not said.
"""

from __future__ import annotations

import contextlib
import re
from threading import Thread

import click
from click.shell_completion import CompletionItem

from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.fields import camel

_SECONDS = 1.0
#: Names that mean themselves in every shell. A shell inserts a name as it is, and would run what a hostile one holds.
_PLAIN = re.compile(r"\w[\w.-]*(?:@\w[\w.-]*)?")
_BY_NAME = ("url", "user", "password", "access_token_provider", "default_schema", "legacy_addresses")


def queue_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The queues whose addresses begin so. Nobody is asked for a password."""
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(Exception):
            given = {camel(name): ctx.params.get(name) for name in _BY_NAME}
            told = {name: str(value) for name, value in given.items() if value not in (None, False)}
            found.extend(
                _names(ConnectionOptions.parse({**told, "lockTimeout": "1s", "commandTimeout": "1s"}))
            )

    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(_SECONDS)
    return [CompletionItem(name) for name in [*found] if name.startswith(incomplete)]


def _names(options: ConnectionOptions) -> list[str]:
    # Imported here, and not while a person waits for the name of an option.
    from sqlqueue_spark.engines.connections import Target, connect
    from sqlqueue_spark.tables import database_tables

    with contextlib.closing(connect(Target.of(options), again=True)) as connection:
        default = options.naming(connection.dialect).default_schema
        tables = [each.table.table for each in database_tables.find(connection) if each.kind == database_tables.QUEUE]  # fmt: skip
    addresses = (
        each.table if each.schema == default else f"{each.table}@{each.schema}"
        for each in tables
        if "@" not in each.table
    )
    return sorted(address for address in addresses if _PLAIN.fullmatch(address))
