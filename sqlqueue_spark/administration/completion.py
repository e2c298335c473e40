"""Names of queues and endpoints for a shell to complete, read from the database.

The url comes from the command line or from the environment. The shell waits for the answer, so it comes
within a second or is empty. Errors are not shown.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from threading import Thread
from typing import Any

import click
from click.shell_completion import CompletionItem

from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.fields import camel

_SECONDS = 1.0
#: Names without characters that a shell interprets: it inserts them as they are. Others are left out.
_PLAIN = re.compile(r"\w[\w.-]*(?:@\w[\w.-]*)?")
#: The parameters that lead to a database. The options of the same names are in camelCase.
CONNECTION = tuple(each.name for each in fields(ConnectionOptions))


def connection_given(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that lead to a database, of those of a command."""
    return {camel(name): params[name] for name in CONNECTION if params.get(name) is not None}


def _beginning(
    ctx: click.Context, _: click.Parameter, incomplete: str, *, endpoints: bool
) -> list[CompletionItem]:
    """Return the names that begin with this text. Does not ask for a password."""
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(Exception):
            timeouts = {"lockTimeout": "1s", "commandTimeout": "1s"}
            options = ConnectionOptions.parse(connection_given(ctx.params) | timeouts)
            found.extend(sorted(filter(_PLAIN.fullmatch, _names(options, endpoints=endpoints))))

    looking = Thread(target=look, daemon=True)
    looking.start()
    looking.join(_SECONDS)
    return [CompletionItem(name) for name in [*found] if name.startswith(incomplete)]


#: Complete the address of a queue, and the name of an endpoint, which that of its outbox table tells.
queue_names = partial(_beginning, endpoints=False)
endpoint_names = partial(_beginning, endpoints=True)


def _names(options: ConnectionOptions, *, endpoints: bool) -> list[str]:
    # Imported here, because completing the name of an option must not wait for the drivers.
    from sqlqueue_spark.engines.open_connection import Target, connect
    from sqlqueue_spark.tables import table_kinds

    kind = table_kinds.OUTBOX if endpoints else table_kinds.QUEUE
    with contextlib.closing(connect(Target.of(options), again=True)) as connection:
        there = [each.table for each in table_kinds.find(connection) if each.kind == kind]
    schema = options.naming(connection.dialect).default_schema
    if not endpoints:
        tables = [each for each in there if "@" not in each.table]
        return [each.table if each.schema == schema else f"{each.table}@{each.schema}" for each in tables]
    own = [each.table for each in there if each.schema == schema]
    suffix = f"_{connection.dialect.outbox_suffix}"
    return [name.removesuffix(suffix) for name in own if name.endswith(suffix)]
