"""Receiving: one open transaction holds a claim until Spark proves that its batch is done."""

from sqlqueue_spark.receive.before_spark_4_2 import ReceiverBeforeSpark42
from sqlqueue_spark.receive.reading.slice_reader import SliceReader
from sqlqueue_spark.receive.reading.slices import Slice, Task
from sqlqueue_spark.receive.receiver import Receiver

__all__ = ["Receiver", "ReceiverBeforeSpark42", "Slice", "SliceReader", "Task"]
