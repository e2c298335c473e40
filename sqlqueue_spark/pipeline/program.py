"""What the jobs share as programs: a TOML file, a command line that wins over it, errors as one sentence."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships neither
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from sqlqueue_spark.administration.completion import endpoint_names, queue_names
from sqlqueue_spark.engines.hosts import same_server
from sqlqueue_spark.errors import ConfigurationError, SqlQueueError, sentence_of
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.readiness import check_ready, check_visible, create_missing
from sqlqueue_spark.pipeline.spark_defaults import CONF
from sqlqueue_spark.plain_text import holds_password, plain

Command = Callable[..., Any]

#: To these PySpark logs a query that it refuses, in JSON with a stack trace, before it raises the error that we show.
_LOGS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

#: The ends of the names of options that are passwords, in lower case.
_PASSWORDS = (".password", ".accesstoken")
_ON_THE_COMMAND_LINE = (
    "The password in {name} would stand in the list of processes and in Spark's event log, which keeps the whole command line; "
    "give it in the environment ({variable}) or in the file of --config."
)


def common_flags(name: str, *, checkpoint: str = "Folder of the checkpoint.") -> Callable[[Command], Command]:
    """The argument and the flags that every program takes.

    The command gets ``config``, ``settings``, ``create``, ``debug``, and one value for each other flag.

    :param name: the program's, after which its file in conf/ is called.
    :param checkpoint: what --help says of --checkpoint.
    """
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    flags = (
        click.argument("named", metavar="[QUEUE]", required=False, shell_complete=queue_names),
        click.option("--config", type=file, help="TOML file."),
        click.option("--example-config", is_flag=True, is_eager=True, expose_value=False, callback=_example(name), help="Print such a file to begin with, and end."),
        secret_flag("--url", "SQLQUEUE_URL", "Database of the queue; with a password in it only as SQLQUEUE_URL."),
        secret_flag("--password", "SQLQUEUE_PASSWORD", "Its password, given as SQLQUEUE_PASSWORD."),
        click.option("--queue", shell_complete=queue_names, help="Address of the queue table, if QUEUE does not say it."),
        click.option("--checkpoint", help=checkpoint),
        click.option("--available-now", is_flag=True, help="Take what is there now and end."),
        click.option("--create", is_flag=True, help="Create the queues and the outbox that are missing."),
        click.option("--set", "settings", multiple=True, callback=_check_settings, metavar="SECTION.KEY=VALUE", help="Any key of the configuration."),
        click.option("--debug", is_flag=True, help="Show the stack trace of an error."),
    )  # fmt: skip

    def added(command: Command) -> Command:
        @functools.wraps(command)
        def with_one_queue(*, named: str | None, queue: str | None, **given: Any) -> Any:
            if named is not None and queue not in (None, named):
                raise click.UsageError("QUEUE and --queue name two queues; give one of them.")
            return command(queue=queue if named is None else named, **given)

        flagged: Command = with_one_queue
        for flag in reversed(flags):
            flagged = flag(flagged)
        return flagged

    return added


def _example(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def show(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked:
            click.echo((CONF / f"{name}.toml").read_text(encoding="utf-8"), nl=False)
            ctx.exit()

    return show


def sending_flags(command: Command) -> Command:
    """Add the flags of a program that sends what it receives, in the database of its queue or atomically."""
    for flag in (
        click.option("--transaction-mode", help="receiveOnly, sendsAtomicWithReceive or none."),
        click.option("--stream", help="Name of this pipeline, for sendsAtomicWithReceive."),
        click.option(
            "--endpoint", shell_complete=endpoint_names, help="Name of the outbox, of this pipeline alone."
        ),
    ):
        command = flag(command)
    return command


def common_places(section: str) -> dict[str, tuple[str, ...]]:
    """The keys of the configuration that the flags of :func:`common_flags` stand for; ``section`` is the program's own."""
    return {
        "url": ("source.url",),
        "password": ("source.password",),
        "queue": ("source.queue",),
        "checkpoint": (f"{section}.checkpoint",),
        "available_now": (f"{section}.availableNow",),
    }


#: The keys that the flags of :func:`sending_flags` and ``--error-queue`` stand for.
SENDING_PLACES = {
    "error_queue": ("source.errorQueue", "sink.errorQueue"),
    "endpoint": ("sink.endpoint",),
    "stream": ("source.stream", "sink.stream"),
    "transaction_mode": ("source.transactionMode", "sink.transactionMode"),
}


def placed(
    places: Mapping[str, Sequence[str]], given: Mapping[str, str | bool | None]
) -> dict[str, str | bool | None]:
    """The values of flags by the keys of the configuration that the flags stand for."""
    return {place: value for name, value in given.items() for place in places[name]}


def secret_flag(name: str, variable: str, help_: str) -> Callable[[Command], Command]:
    """A flag for a url or a password. A password is taken from the environment variable alone."""
    is_password = name.endswith("password")

    def check(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if value and typed and (is_password or holds_password(value)):
            raise click.UsageError(_ON_THE_COMMAND_LINE.format(name=name, variable=variable))
        if is_password:
            # It was given for the url of the environment, and goes to no other server that is typed, which is read before.
            url = ctx.params.get(name.removeprefix("--").replace("password", "url").replace("-", "_"))
            kept = os.environ.get(variable.replace("PASSWORD", "URL"))
            return None if url and kept and not same_server(url, kept) else value
        return value

    return click.option(name, envvar=variable, callback=check, help=help_)


def _check_settings(_: click.Context, __: click.Parameter, settings: tuple[str, ...]) -> tuple[str, ...]:
    for setting in settings:
        name, _equals, value = setting.partition("=")
        if value and (name.lower().endswith(_PASSWORDS) or holds_password(value)):
            raise click.UsageError(_ON_THE_COMMAND_LINE.format(name=f"--set {name}", variable="SQLQUEUE_URL"))
    return settings


def configuration(
    names: Sequence[str],
    config: Path | None,
    settings: Sequence[str],
    given: Mapping[str, str | bool | None],
) -> dict[str, dict[str, str]]:
    """The options of each section; the command line wins over the file, and a flag over ``--set``.

    :param names: the names of the sections.
    :param settings: the values of ``--set``.
    :param given: the values of the flags, by the ``section.key`` that each stands for; None or False for one not given.
    :raises ConfigurationError: the file or a ``--set`` is malformed. The values of the options are not checked here.
    """
    sections: dict[str, dict[str, str]] = {name: {} for name in names}
    if config is not None:
        for name, values in _loaded(config).items():
            _check_section(config, name, values, names)
            for key, value in _flat(values):
                if key.lower() == "queues" and _is_texts(value):
                    value = json.dumps(value)  # noqa: PLW2901 -- an option is a text
                if not isinstance(value, str | bool | int | float):
                    raise ConfigurationError(
                        f"The value of {key} in [{name}] of the configuration {config} is {'a list' if isinstance(value, list) else 'a date or time'}; "
                        "write one text, number, true or false."
                    )
                _put(sections[name], key, value)
    for setting in settings:
        name, equals, value = setting.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot) or section not in sections:
            said = f"--set {name}=…" if equals else "A --set without ="  # the value may be a secret
            *some, last = (f"{each}.KEY=VALUE" for each in names)
            raise ConfigurationError(f"{said} cannot be read; write {', '.join(some)} or {last}.")
        _put(sections[section], key, value)
    for place, told in given.items():
        if told is not None and told is not False:
            # An empty text is put, too, and the option refuses it: nobody meant to leave the flag out.
            section, _, key = place.partition(".")
            _put(sections[section], key, told)
    return sections


def make_ready(
    source: SourceOptions,
    sink: SinkOptions | None = None,
    *,
    create: bool,
    retries: bool = False,
    only_look: bool = False,
) -> None:
    """Check, before Spark starts, that what the program needs is in its databases. Errors as :func:`check_ready`.

    :param create: create what is missing first, and say so.
    :param retries: whether messages of the source's queue are tried again later.
    :param only_look: the program looks at the queue, and receives nothing.
    """
    if create:
        for line in create_missing(source, sink, retries=retries):
            click.echo(plain(line))
    if only_look:
        check_visible(source)
    else:
        check_ready(source, sink, retries=retries)


@contextmanager
def exiting(code: int, debug: bool) -> Iterator[None]:
    """When something fails within the block, end the program with a code and one sentence on stderr.

    :param debug: raise the error as it is instead, so that its stack trace is shown.
    """
    for name in _LOGS_OF_ERRORS:
        PySparkLogger.getLogger(name).setLevel(logging.NOTSET if debug else logging.CRITICAL)
    try:
        yield
    except (SqlQueueError, PySparkException, Py4JError) as error:
        if debug:
            raise
        click.echo(f"error: {sentence_of(error)}", err=True)
        sys.exit(code)


def _loaded(config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(
            config.read_text(encoding="utf-8-sig")
        )  # Windows' editors write a byte-order mark
    except ValueError as error:  # it is no TOML, or no UTF-8
        raise ConfigurationError(
            f"The configuration {config} is not valid TOML ({error}); correct it."
        ) from error


def _check_section(config: Path, name: str, values: object, names: Sequence[str]) -> None:
    """Refuse what is no table of one of these names."""
    known = ", ".join(f"[{each}]" for each in names)
    if name in names and _is_tables(values):
        raise ConfigurationError(
            f"The configuration {config} has a list in the place of the section [{name}]; write [{name}] once."
        )
    if name not in names and (isinstance(values, dict) or _is_tables(values)):
        raise ConfigurationError(f"The configuration {config} has no section [{name}]; there are {known}.")
    if not isinstance(values, dict):
        raise ConfigurationError(
            f"The key {name} of the configuration {config} stands in no section; put it below one of {known}."
        )


def _is_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _is_tables(values: object) -> bool:
    """Whether this is what TOML makes of [[name]]."""
    return isinstance(values, list) and any(isinstance(each, dict) for each in values)


def _flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Turn tables in tables back into names with dots, such as ``endpoint.Billing.schema``: so TOML reads such a key."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _put(options: dict[str, str], key: str, value: object) -> None:
    """Set an option, and drop one whose name differs only by upper and lower case."""
    for same in [each for each in options if each.lower() == key.lower()]:
        del options[same]
    options[key] = str(value).lower() if isinstance(value, bool) else str(value)
