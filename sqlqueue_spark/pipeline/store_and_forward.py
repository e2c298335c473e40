"""Store-and-forward: what a sender stores in a queue of its own database goes to queues of other ones, each message once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.handling import ReceivedMessage
from sqlqueue_spark.messages.message import STORED_EVENT, STORED_FOR
from sqlqueue_spark.options import NO_OUTBOX, RECEIVE_ONLY, SinkOptions, SourceOptions
from sqlqueue_spark.options.fields import address, option
from sqlqueue_spark.pipeline.handle import HandleOptions, outcomes_of
from sqlqueue_spark.pipeline.transform import found, function_name
from sqlqueue_spark.send import RemoteDatabases

#: What the sink's two halves have in common: everything of the configuration's sink but where it is and who we are there.
_OF_A_DATABASE = frozenset(
    {"url", "user", "password", "accesstoken", "accesstokenprovider", "defaultschema", "legacyaddresses", "locktimeout", "commandtimeout"}
)  # fmt: skip
#: What is for messages that stay or fail, which is in the database of the queue.
_AT_HOME = frozenset({"queue", "errorqueue", "auditqueue", "delayedendpoint"})


@dataclass(frozen=True, kw_only=True)
class StoreAndForwardOptions(HandleOptions):
    """What happens to the messages of a store-and-forward queue."""

    handler: str | None = option("`module:function`, called for each message that does not say that it goes to another database.", parse=function_name, default=None)  # type: ignore[assignment] # here a job may have none # fmt: skip
    local_queue: str | None = option("Address of the queue of this database where such messages go without a handler.", parse=address, default=None)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Databases:
    """The options of a job's sink, as each of its databases sees them.

    :param home: the database of the queue, in which messages stay, wait and fail. ``other`` is the one that they go to.
    """

    home: dict[str, str]
    other: dict[str, str]

    @classmethod
    def of(
        cls, source: Mapping[str, str], sink: Mapping[str, str], options: StoreAndForwardOptions
    ) -> Databases:
        """Split the options of the configuration.

        :raises ConfigurationError: they cannot be those of a store-and-forward job.
        """
        lowered = {name.lower(): value for name, value in sink.items()}
        if "url" not in lowered:
            raise ConfigurationError(
                "There is no option url of the sink, the other database; give it as sink.url in the configuration, or as SQLQUEUE_SINK_URL."
            )
        if "queue" in lowered:
            raise ConfigurationError(
                f"The sink has the option queue, and a message says itself where it goes, by its header {STORED_FOR}; name the queue for "
                "messages that have none as localQueue."
            )
        if lowered.get("errorqueue") is None:
            raise ConfigurationError(
                "There is no option errorQueue of the sink, where a message goes that cannot be delivered; name a queue: --error-queue error."
            )
        here = {name: value for name, value in source.items() if _names_a_place(name)}
        there = {name: value for name, value in sink.items() if not _names_a_place(name)}
        home = {**here, **there, **({} if options.local_queue is None else {"queue": options.local_queue})}
        other = {name: value for name, value in sink.items() if name.lower() not in _AT_HOME}
        for each in (home, other):
            _check(SinkOptions.parse(each))
        return cls(home=home, other=other)

    def remote(self, source: SourceOptions) -> RemoteDatabases:
        """The databases that messages go to."""
        if source.queue is None:
            raise ConfigurationError(
                "A store-and-forward job has one queue, in whose table of delayed messages they wait; give the option queue, and start "
                "a job for each queue."
            )
        return RemoteDatabases(SinkOptions.parse(self.other), SinkOptions.parse(self.home), source.queue)


def _names_a_place(name: str) -> bool:
    """Whether an option says where a database is, who we are there, or how its queues are named."""
    lowered = name.lower()
    return lowered in _OF_A_DATABASE or (lowered.startswith(("queue.", "endpoint.")) and "." in lowered)


def _check(options: SinkOptions) -> None:
    if options.transaction_mode != RECEIVE_ONLY:
        raise ConfigurationError(
            f"transactionMode is {options.transaction_mode!r}, and no transaction reaches two databases; leave it out: with receiveOnly and "
            "an outbox each message arrives once."
        )
    if options.outbox == NO_OUTBOX:
        raise ConfigurationError(
            "outbox is 'none', and without one a message would arrive again whenever a batch is repeated; set it to optimistic."
        )


def stored(messages: DataFrame, options: StoreAndForwardOptions, queue: str | None) -> DataFrame:
    """The messages of a stream as the sink of the job takes them.

    :param queue: the address of the queue in which they are received.
    :raises ConfigurationError: the handler cannot be found.
    """
    if options.handler is not None:
        return outcomes_of(_for_those_that_stay(found(options.handler)), messages, options, queue)
    received = messages.withColumn("Queue", F.lit(queue))
    nothing = "Outgoing" if options.local_queue is None else "Failure"
    return received.withColumn(nothing, F.lit(None))


def _for_those_that_stay(
    function: Callable[[ReceivedMessage], object],
) -> Callable[[ReceivedMessage], object]:
    """The function, which is not called for messages that go to another database."""

    @functools.wraps(function)
    def handle(message: ReceivedMessage) -> object:
        headers = message.headers
        return None if headers.get(STORED_FOR) or headers.get(STORED_EVENT) else function(message)

    return handle
