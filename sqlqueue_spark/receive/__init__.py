"""Receiving: a claim held in one open transaction until Spark proves the batch is done."""

from sqlqueue_spark.receive.following import Follower
from sqlqueue_spark.receive.receiver import Receiver
from sqlqueue_spark.receive.slices import Slice, SliceReader, TakingSlice
from sqlqueue_spark.receive.taking import Taker

__all__ = ["Follower", "Receiver", "Slice", "SliceReader", "Taker", "TakingSlice"]
