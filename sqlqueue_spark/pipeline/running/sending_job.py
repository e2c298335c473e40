"""Sends, until stopped, what a transform makes of the messages of a queue, for the three jobs that send."""

from collections.abc import Callable, Mapping
from functools import partial

import click
from pyspark.sql import DataFrame, SparkSession

from sqlqueue_spark.engines.engine_of_url import dialect_of
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import NO_OUTBOX, SourceOptions
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.pipeline.running.batch_report import Totals
from sqlqueue_spark.pipeline.running.changed_options import JobNote
from sqlqueue_spark.pipeline.running.checkpoint_folder import Files
from sqlqueue_spark.pipeline.running.configuration import SendingOptions
from sqlqueue_spark.pipeline.running.delayed_delivery import delivering, waiting_for
from sqlqueue_spark.pipeline.running.missing_outcomes import check_outcomes
from sqlqueue_spark.pipeline.running.queue_stream import keeps_state, read_queue, send
from sqlqueue_spark.pipeline.running.slow_down import slowing_down
from sqlqueue_spark.pipeline.running.stop import run_until_stopped, stoppable
from sqlqueue_spark.plain_text import plain
from sqlqueue_spark.receive.holding.done_file import GIVEN_BACK, file_beside
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.spark.sink import SqlQueueSink

#: The rows of the first batch where each may take long.
_FEW = "300"


def send_until_stopped(
    spark: SparkSession,
    source: Mapping[str, str],
    queues: SqlQueueSink,
    transform: Callable[[DataFrame, str | None], DataFrame],
    options: SendingOptions,
    *,
    doing: str,
) -> Totals:
    """Send what a transform makes of a queue's messages, and print how it goes.

    Where a function is called for each message, the first batch is small, and the job slows down while most
    messages fail.

    :param source: options of the source; ``queues`` is the sink, and ``options`` are those of the job.
    :param transform: makes of the stream what the sink sends. It is also given the queue's canonical address,
        or None where the column ``Queue`` holds it.
    :param doing: begins the first line.
    """
    home = queues.places.home
    own = SourceOptions.parse(source)
    dialect = dialect_of(own.url)
    knows_rows = {}
    # The source looks for the outbox in its own default schema.
    beside = home.naming(dialect).default_schema == own.naming(dialect).default_schema
    if home.uses_outbox and beside and own.outbox_endpoint is None:
        knows_rows = {"outboxEndpoint": home.sender or ""}
    calls = options.calls_for_each_message
    if calls and said(source, "firstMessagesPerTrigger") is None:
        source = {**source, "firstMessagesPerTrigger": _FEW}
    with stoppable(source) as (stopping, stop_file, done_file):
        queue = None if own.queue is None else str(own.naming(dialect).table(own.queue))
        messages = transform(read_queue(spark, {**stopping, **knows_rows}), queue)
        # What the state has taken in must not come again: it would count twice, or be dropped as a duplicate.
        stateful = keeps_state(messages)
        if own.outbox_endpoint is not None and (stateful or home.outbox == NO_OUTBOX):
            why = "the transform keeps a state" if stateful else "the option outbox is none"
            raise ConfigurationError(
                f"The option outboxEndpoint is {own.outbox_endpoint!r}, by which rows of a logged batch may "
                f"come again, and {why}, so that they would count or be sent twice; leave it out."
            )
        if stateful and knows_rows:
            messages = transform(read_queue(spark, stopping), queue)
        # A wrong column fails now rather than with the first batch.
        columns = FrameColumns.of(messages.dtypes, home)
        if columns.outcomes and not stateful:  # a state may give an outcome in a later batch
            queues.check = partial(check_outcomes, done_file)
        if queues.databases is None and not stateful:
            queues.databases = waiting_for(own, queues.places)
        queues.stopped = stop_file.exists
        places, databases = queues.places, queues.databases
        files = None if getattr(spark, "_jvm", None) is None else Files(spark)  # Connect reaches no file
        note = None if files is None else JobNote(files, options.checkpoint, own, places, databases)
        if databases is not None:
            databases.look()
        if note is not None:
            note.came_back = False  # the query takes what came back before it began
        with delivering(own, places, databases) as delivery:
            sink = slowing_down(queues, stop_file) if calls else queues
            query = send(messages, sink, options.checkpoint, available_now=options.available_now)
            click.echo(plain(f"{doing} queue={own.title}"))
            totals = run_until_stopped(
                spark,
                query,
                stop_file,
                click.echo,
                done_file=done_file,
                details=lambda number: (queues.details(number) + delivery.details()).strip(),
            )
            lost = file_beside(done_file, GIVEN_BACK).exists()
    if note is not None:
        note.end(stopped=totals.stopped, available_now=options.available_now, given_back=lost)
    click.echo(f"received={totals.messages} {totals}")
    return totals
