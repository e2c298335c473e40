"""Runs a job as a command: its options come from flags and a TOML file, and an error is one sentence."""

import difflib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it ships neither
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from sqlqueue_spark.administration.completion import endpoint_names, queue_names
from sqlqueue_spark.administration.passwords_in_commands import checked, refuse_password
from sqlqueue_spark.errors import SqlQueueError, why
from sqlqueue_spark.options.environment import check_url
from sqlqueue_spark.options.fields import Options, said
from sqlqueue_spark.pipeline.running.configuration import configuration
from sqlqueue_spark.pipeline.running.readiness import check_file, check_machine
from sqlqueue_spark.pipeline.running.session import session
from sqlqueue_spark.pipeline.running.settings_files import CONF

#: The options of each section of a configuration.
Sections = Mapping[str, Mapping[str, str]]

#: How a shell completes the value of a flag, by the end of its key.
_COMPLETED = {"queue": queue_names, "endpoint": endpoint_names}
#: To these PySpark logs a query that it refuses, with a stack trace, before it raises the error that we show.
_LOGS_OF_ERRORS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class Flag(click.Option):
    """A flag of a job.

    :param names: its names, a blank between them.
    :param keys: the keys of the configuration that it stands for, each ``section.key``, a blank between them.
        The value of a flag without a key is given to the job by the flag's name.
    :param variable: the environment variable of a url or a password; a password is taken from there alone.
    :param needed: whether the job does not start without its keys.
    """

    def __init__(
        self,
        names: str,
        keys: str,
        help_: str,
        *,
        variable: str | None = None,
        needed: bool = False,
        **how: Any,
    ) -> None:
        if variable is not None:
            how |= {"envvar": variable, "callback": partial(checked, refused=True)}
        complete = next((each for end, each in _COMPLETED.items() if keys.lower().endswith(end)), None)
        super().__init__(names.split(), help=help_, shell_complete=complete, **how)
        self.keys = keys.split()
        self.needed = needed
        self.said = self.opts[-1] if variable is None else f"{variable} (or {self.opts[-1]})"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a job, whose options have been understood; its Spark application has its title.

    :param make_ready: looks for what the run needs in its databases; with ``create=True`` creates it first.
    :param folders: the options that name the folders into which the run writes.
    """

    title: str
    make_ready: Callable[..., None]
    start: Callable[[SparkSession], Any]
    folders: Sequence[str] = ("path", "checkpoint")


class Job(click.Command):
    """A job as a click command.

    :param understood: makes a run of the sections of the configuration and of the flags without a key, or
        raises ConfigurationError. Its name is the job's, and its docstring is for --help.
    :param options: what each section may say; the last, with ``checkpoint`` and ``availableNow``, is its own.
    :param flags: its own ones; all jobs have those of ``_common_params`` too.
    :param example: the name of its file in conf/, unless it is its own.
    :param checkpoint: what --help says of --checkpoint, where a job may do without one.
    """

    def __init__(
        self,
        understood: Callable[..., Run],
        options: Mapping[str, type[Options]],
        flags: Sequence[Flag],
        *,
        example: str | None = None,
        checkpoint: str | None = None,
        delta: bool = False,
    ) -> None:
        self.understood, self._options, self._delta = understood, options, delta
        self._own = [*options][-1]
        name = understood.__name__
        params = [*_common_params(self._own, example or name, checkpoint), *flags]
        super().__init__(name.replace("_", "-"), params=params, callback=self._run, help=understood.__doc__)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        needed = [each.said for each in self.params if isinstance(each, Flag) and each.needed]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Needed, here or in the file of --config: {', '.join(['QUEUE', *needed])}.")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        flags = {key: each.opts[-1] for each in self.params if isinstance(each, Flag) for key in each.keys}
        rows = []
        for each in self._options[self._own].described():
            flag = flags.get(f"{self._own}.{each.name}")
            meaning = f"{each.meaning}  [default: {each.default}]".replace("`", "")
            rows.append((each.name, meaning if flag is None else f"as {flag}"))
        with formatter.section(f"Keys of [{self._own}], as --set {self._own}.KEY=VALUE or in the file"):
            formatter.write_dl(rows)
        others = {"source": "sqlqueue options", "sink": "sqlqueue options --sink"}
        told = ", ".join(f"of [{each}]: {others[each]}" for each in self._options if each in others)
        formatter.write_paragraph()
        formatter.write_text(f"Keys {told}.")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if (said := self._as_key(error.option_name)) is None:
                raise
            raise click.UsageError(f"There is no flag {error.option_name}; {said}", ctx) from error

    def _as_key(self, flag: str) -> str | None:
        """How the key is given that a mistyped flag means; None where it rather means another flag."""
        keys = [(section, key) for section, options in self._options.items() for key in options.described()]
        flags = {_joined(name) for each in self.params for name in each.opts}
        others = {key.name.lower() for _, key in keys} - flags
        near = difflib.get_close_matches(_joined(flag), [*flags, *others], n=1)
        if not others.intersection(near):
            return None
        sections = [section for section, key in keys if key.name.lower() == near[0]]
        key = next(key for _, key in keys if key.name.lower() == near[0])
        there = f"in the section {' or '.join(f'[{each}]' for each in sections)} of the file of --config"
        by_set = f"as {' or '.join(f'--set {each}.{key.name}=VALUE' for each in sections)}, or "
        return f"the key {key.name} is given {'' if key.secret else by_set}{there}."

    def _run(
        self,
        *,
        named: str | None,
        config: Path | None,
        settings: tuple[str, ...],
        create: bool,
        debug: bool,
        **values: Any,
    ) -> None:
        if named is not None and values["queue"] not in (None, named):
            raise click.UsageError("QUEUE and --queue name two queues; give one of them.")
        values["queue"] = values["queue"] if named is None else named
        keys = {each.name: each.keys for each in self.params if isinstance(each, Flag)}
        given = {key: value for name, value in values.items() for key in keys[name]}
        others = {name: value for name, value in values.items() if not keys[name]}
        with exiting(2, debug):  # until everything that was given is understood
            sections = configuration([*self._options], config, settings, given)
            check_url(sections["source"])
            run = self.understood(sections, **others)
        with exiting(1, debug):
            if debug:  # with this level Spark's processes tell the stack traces of our errors
                os.environ["SQLQUEUE_LOG"] = "DEBUG"
            own = sections[self._own]
            folders = {each: path for each in run.folders if (path := said(own, each))}
            check_machine(delta=self._delta, folders=folders)
            for name in ("stopFile", "doneFile"):
                if (path := said(sections["source"], name)) is not None:
                    check_file(f"The option {name}", path)
            run.make_ready(create=create)
            spark = session(run.title, delta=self._delta)
            run.start(spark)
            spark.stop()


def _joined(flag: str) -> str:
    """A flag as a key has it, in lower case."""
    return flag.lower().replace("-", "")


def _common_params(own: str, example: str, checkpoint: str | None) -> list[click.Parameter]:
    """The argument and the flags of every job; ``own`` is the job's own section."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    queue = "Address of the queue table, if QUEUE does not say it."
    url = "Database of the queue; with a password in it only as SQLQUEUE_URL."
    login = "Its password, given as SQLQUEUE_PASSWORD."
    folder = checkpoint or "Folder of the checkpoint."

    def show_example(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked:
            click.echo((CONF / f"{example}.toml").read_text(encoding="utf-8"), nl=False)
            ctx.exit()

    return [
        click.Argument(["named"], metavar="[QUEUE]", required=False, shell_complete=queue_names),
        Flag("--config", "", "TOML file.", type=file),
        Flag("--example-config", "", "Print a file to begin with, and end.", is_flag=True,
             is_eager=True, expose_value=False, callback=show_example),
        Flag("--url", "source.url", url, variable="SQLQUEUE_URL", needed=True),
        Flag("--password", "source.password", login, variable="SQLQUEUE_PASSWORD"),
        Flag("--queue", "source.queue", queue),
        Flag("--checkpoint", f"{own}.checkpoint", folder, needed=checkpoint is None),
        Flag("--available-now", f"{own}.availableNow", "Take what is there now and end.", is_flag=True),
        Flag("--create", "", "Create the queues and other tables that are missing.", is_flag=True),
        Flag("--set settings", "", "Any key of the configuration.", multiple=True, callback=_check_settings,
             metavar="SECTION.KEY=VALUE"),
        Flag("--debug", "", "Show the stack trace of an error.", is_flag=True),
    ]  # fmt: skip


def _check_settings(_: click.Context, __: click.Parameter, settings: tuple[str, ...]) -> tuple[str, ...]:
    for setting in settings:
        name, _equals, value = setting.partition("=")
        refuse_password(f"--set {name}", value, "SQLQUEUE_URL")
    return settings


@contextmanager
def exiting(code: int, debug: bool) -> Iterator[None]:
    """If the block fails, end with a code and one sentence on stderr; with ``debug`` raise the error."""
    for name in _LOGS_OF_ERRORS:
        PySparkLogger.getLogger(name).setLevel(logging.NOTSET if debug else logging.CRITICAL)
    # Py4J logs it with a stack trace where a Ctrl-C comes while Java works, and raises it too.
    logging.getLogger().addFilter(lambda record: record.msg != "KeyboardInterrupt while sending command.")
    try:
        yield
    except KeyboardInterrupt:  # a program of spark-submit has no group of commands that does this
        click.echo(err=True)  # behind the ^C of the terminal
        click.get_current_context().exit(130)
    except (SqlQueueError, PySparkException, Py4JError, OSError) as error:
        if debug:
            raise
        failed = click.ClickException(why(error))
        failed.exit_code = code  # type: ignore[misc] # click has one for each class
        raise failed from error
