"""The options that lead to a database, and the question for a password that is lacking."""

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from sqlqueue_spark.administration.completion import CONNECTION, connection_given
from sqlqueue_spark.administration.passwords_in_commands import checked
from sqlqueue_spark.cli.parameters import Command, debug, naming, option, place, schema, some_text, together
from sqlqueue_spark.errors import NoPassword
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import is_terminal, plain


def _kept(name: str, help_: str, **more: Any) -> Callable[[Command], Command]:
    """Return an option of this name that may also be kept in the environment."""
    variable = f"SQLQUEUE_{name.upper()}"
    return click.option(f"--{name}", envvar=variable, show_envvar=True, callback=checked, help=help_, **more)


def _connected(names: Callable[[Command], Command], *, required: bool = True) -> Callable[[Command], Command]:
    """Add the options that lead to a database. The command gets them as ``options``: None without a url."""
    options = together(
        _kept(
            "url", "postgresql://…; for SQL Server mssql://… or an ODBC connection string.", required=required
        ),
        option("--user NAME", some_text, "Login, kept out of the url."),
        option(
            "--access-token-provider NAME",
            None,
            "Where a Microsoft Entra token comes from: module:function or azure-identity.",
        ),
        _kept("password", "Password; better in the environment than here."),
        debug,
        names,
    )

    def connected(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**given: Any) -> Any:
            told = connection_given(given)
            others = {name: value for name, value in given.items() if name not in CONNECTION}
            if "url" not in told:
                return command(options=None, **others)
            parsed = ConnectionOptions.parse(told)
            try:
                return command(options=parsed, **others)
            except NoPassword:  # raised by the first connection, before anything was done
                if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):  # there is no user to ask
                    raise
            who = f" of {parsed.user}" if parsed.user else ""
            password = click.prompt(plain(f"Password{who}{place(parsed)}"), hide_input=True, err=True)
            return command(options=replace(parsed, password=password), **others)

        return options(with_options)

    return connected


connected = _connected(naming)
#: For commands that follow addresses out of messages.
connected_to_follow = _connected(
    together(
        naming,
        option(
            "--allowed-destinations PATTERN,…",
            some_text,
            "Only to these tables may an address out of a message lead; +PATTERN: to these also.",
        ),
    )
)
perhaps_connected = _connected(naming, required=False)
connected_to_outbox = _connected(schema)
