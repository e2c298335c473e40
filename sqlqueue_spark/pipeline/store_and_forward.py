"""Store-and-forward: what a sender stores in a queue of its own database goes to queues of other ones, each message once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.registry import dialect_of
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost
from sqlqueue_spark.handling import ReceivedMessage
from sqlqueue_spark.messages.message import STORED_EVENT, STORED_FOR
from sqlqueue_spark.options import NO_OUTBOX, RECEIVE_ONLY, SinkOptions, SourceOptions
from sqlqueue_spark.options.fields import address, option
from sqlqueue_spark.pipeline.handle import HandleOptions, outcomes_of
from sqlqueue_spark.pipeline.transform import found, function_name
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send import Destinations, RemoteDatabases

log = logger(__name__)

#: What the sink's two halves have in common: everything of the configuration's sink but where it is and who we are there.
_OF_A_DATABASE = frozenset(
    {"url", "user", "password", "accesstoken", "accesstokenprovider", "defaultschema", "legacyaddresses", "locktimeout", "commandtimeout"}
)  # fmt: skip
#: What is for messages that stay or fail, which is in the database of the queue.
_AT_HOME = frozenset({"queue", "errorqueue", "auditqueue", "delayedendpoint", "storeandforward"})


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
        _check_given({name.lower(): value for name, value in sink.items()}, options)
        here = {name: value for name, value in source.items() if _names_a_place(name)}
        there = {name: value for name, value in sink.items() if not _names_a_place(name)}
        home = {**here, **there, **({} if options.local_queue is None else {"queue": options.local_queue})}
        other = {name: value for name, value in sink.items() if name.lower() not in _AT_HOME}
        _check(SourceOptions.parse(source), SinkOptions.parse(home), SinkOptions.parse(other))
        return cls(home=home, other=other)

    def create_outboxes(self) -> list[str]:
        """Create the outboxes that the other databases lack; returns a line for each. A database that is down is left out.

        :raises SqlQueueError: one cannot be created.
        """
        other, lines = SinkOptions.parse(self.other), []
        for target in Destinations(other).everywhere():
            there = replace(
                other, url=target.url, user=target.user, password=target.password, access_token=target.access_token,
                access_token_provider=target.access_token_provider,
            )  # fmt: skip
            try:
                made = outbox_tables.create(there, other.sender or "")
            except ConnectionLost as error:
                log.warning("not_created outbox=%s: %s", other.sender, error)
            else:
                lines += [f"created outbox={made.outbox}"] if made.new else []
        return lines

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


def _check_given(sink: Mapping[str, str], options: StoreAndForwardOptions) -> None:
    """Refuse options that are missing, or that contradict each other; the names of the sink's are in lower case."""
    if "url" not in sink:
        raise ConfigurationError(
            "There is no option url of the sink, the other database; give it as sink.url in the configuration, or as SQLQUEUE_SINK_URL."
        )
    if "queue" in sink:
        raise ConfigurationError(
            f"The sink has the option queue, and a message says itself where it goes, by its header {STORED_FOR}; name the queue for "
            "messages that have none as localQueue."
        )
    if "endpoint" not in sink:
        raise ConfigurationError(
            "There is no option endpoint of the sink, which names the outboxes, one in each database; give this pipeline a name that no "
            "other endpoint has: --endpoint Shop.Forward."
        )
    if "errorqueue" not in sink:
        raise ConfigurationError(
            "There is no option errorQueue of the sink, where a message goes that cannot be delivered; name a queue: --error-queue error."
        )
    if options.handler is not None and options.local_queue is not None:
        raise ConfigurationError(
            "There are a handler and a localQueue, and a message that does not go to another database goes to one of them; leave one out."
        )


def _check(source: SourceOptions, home: SinkOptions, other: SinkOptions) -> None:
    modes = [each.transaction_mode for each in (source, home, other) if each.transaction_mode != RECEIVE_ONLY]
    if modes:
        raise ConfigurationError(
            f"transactionMode is {modes[0]!r}, and no transaction reaches two databases; leave it out: with receiveOnly and "
            "an outbox each message arrives once."
        )
    if home.outbox == NO_OUTBOX:
        raise ConfigurationError(
            "outbox is 'none', and without one a message would arrive again whenever a batch is repeated; set it to optimistic."
        )
    if home.url == other.url:
        raise ConfigurationError(
            "The url of the sink is that of the queue's own database, and messages go to another one; give that one's as sink.url or "
            "SQLQUEUE_SINK_URL, or take jobs/forward.py, which sends within a database."
        )
    naming = source.naming(dialect_of(source.url))
    if (
        home.queue is not None
        and source.queue is not None
        and naming.table(home.queue) == naming.table(source.queue)
    ):
        raise ConfigurationError(
            f"localQueue is {home.queue}, the queue of the job itself, so its messages would go round for ever; name another queue."
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
