"""Store-and-forward: messages that a sender stores in its own database go to queues of other ones, each once.

A message goes to the address in its header ``$.store-and-forward.destination``, or to the subscribers of the
type in ``$.store-and-forward.eventtype``. One with neither header goes to the handler or to the local queue.
While a database is down, messages for it wait in the table QUEUE.Delayed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.message import STORED_FOR
from sqlqueue_spark.options import NO_OUTBOX, RECEIVE_ONLY, SinkOptions, SourceOptions
from sqlqueue_spark.options.fields import address, option, said
from sqlqueue_spark.options.named_module import function_name
from sqlqueue_spark.pipeline.declared.handle import HandleOptions, handled
from sqlqueue_spark.pipeline.declared.pipeline_options import check_ends, sides
from sqlqueue_spark.pipeline.declared.transform import load_function
from sqlqueue_spark.pipeline.running.batch_report import Totals
from sqlqueue_spark.pipeline.running.readiness import check_logins, make_ready
from sqlqueue_spark.pipeline.running.sending_job import send_until_stopped
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.spark.sink import SqlQueueSink

#: Options without which the sink cannot work: what each is, and how to give it.
_NEEDED = {
    "url": "the other database; give it as sink.url in the configuration, or as SQLQUEUE_SINK_URL",
    "endpoint": "which names the outboxes, one in each database; give this pipeline a name that no other "
    "endpoint has: --endpoint Shop.Forward",
    "errorQueue": "where a message goes that cannot be delivered; name a queue: --error-queue error",
}


@dataclass(frozen=True, kw_only=True)
class StoreAndForwardOptions(HandleOptions):
    handler: str | None = option(  # type: ignore[assignment] # here a job may have none
        "`module:function`, called for each message that does not say that it goes to another database.",
        None,
        parse=function_name,
    )
    local_queue: str | None = option(
        "Address of this database's queue where these messages go without a handler.", None, parse=address
    )


class StoreAndForward:
    """The job: what goes on in its two databases. At home messages stay, wait and fail; they go to the other.

    :raises ConfigurationError: the options cannot be those of a store-and-forward job.
    """

    def __init__(
        self, source: Mapping[str, str], sink: Mapping[str, str], options: StoreAndForwardOptions
    ) -> None:
        self.source, self.options, self.own = source, options, SourceOptions.parse(source)
        _check_given(sink, options)
        stays = {} if options.local_queue is None else {"queue": options.local_queue}
        here, there = sides(source, {**sink, **stays})
        self.places = Places(SinkOptions.parse(here), SinkOptions.parse(there))
        if self.own.queue is None:
            raise ConfigurationError(
                "A store-and-forward job has one queue, in whose table of delayed messages they wait; give "
                "the option queue, and start a job for each queue."
            )
        _check(self.own, self.places.home, self.places.away)
        check_ends(self.own, self.places)
        self.remote = RemoteDatabases(self.places, self.own.queue)

    def make_ready(self, create: bool) -> None:
        """Look for what the job needs, and which databases are down.

        :param create: create what is missing first, and print a line for each; in the other databases the
            outbox, except in those that are down.
        """
        places, options, home = self.places, self.options, self.places.home
        check_logins(places)  # before anything is created, or subscribed

        def here(queue: str | None) -> str | None:
            """The queue, unless it lies in another database, which may be down."""
            return queue if queue and places.beside(queue).target == places.at_home else None

        home = replace(home, error_queue=here(home.error_queue), audit_queue=here(home.audit_queue))
        at_home, others = Places(home, home), map(places.at, places.everywhere()[1:])
        events, folder = options.subscribe, options.checkpoint
        make_ready(
            self.own, at_home, create=create, retries=True, events=events, outboxes=others, checkpoint=folder
        )
        self.remote.try_all()

    def sink(self) -> SqlQueueSink:
        sink = SqlQueueSink.of(self.places.home, self.places.away, answers_at_home=True)
        sink.databases = self.remote
        return sink

    def run_until_stopped(self, spark: SparkSession) -> Totals:
        sink, doing = self.sink(), "storing and forwarding"
        return send_until_stopped(spark, self.source, sink, self.with_outcomes, self.options, doing=doing)

    def with_outcomes(self, messages: DataFrame, queue: str | None) -> DataFrame:
        """The messages of a stream with the outcomes of the handler; parameters as of :func:`handled`."""
        if self.options.handler is not None:
            return handled(messages, self.options, queue, self.places.naming)
        nothing = "Outgoing" if self.options.local_queue is None else "Failure"
        return messages.withColumn("Queue", F.lit(queue)).withColumn(nothing, F.lit(None))


def _check_given(sink: Mapping[str, str], options: StoreAndForwardOptions) -> None:
    for name, told in _NEEDED.items():
        if said(sink, name) is None:
            raise ConfigurationError(f"There is no option {name} of the sink, {told}.")
    if said(sink, "queue") is not None:
        raise ConfigurationError(
            "The sink has the option queue, and a message says itself where it goes, by its header "
            f"{STORED_FOR}; name the queue for messages that have none as localQueue."
        )
    if options.handler is not None and options.local_queue is not None:
        raise ConfigurationError(
            "There are a handler and a localQueue, and a message that does not go to another database goes "
            "to one of them; leave one out."
        )
    if options.handler is not None:
        load_function(options.handler)


def _check(source: SourceOptions, home: SinkOptions, other: SinkOptions) -> None:
    modes = [each.transaction_mode for each in (source, home, other) if each.transaction_mode != RECEIVE_ONLY]
    if modes:
        raise ConfigurationError(
            f"transactionMode is {modes[0]!r}, and no transaction reaches two databases; leave it out: with "
            "receiveOnly and an outbox each message arrives once."
        )
    if home.outbox == NO_OUTBOX:
        raise ConfigurationError(
            "outbox is 'none', and without one a message would arrive again whenever a batch is repeated; "
            "set it to optimistic."
        )
    if home.url == other.url:
        raise ConfigurationError(
            "The url of the sink is that of the queue's own database, and messages go to another one; give "
            "that one's as sink.url or SQLQUEUE_SINK_URL, or take jobs/forward.py, which sends within a "
            "database."
        )


def store_and_forward(
    spark: SparkSession,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    options: StoreAndForwardOptions,
    *,
    create: bool = False,
) -> Totals:
    """Run the job in a session of your own: until stopped, or with ``availableNow`` until nothing is left.

    :param source: as [source] of conf/store_and_forward.toml, and ``sink`` as [sink].
    :raises ConfigurationError: the options cannot be those of a store-and-forward job.
    :raises QueueError: a table is missing or may not be used.
    """
    job = StoreAndForward(source, sink, options)
    job.make_ready(create)
    return job.run_until_stopped(spark)
