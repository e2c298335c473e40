"""``each_message``: a transform of a frame that calls a Python function for each message."""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.handling.child_handler import HandlingTask
from sqlqueue_spark.handling.handler_calls import Function, Handler, Limits
from sqlqueue_spark.handling.outcome_columns import COLUMNS
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.transit import UNKNOWN
from sqlqueue_spark.options.fields import duration_of

IMMEDIATE_RETRIES, HANDLER_TIMEOUT = 5, timedelta(seconds=30)
_NEEDED = ("Id", "Headers", "Body", "RowVersion")


def each_message(
    function: Function | Mapping[str, Function],
    *,
    queue: str | None = None,
    naming: Naming = UNKNOWN,
    immediateRetries: int = IMMEDIATE_RETRIES,  # noqa: N803 -- the name of the option
    handlerTimeout: str | timedelta = HANDLER_TIMEOUT,  # noqa: N803 -- the name of the option
    unrecoverable: tuple[type[BaseException], ...] = (),
) -> Callable[[DataFrame], DataFrame]:
    """A transform that calls a function for each message. The answer is the message's outcome for the sink::

        def handle(message):
            order = message.json()
            accepted = Reply("Shop.OrderAccepted, Shop", {"order": order["id"]})
            return [accepted, Send("Shipping", "Shop.ShipOrder, Shop", order)]

        outcomes = messages.transform(each_message(handle, queue="orders"))
        sink = SqlQueueSink(url=url, endpoint="Shop.Spark", errorQueue="error")
        outcomes.writeStream.foreachBatch(sink).start()

    There is one row for each received message: the columns of the source, ``Queue``, ``Outgoing`` and
    ``Failure``. Failure is NULL where the function returned. Then ``ProcessingStarted`` and
    ``ProcessingEnded`` are the times of its last call, for the copy in an audit queue. What the sink sends
    goes out exactly once. What the function does outside the database is done at least once.

    Headers of relation are set as a .NET endpoint sets them: RelatedTo, CorrelationId, ConversationId, and
    our own queue as ReplyToAddress. The function is not called for a row whose headers cannot be read, nor
    for a delayed message on its way to another queue. Both fail in the sink.

    The function is called in a child process of Spark's worker. The child is kept from task to task: a
    connection in the function's module stays open. A message at which the child dies fails by
    :class:`WorkerDied`, and a message at which it hangs by :class:`HandlerTimeout`, each after one more try
    alone in a new child. The other messages are handled. What the function prints goes to the stderr of the
    worker. The child has no ``TaskContext`` of Spark and no accumulators.

    :param function: takes a :class:`ReceivedMessage`. It returns nothing, a :class:`Send`, a :class:`Reply`,
        a :class:`Publish`, or several of these. A dict instead has functions by the full names of message
        types, without assemblies; a message of another type fails. Functions go to the workers by
        cloudpickle, or by name where their module is installed there.
    :param queue: the address of the queue of these messages, where the frame has no column ``Queue``.
    :param naming: the sink's ``places.naming``: it tells queues of one name in several schemas apart.
    :param immediateRetries: how often the function is called again at once when it raises.
    :param handlerTimeout: how long a call may take, for example ``500ms`` or ``30s``.
    :param unrecoverable: exceptions after which the function is not called again. Then the field
        ``Unrecoverable`` of Failure is true. That is always so for a body that ``json()`` cannot read, an
        answer that is no message, a type without a function, and a reply to a message without an address.
    :raises ConfigurationError: an argument is wrong; or, when it is applied, the frame lacks a column.
    """
    check_functions("The function of each_message", function)
    if type(immediateRetries) is not int or immediateRetries < 0:
        raise ConfigurationError(f"immediateRetries is {immediateRetries!r}; give a number, 0 or more.")
    timeout = duration_of("handlerTimeout", handlerTimeout)
    if not _are_exceptions(unrecoverable):
        raise ConfigurationError(
            f"unrecoverable is {unrecoverable!r}; give a tuple of exceptions, for example (ValueError,)."
        )
    limits = Limits(
        immediate_retries=immediateRetries, timeout=timeout.total_seconds(), unrecoverable=unrecoverable
    )
    handler = Handler(functions=function, limits=limits, naming=naming)

    def transform(messages: DataFrame) -> DataFrame:
        names = {name.lower(): name for name in messages.columns}
        needed = (*_NEEDED, "Queue") if queue is None else _NEEDED
        missing = [name for name in needed if name.lower() not in names]
        if missing:
            raise ConfigurationError(
                f"each_message needs the column {missing[0]} of the source, which the frame has not; keep it"
                + (", or give each_message the queue's address as queue." if missing == ["Queue"] else ".")
            )
        if "queue" not in names:
            messages = messages.withColumn("Queue", F.lit(queue))
        schema = StructType([*messages.schema.fields, *from_arrow_schema(COLUMNS)])
        return messages.mapInArrow(HandlingTask.of(handler), schema)

    return transform


def check_functions(name: str, given: object) -> None:
    """:raises ConfigurationError: it is no function of one argument, nor a dict of them."""
    for type_, function in given.items() if isinstance(given, Mapping) else [(None, given)]:
        if why := _unfit(function):
            raise ConfigurationError(f"{name}{'' if type_ is None else f' for {type_!r}'} {why}.")


def _unfit(function: object) -> str | None:
    """Why it cannot be called with one argument; None also where it does not tell its parameters."""
    if not callable(function):
        return f"is no function, but {type(function).__name__}; give a function, or functions by type"
    if isinstance(function, type):
        return "is a class; give a function, or an object that can be called"
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if any(is_kind(each) for is_kind in kinds for each in (function, type(function).__call__)):
        return "is async, and no loop runs it; give a function without async"
    try:
        inspect.signature(function).bind(None)
    except ValueError:  # it does not tell its parameters
        return None
    except TypeError as error:
        return f"cannot be called with one argument ({error}); give a function that can"
    return None


def _are_exceptions(given: object) -> bool:
    return isinstance(given, tuple) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in given
    )
