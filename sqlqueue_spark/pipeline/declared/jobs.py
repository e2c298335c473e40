"""The five jobs, each declared once: its flags, the keys that they stand for, its options, and what it runs.

``sqlqueue drain``, ``forward``, ``handle``, ``archive``, ``store-and-forward`` and the programs in jobs/ are
these commands. How they are run: docs/running.md.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import NO_TRANSACTION, SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.declared.handle import HandleOptions, check_handling, handled
from sqlqueue_spark.pipeline.declared.pipeline_options import agreed, places_of
from sqlqueue_spark.pipeline.declared.store_and_forward import StoreAndForward, StoreAndForwardOptions
from sqlqueue_spark.pipeline.declared.transform import ForwardOptions, check_transform, transformed
from sqlqueue_spark.pipeline.delta.archive import ArchiveOptions, archive_until_stopped
from sqlqueue_spark.pipeline.delta.delta_stream import (
    CHECKPOINT,
    DeltaOptions,
    check_mode,
    drain_until_stopped,
    with_checkpoint,
)
from sqlqueue_spark.pipeline.running.configuration import SendingOptions
from sqlqueue_spark.pipeline.running.program import Flag, Job, Run, Sections
from sqlqueue_spark.pipeline.running.queue_stream import as_outgoing
from sqlqueue_spark.pipeline.running.readiness import make_ready
from sqlqueue_spark.pipeline.running.sending_job import send_until_stopped
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.spark.sink import SqlQueueSink

_ERROR_QUEUE = "Address of the queue where messages go that {}."
_FUNCTION: dict[str, Any] = {"metavar": "MODULE:FUNCTION"}
_PATH = "Folder of the Delta table."
_SINK_URL = "{}; with a password in it only as SQLQUEUE_SINK_URL."
_SINK_LOGIN = Flag("--sink-password", "sink.password", "Its password, given as SQLQUEUE_SINK_PASSWORD.",
                   variable="SQLQUEUE_SINK_PASSWORD")  # fmt: skip
_AUDIT = Flag("--audit-queue", "sink.auditQueue",
              "Address of the queue that gets a copy of each handled message.")  # fmt: skip

#: The flags of a job that sends in the database of its queue, or atomically.
_SENDING = (
    Flag("--endpoint", "sink.endpoint", "Name of the outbox, of this pipeline alone.", needed=True),
    Flag("--stream", "source.stream sink.stream", "Name of this pipeline, for sendsAtomicWithReceive."),
    Flag("--transaction-mode", "source.transactionMode sink.transactionMode",
         "receiveOnly, sendsAtomicWithReceive or none."),
)  # fmt: skip
_DRAIN = (
    Flag("--path --into", "delta.path", _PATH, needed=True),
    Flag("--show", "", "Show the newest N rows of the Delta table at the end.",
         type=int, default=0, metavar="N"),
)  # fmt: skip
_FORWARD = (
    Flag("--to", "sink.queue",
         "Address of the queue that messages go to, unless the transform gives a Destination."),
    Flag("--sink-url", "sink.url", _SINK_URL.format("Its database, if another"),
         variable="SQLQUEUE_SINK_URL"),
    _SINK_LOGIN,
    Flag("--error-queue", "source.errorQueue sink.errorQueue", _ERROR_QUEUE.format("cannot be sent on")),
    *_SENDING,
    Flag("--sql", "forward.sql", "What goes on, and where to: SELECT … FROM messages."),
    Flag("--function", "forward.function", "From DataFrame to DataFrame, in place of --sql.", **_FUNCTION),
)  # fmt: skip
_HANDLE = (
    Flag("--error-queue", "source.errorQueue sink.errorQueue", _ERROR_QUEUE.format("fail"), needed=True),
    _AUDIT,
    *_SENDING,
    Flag("--handler", "handle.handler", "Called for each message.", needed=True, **_FUNCTION),
    Flag("--subscribe", "handle.subscribe", "Type of events that the queue is to have; may be repeated.",
         metavar="EVENT", multiple=True, callback=lambda _, __, events: ";".join(events) or None),
)  # fmt: skip
_ARCHIVE = (
    Flag("--path --into", "archive.path", _PATH, needed=True),
    Flag("--every", "archive.every", "Copy again and again, with this pause between, like 1m.",
         metavar="DURATION"),
    Flag("--take", "archive.take", "Take the messages out of the queue, instead of copying them.",
         is_flag=True),
)  # fmt: skip
_STORE_AND_FORWARD = (
    Flag("--sink-url", "sink.url", _SINK_URL.format("The other database"), variable="SQLQUEUE_SINK_URL",
         needed=True),
    _SINK_LOGIN,
    Flag("--endpoint", "sink.endpoint",
         "Name of the outboxes, one in each database, of this pipeline alone.", needed=True),
    Flag("--error-queue", "sink.errorQueue", _ERROR_QUEUE.format("cannot be delivered"), needed=True),
    _AUDIT,
    Flag("--local-queue", "store-and-forward.localQueue",
         "Address of the queue for messages that do not go to another database."),
    Flag("--handler", "store-and-forward.handler",
         "Called for these messages, in place of --local-queue.", **_FUNCTION),
)  # fmt: skip


@partial(
    Job,
    options={"source": SourceOptions, "delta": DeltaOptions},
    flags=_DRAIN,
    example="drain_to_delta",
    checkpoint=f"Folder of the checkpoint, else {CHECKPOINT} in the table's folder.",
    delta=True,
)
def drain(sections: Sections, show: int) -> Run:
    """Drain a queue table into a Delta table, exactly once."""
    source, delta = sections["source"], sections["delta"]
    own, options = check_mode(source), DeltaOptions.parse(with_checkpoint(delta))
    return Run(
        title=f"drain {own.title} to Delta",
        make_ready=partial(make_ready, own, checkpoint=options.checkpoint),
        start=lambda spark: drain_until_stopped(spark, source, options, show),
    )


def _sending(
    name: str,
    source: Mapping[str, str],
    places: Places,
    options: SendingOptions,
    transform: Callable[[DataFrame, str | None], DataFrame],
    *,
    doing: str,
    **needs: Any,
) -> Run:
    """The run of a job that sends; ``needs`` are further parameters of :func:`make_ready`."""
    own = SourceOptions.parse(source)
    sink = SqlQueueSink.of(places.home, places.away)
    return Run(
        title=f"{name} {own.title}",
        make_ready=partial(make_ready, own, places, checkpoint=options.checkpoint, **needs),
        start=lambda spark: send_until_stopped(spark, source, sink, transform, options, doing=doing),
    )


@partial(
    Job, options={"source": SourceOptions, "sink": SinkOptions, "forward": ForwardOptions}, flags=_FORWARD
)
def forward(sections: Sections) -> Run:
    """Forward the messages of a queue to other queues, each once, or atomically with their receiving."""
    source, sink = agreed(sections["source"], sections["sink"])
    options, places = ForwardOptions.parse(sections["forward"]), places_of(source, sink)
    check_transform(places.home, options)

    def outgoing(messages: DataFrame, queue: str | None) -> DataFrame:
        return as_outgoing(transformed(messages, options), queue)

    return _sending("forward", source, places, options, outgoing, doing="forwarding")


@partial(Job, options={"source": SourceOptions, "sink": SinkOptions, "handle": HandleOptions}, flags=_HANDLE)
def handle(sections: Sections) -> Run:
    """Handle each message of a queue table by a Python function, and send what it answers, each once."""
    source, sink = agreed(sections["source"], sections["sink"])
    options, places = HandleOptions.parse(sections["handle"]), places_of(source, sink)
    check_handling(SourceOptions.parse(source), places.home, options)

    def outcomes(messages: DataFrame, queue: str | None) -> DataFrame:
        return handled(messages, options, queue, places.naming)

    needs = {"retries": options.delayed_retries > 0, "events": options.subscribe}
    return _sending("handle", source, places, options, outcomes, doing="handling", **needs)


@partial(
    Job,
    options={"source": SourceOptions, "archive": ArchiveOptions},
    flags=_ARCHIVE,
    checkpoint="Folder of the checkpoint, with --take.",
    delta=True,
)
def archive(sections: Sections) -> Run:
    """Archive an error or audit queue in a Delta table, each row once: a copy, unless with --take."""
    source, options = sections["source"], ArchiveOptions.parse(sections["archive"])
    own = check_mode(source, NO_TRANSACTION) if options.take else SourceOptions.parse(source)
    if own.several and not options.take:
        raise ConfigurationError(
            f"A copy looks at one queue, and several are named ({own.title}); archive each by itself, or "
            "take their messages with --take."
        )
    return Run(
        title=f"archive {own.title}",
        make_ready=partial(make_ready, own, checkpoint=options.checkpoint if options.take else None),
        start=lambda spark: archive_until_stopped(spark, source, options),
        folders=["path", *(["checkpoint"] if options.take else [])],
    )


@partial(
    Job,
    options={"source": SourceOptions, "sink": SinkOptions, "store-and-forward": StoreAndForwardOptions},
    flags=_STORE_AND_FORWARD,
)
def store_and_forward(sections: Sections) -> Run:
    """Send on what senders have stored for another database, each once, also while a database is down."""
    options = StoreAndForwardOptions.parse(sections["store-and-forward"])
    work = StoreAndForward(sections["source"], sections["sink"], options)
    return Run(
        title=f"store-and-forward {work.own.title}", make_ready=work.make_ready, start=work.run_until_stopped
    )
