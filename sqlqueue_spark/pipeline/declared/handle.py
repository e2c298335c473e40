"""Handles each message of a stream by a Python function, which the options name."""

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.handling.delayed_retries import DELAYED_RETRIES, RETRIES_INCREASE, recoverability
from sqlqueue_spark.handling.each_message import HANDLER_TIMEOUT, IMMEDIATE_RETRIES, each_message
from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.message import type_names
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.options.fields import option
from sqlqueue_spark.options.named_module import function_name
from sqlqueue_spark.pipeline.declared.transform import RECEIVED, load_function
from sqlqueue_spark.pipeline.running.configuration import SendingOptions
from sqlqueue_spark.pipeline.running.readiness import check_subscriber
from sqlqueue_spark.send.compose.frame_columns import FrameColumns

#: The columns of a handler's outcomes. Those of its messages are not known without Spark.
_OUTCOMES = (*RECEIVED, ("Outgoing", "void"), ("Failure", "void"))


def events(value: str) -> tuple[str, ...]:
    """Parse full names of types, with or without their assemblies, a ``;`` between them."""
    if not (names := type_names(value)):
        raise ValueError("full names of types, like Shop.OrderPlaced;Shop.OrderCancelled")
    return names


@dataclass(frozen=True, kw_only=True)
class HandleOptions(SendingOptions):
    handler: str = option(
        "`module:function`, called for each message; or a dict of them, by type.", parse=function_name
    )
    subscribe: tuple[str, ...] = option(
        "Types of events, a `;` between them; when the job starts, its queue subscribes to them under the "
        "name of `endpoint`.",
        (),
        parse=events,
    )
    immediate_retries: int = option(
        "How often a function that fails is called again at once.", IMMEDIATE_RETRIES
    )
    handler_timeout: timedelta = option("How long a call may take.", HANDLER_TIMEOUT)
    delayed_retries: int = option(
        "How often a message that has failed is tried again later; `0` for never.", DELAYED_RETRIES
    )
    delayed_retries_increase: timedelta = option(
        "How much longer each of these waits than the one before.", RETRIES_INCREASE
    )

    @property
    def calls_for_each_message(self) -> bool:
        return bool(self.handler)  # a store-and-forward job may have none


def check_handling(source: SourceOptions, sink: SinkOptions, options: HandleOptions) -> None:
    """:raises ConfigurationError: messages cannot be handled so, or there is no such handler."""
    if sink.error_queue is None:
        raise ConfigurationError(
            "There is no option errorQueue of the sink, where a message goes for which its handler raises; "
            "name a queue: --error-queue error."
        )
    FrameColumns.of(_OUTCOMES, sink)
    check_subscriber(source, options.subscribe)
    load_function(options.handler)


def handled(messages: DataFrame, options: HandleOptions, queue: str | None, naming: Naming) -> DataFrame:
    """The outcomes of a stream of messages, for the sink.

    :param queue: the address of the queue in which they are received; None where the column ``Queue`` has it.
    :raises ConfigurationError: the handler cannot be found.
    """
    outcomes = messages.transform(
        each_message(
            load_function(options.handler),
            queue=queue,
            naming=naming,
            immediateRetries=options.immediate_retries,
            handlerTimeout=options.handler_timeout,
        )
    )
    if not options.delayed_retries:
        return outcomes
    return recoverability(
        outcomes,
        delayedRetries=options.delayed_retries,
        delayedRetriesIncrease=options.delayed_retries_increase,
    )
