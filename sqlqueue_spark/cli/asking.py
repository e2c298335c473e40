"""Reads what people write on the command line: the arguments and options that several commands share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from sqlqueue_spark.engines.dialects import dialect_of
from sqlqueue_spark.errors import ConfigurationError, SqlQueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.fields import duration
from sqlqueue_spark.tables.rights import RECEIVER, SENDER

_DEBUG = "sqlqueue_spark.debug"

Command = Callable[..., Any]


class Door(click.Group):
    """A group of commands; it answers a refused request with one sentence on stderr and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SqlQueueError as error:
            if ctx.meta.get(_DEBUG):
                raise
            raise click.ClickException(str(error)) from error


def queue_address(value: str) -> str:
    """A queue's address. A url in its place is refused, and not repeated in the error, because it may hold a secret."""
    try:
        dialect_of(value)
    except ConfigurationError:
        return value
    raise click.BadParameter("a url stands where a queue's name is expected; give it as --url.")


def endpoint_name(value: str) -> str:
    """An endpoint's name. A url in its place is refused as :func:`queue_address` does it."""
    try:
        dialect_of(value)
    except ConfigurationError:
        return value
    raise click.BadParameter("a url stands where an endpoint's name is expected; give it as --url.")


def time_span(value: str) -> timedelta:
    try:
        return duration(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no duration such as 500ms, 30s, 10m or 7d.") from None


def header(value: str) -> tuple[str, str]:
    name, equals, text = value.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{value!r} is no header; write NAME=VALUE.")
    return name, text


def body(value: str) -> bytes:
    """The text itself as a body, or the content of ``@file``; ``@-`` is standard input."""
    if not value.startswith("@"):
        return value.encode()
    try:
        return sys.stdin.buffer.read() if value == "@-" else Path(value[1:]).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{value[1:]!r} cannot be read: {error.strerror}.") from None


def queues(command: Command) -> Command:
    """Add the argument ``QUEUE...``."""
    argument = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True, type=queue_address)
    return argument(command)


def endpoint(command: Command) -> Command:
    """Add the argument ``ENDPOINT``."""
    return click.argument("endpoint", metavar="ENDPOINT", type=endpoint_name)(command)


def naming(command: Command) -> Command:
    """Add the options that say how addresses become tables."""
    schema = click.option("--default-schema", help="Schema of queues that name none.", metavar="NAME")
    legacy = click.option(
        "--legacy-addresses", is_flag=True, help="Ignore what follows the first @ of a name."
    )
    return schema(legacy(command))


def schema(command: Command) -> Command:
    """Add the option that says where an outbox table lies."""
    option = click.option("--schema", "default_schema", help="Schema of the outbox table.", metavar="NAME")
    return option(command)


def connected(command: Command) -> Command:
    """Add the options that lead to a database and its queues; the command gets them as ``options``."""
    return _connected(command, naming)


def perhaps_connected(command: Command) -> Command:
    """Add the same options where a url may be left out; then the command gets None as ``options``."""
    return _connected(command, naming, required=False)


def connected_to_outbox(command: Command) -> Command:
    """Add the options that lead to an outbox table; the command gets them as ``options``."""
    return _connected(command, schema)


def _connected(command: Command, names: Callable[[Command], Command], *, required: bool = True) -> Command:
    @functools.wraps(command)
    def with_options(
        *,
        url: str | None,
        user: str | None,
        password: str | None,
        access_token_provider: str | None,
        default_schema: str | None,
        legacy_addresses: bool = False,
        **others: Any,
    ) -> Any:
        if url is None:
            return command(options=None, **others)
        given = {
            "url": url,
            "user": user,
            "password": password,
            "accessTokenProvider": access_token_provider,
            "defaultSchema": default_schema,
            "legacyAddresses": "true" if legacy_addresses else None,
        }
        parsed = ConnectionOptions.parse({name: value for name, value in given.items() if value is not None})
        return command(options=parsed, **others)

    wrapped: Command = debug(names(with_options))
    for option in (
        click.option(
            "--password",
            envvar="SQLQUEUE_PASSWORD",
            show_envvar=True,
            help="Password; better in the environment than here.",
        ),
        click.option(
            "--access-token-provider",
            metavar="NAME",
            help="Where a Microsoft Entra token comes from: module:function or azure-identity.",
        ),
        click.option("--user", help="Login, kept out of the url.", metavar="NAME"),
        click.option(
            "--url",
            required=required,
            envvar="SQLQUEUE_URL",
            show_envvar=True,
            help="postgresql://…; for SQL Server mssql://… or an ODBC connection string.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped


def debug(command: Command) -> Command:
    """Add the flag ``--debug``."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_DEBUG] = value

    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=remember, help="Show where an error came from."
    )(command)


def role(command: Command) -> Command:
    """Add the option ``--role``."""
    return click.option(
        "--role",
        type=click.Choice((RECEIVER, SENDER)),
        help="What the login is for: it is wrong that it lacks one of this role's rights.",
    )(command)


def also_created(command: Command) -> Command:
    """Add the options ``--instance``, ``--with`` and ``--stream``."""
    instance = click.option(
        "--instance",
        "instances",
        multiple=True,
        metavar="X",
        help="Also the callback queue of this instance: Sales.X for the queue Sales.",
    )
    companions = click.option(
        "--with",
        "companions",
        metavar="NAME,…",
        default="",
        help="Also these queues, such as error,audit.",
    )
    stream = click.option(
        "--stream", metavar="NAME", help="Also the table NAME.Outgoing of this atomic pipeline."
    )
    return instance(companions(stream(command)))
