"""Source → transform → sink, put together: what a job, a notebook and a test run is the same three lines.

::

    query = write_delta(with_message_columns(read_queue(spark, source)), delta)
    run_until_stopped(spark, query, stop_file)

    query = send(as_outgoing(read_queue(spark, source)), SqlQueueSink(options=sink), checkpoint)
    run_until_stopped(spark, query, stop_file)
"""

from sqlqueue_spark.pipeline.agreement import agreed
from sqlqueue_spark.pipeline.flow import (
    DeltaOptions,
    as_outgoing,
    read_queue,
    send,
    with_message_columns,
    write_delta,
)
from sqlqueue_spark.pipeline.running import Totals, progress_line, run_until_stopped, stoppable
from sqlqueue_spark.pipeline.sentences import sentence_of
from sqlqueue_spark.pipeline.transform import ForwardOptions, transformed

__all__ = [
    "DeltaOptions", "ForwardOptions", "Totals", "agreed", "as_outgoing", "progress_line", "read_queue", "run_until_stopped",
    "send", "sentence_of", "stoppable", "transformed", "with_message_columns", "write_delta",
]  # fmt: skip
