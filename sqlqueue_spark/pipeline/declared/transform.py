"""Transforms messages between two queues: by SQL over a view, by a Python function, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sqlqueue_spark.errors import ConfigurationError, SqlQueueError, why
from sqlqueue_spark.handling.each_message import check_functions
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.options.fields import option
from sqlqueue_spark.options.named_module import broken_at, find, function_name, imported
from sqlqueue_spark.pipeline.running.configuration import SendingOptions
from sqlqueue_spark.pipeline.running.queue_stream import with_message_columns
from sqlqueue_spark.send.compose.frame_columns import FrameColumns

#: The view that the SQL reads. It replaces a view of this name in the session.
VIEW = "messages"
#: Columns of received messages, as Spark has them.
RECEIVED = (("Queue", "string"), ("RowVersion", "bigint"), ("Id", "string"), ("Headers", "string"),
            ("Body", "binary"))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ForwardOptions(SendingOptions):
    """How messages are transformed. A function is called once, with the stream, and not for each message."""

    sql: str | None = option("`SELECT … FROM messages`: what goes on, and where to.", None)
    function: str | None = option(
        "`module:function`, from DataFrame to DataFrame, in place of `sql`.", None, parse=function_name
    )

    def check(self) -> None:
        if self.sql is not None and self.function is not None:
            raise ConfigurationError("Both sql and function are given; drop one of them.")


def transformed(messages: DataFrame, options: ForwardOptions) -> DataFrame:
    """Transform a stream of messages as the options say.

    The SQL or the function sees the columns of the table and those of ``with_message_columns``.

    :raises ConfigurationError: the SQL or the function cannot be run, or does not return a stream of them.
    """
    if options.sql is not None:
        whose, result = "The SQL of the transform", _by_sql(with_message_columns(messages), options.sql)
    elif options.function is not None:
        whose = f"The function {options.function}"
        result = _by_function(with_message_columns(messages), options.function)
    else:
        return messages
    if not result.isStreaming:
        raise ConfigurationError(f"{whose} does not read the stream of messages; select from it.")
    return result


def _by_sql(messages: DataFrame, query: str) -> DataFrame:
    messages.createOrReplaceTempView(VIEW)
    try:
        return messages.sparkSession.sql(query)
    except PySparkException as error:
        raise ConfigurationError(
            f"The SQL of the transform cannot be run ({_reason(error)}); correct it, and note that the "
            f"messages are the view {VIEW}."
        ) from error


def _by_function(messages: DataFrame, name: str) -> DataFrame:
    function = load_function(name)
    try:
        result = function(messages)
    except SqlQueueError:
        raise
    except Exception as error:  # it is the user's, and may raise anything
        raise ConfigurationError(
            f"The function {name} failed ({type(error).__name__}: {_reason(error)}); correct it."
        ) from error
    if isinstance(result, DataFrame):
        return result
    raise ConfigurationError(
        f"The function {name} returned {type(result).__name__}, not a DataFrame; return the messages to send."
    )


def check_transform(sink: SinkOptions, options: ForwardOptions) -> None:
    """Look whether the sink takes what is received, or whether there is the module of a function.

    The module is not run, for it may need a session. What SQL gives is not known without one, either.

    :raises ConfigurationError: there is no place to send to, or no such module.
    """
    if options.function is not None:
        with _importing(options.function) as module:
            find(module)
    elif options.sql is None:
        FrameColumns.of(RECEIVED, sink)


def load_function(name: str) -> Any:
    """``module:function``, a function of one argument or a dict of them; errors as of its module."""
    with _importing(name) as module_name:
        module = imported(module_name)
    attribute = name.partition(":")[2]
    if not hasattr(module, attribute):
        raise ConfigurationError(f"The module {module_name} has no function {attribute}; correct the name.")
    check_functions(f"The function {name}", function := getattr(module, attribute))
    return function


@contextmanager
def _importing(name: str) -> Iterator[str]:
    """Gives the name of a function's module, and says so where the module cannot be imported."""
    try:
        yield name.partition(":")[0]
    except (Exception, SystemExit) as error:  # likewise
        said = error.msg if isinstance(error, SyntaxError) else _reason(error)
        at = broken_at(error)
        missing = "put it on PYTHONPATH or give it to spark-submit with --py-files, and correct the name"
        raise ConfigurationError(
            f"The module of the function {name} cannot be imported ({type(error).__name__}: {said}"
            f"{at}); {'mend it' if at else missing}."
        ) from error


def _reason(error: BaseException) -> str:
    return why(error).rstrip(".")
