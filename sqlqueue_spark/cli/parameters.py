"""The arguments and options that several commands share, those that lead to a database too, and questions."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click

from sqlqueue_spark.administration.completion import CONNECTION, connection_given, endpoint_names, queue_names
from sqlqueue_spark.administration.passwords_in_commands import asking_for_password, checked
from sqlqueue_spark.cli import output
from sqlqueue_spark.cli.exit_codes import DEBUG
from sqlqueue_spark.engines.hosts import hosts
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Address
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.fields import duration
from sqlqueue_spark.plain_text import holds_password, is_url, plain
from sqlqueue_spark.tables.ddl import CLASSIC, SHAPES
from sqlqueue_spark.tables.rights import RECEIVER, SENDER

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def some_text(value: str) -> str:
    if not value.strip():
        raise click.BadParameter("it is empty; leave it out, or say something.")
    if holds_password(value):  # it would stand in what the command says
        raise click.BadParameter("a url with a password stands there; give it as --url.")
    return value


def _no_url(what: str) -> Callable[[str], str]:
    """Return a parser of names. It refuses a url without repeating it, because it may hold a password."""

    def name(value: str) -> str:
        if is_url(value):
            raise click.BadParameter(f"a url stands where {what} is expected; give it as --url.")
        return some_text(value)

    return name


queue_address, endpoint_name = _no_url("a queue's name"), _no_url("an endpoint's name")
_COMPLETED = {queue_address: queue_names, endpoint_name: endpoint_names}


class Number(click.IntRange):
    name = "whole number; write one like 1000"  # behind "'abc' is not a valid"


def time_span(value: str) -> timedelta:
    try:
        return duration(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {error}.") from None


def wanted_header(value: str) -> tuple[str, str | None]:
    """Parse a header to filter by. Without a value any value fits."""
    name, equals, text = value.partition("=")
    if not name:
        raise click.BadParameter(f"{value!r} is no header; write NAME or NAME=VALUE.")
    return name, text if equals else None


@contextmanager
def words() -> Iterator[None]:
    """What is wrong in this block shows in the words of the command alone: wrong usage, not a refusal."""
    try:
        yield
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


def place(options: ConnectionOptions) -> str:
    """Return host and port of a database for a question; empty if the url does not tell them."""
    return "".join(f" at {host}:{port}" for host, port in hosts(options.url)[:1])


def confirmed(question: str, answer: str, otherwise: str) -> None:
    """Have a deletion confirmed by a typed name; ``otherwise`` ends the error: what was not done."""
    try:
        given = click.prompt(plain(question), err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        output.say(err=True)  # behind the question
        raise click.ClickException(
            f"No answer came, so {otherwise}; where the command cannot ask, add --yes."
        ) from error
    if given != answer:
        raise click.ClickException(plain(f"That is not {answer!r}, so {otherwise}."))


def together(*parts: Decorator) -> Decorator:
    """Combine several arguments and options into one decorator. The help lists them in this order."""
    return lambda command: functools.reduce(lambda made, part: part(made), reversed(parts), command)


#: What reads a value, by the word for it; any other word stands for a text.
_READERS = {"DURATION": time_span, "N": Number(1), "QUEUE": queue_address}


def option(flag: str, help_: str, type_: Any = None, *, name: str | None = None, **more: Any) -> Decorator:
    """Return an option with a value.

    :param flag: the option as it is typed, with a word for its value: ``--older-than DURATION``.
    :param type_: reads the value; by default the word tells.
    :param name: the command's parameter, if it has another name.
    """
    typed, _, metavar = flag.partition(" ")
    type_ = type_ or _READERS.get(metavar, some_text)
    names = (typed,) if name is None else (typed, name)
    complete = _COMPLETED.get(type_)
    return click.option(*names, type=type_, metavar=metavar, help=help_, shell_complete=complete, **more)


def repeated(flag: str, help_: str, type_: Any = None, **more: Any) -> Decorator:
    """Return an option as :func:`option` that may be repeated. The command's parameter has its plural."""
    name = flag.partition(" ")[0].strip("-").replace("-", "_")
    return option(flag, f"{help_} May be repeated.", type_, name=f"{name}s", multiple=True, **more)


def argument(name: str, metavar: str, type_: Any = queue_address, **more: Any) -> Decorator:
    """Return an argument; ``type_`` as for :func:`option`."""
    return click.argument(name, metavar=metavar, type=type_, shell_complete=_COMPLETED.get(type_), **more)


queues = argument("queues", "QUEUE...", nargs=-1, required=True)
queue = argument("queue", "QUEUE")
endpoint = argument("endpoint", "ENDPOINT", endpoint_name)
as_json = click.option("--json", "json_", is_flag=True, help="One JSON object a line.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")
debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, _, value: ctx.meta.update({DEBUG: value}),
    help="Show where an error came from.",
)
role = click.option(
    "--role",
    type=click.Choice((RECEIVER, SENDER)),
    help="The role of the login: a missing right of this role is a finding.",
)
schema = option("--schema NAME", "Schema of the table.", name="default_schema")
#: How addresses are read.
naming = together(
    option("--default-schema NAME", "Schema of queues that name none."),
    click.option("--legacy-addresses", is_flag=True, help="Ignore what follows the first @ of a name."),
)
also_created = together(
    option(
        "--instance X",
        "Also create the callback queue of this instance: Sales.X for the queue Sales.",
        name="instances",
        multiple=True,
    ),
    option(
        "--with NAME,…",
        "Also create these queues, for example error,audit.",
        lambda value: [name.strip() for name in value.split(",") if name.strip()],
        name="companions",
        default="",
    ),
    option("--stream NAME", "Also create the table NAME.Outgoing of this atomic pipeline."),
    click.option(
        "--subscriptions", is_flag=True, help="Also create the table SubscriptionRouting of the schema."
    ),
)


def engine(engines: Iterable[str]) -> Decorator:
    choice = click.Choice(sorted(engines))
    return click.option("--engine", required=True, type=choice, help="The engine of the script.")


shape = click.option(
    "--shape",
    type=click.Choice(SHAPES),
    default=CLASSIC,
    show_default=True,
    help="On SQL Server: with a clustered index, or the heap that the .NET installer makes since 2020.",
)


def _kept(name: str, help_: str, **more: Any) -> Decorator:
    """Return an option of this name that may also be kept in the environment."""
    variable = f"SQLQUEUE_{name.upper()}"
    return click.option(f"--{name}", envvar=variable, show_envvar=True, callback=checked, help=help_, **more)


def _connected(names: Decorator, *, required: bool = True) -> Decorator:
    """Add the options that lead to a database. The command gets them as ``options``: None without a url."""
    options = together(
        _kept(
            "url", "postgresql://…; for SQL Server mssql://… or an ODBC connection string.", required=required
        ),
        option("--user NAME", "Login, kept out of the url."),
        option(
            "--access-token-provider NAME",
            "Where a Microsoft Entra token comes from: module:function or azure-identity.",
            str,
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
            with words():
                for queue in (*given.get("queues", ()), *filter(None, [given.get("queue")])):
                    Address.parse(queue, legacy=parsed.legacy_addresses, quoted=True)
            return asking_for_password(parsed, lambda its: command(options=its, **others), place)

        return options(with_options)

    return connected


connected = _connected(naming)
#: For commands that use queues, or follow addresses out of messages.
_of_queues = together(
    naming,
    option(
        "--allowed-destinations PATTERN,…",
        "Only to these tables may an address out of a message lead, whatever code they have; +PATTERN: to "
        "these also.",
    ),
)
connected_to_queues = _connected(_of_queues)
perhaps_connected = _connected(_of_queues, required=False)
connected_to_outbox = _connected(schema)
