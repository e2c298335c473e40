"""Puts source, transform and sink together: a job, a notebook and a test run the same three lines.

::

    with stoppable(source) as (stopping, stop_file, done_file):
        query = send(as_outgoing(read_queue(spark, stopping)), SqlQueueSink(options=sink), checkpoint)
        run_until_stopped(spark, query, stop_file, done_file=done_file)
"""

from sqlqueue_spark.pipeline.declared.handle import HandleOptions, handled
from sqlqueue_spark.pipeline.declared.pipeline_options import agreed
from sqlqueue_spark.pipeline.declared.store_and_forward import StoreAndForwardOptions, store_and_forward
from sqlqueue_spark.pipeline.declared.transform import ForwardOptions, transformed
from sqlqueue_spark.pipeline.delta.archive import ArchiveOptions, archived, copy_to_delta, take_to_delta
from sqlqueue_spark.pipeline.delta.delta_stream import DeltaOptions, drain_to_delta, write_delta
from sqlqueue_spark.pipeline.running.batch_report import Totals, progress_line
from sqlqueue_spark.pipeline.running.queue_stream import as_outgoing, read_queue, send, with_message_columns
from sqlqueue_spark.pipeline.running.readiness import check_ready, create_missing, subscribe
from sqlqueue_spark.pipeline.running.sending_job import send_until_stopped
from sqlqueue_spark.pipeline.running.stop import run_until_stopped, stoppable

__all__ = [
    "ArchiveOptions", "DeltaOptions", "ForwardOptions", "HandleOptions",
    "StoreAndForwardOptions", "Totals", "agreed", "archived", "as_outgoing",
    "check_ready", "copy_to_delta", "create_missing", "drain_to_delta", "handled", "progress_line",
    "read_queue", "run_until_stopped", "send", "send_until_stopped", "stoppable",
    "store_and_forward", "subscribe", "take_to_delta", "transformed", "with_message_columns", "write_delta",
]  # fmt: skip
