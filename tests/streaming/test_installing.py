"""The package is installed: ``format("sqlqueue")`` is there.

Where that look-up is missing, ``register`` does it.
"""

import sqlqueue_spark
from sqlqueue_spark.spark.datasource import SqlQueueDataSource


def test_nothing_needs_to_be_registered(spark, postgresql):
    """No test registers this name."""
    queue = postgresql.create_queue()
    queue.insert(2)
    frame = spark.read.format("sqlqueue").options(url=postgresql.url, queue=queue.address).load()
    assert frame.count() == 2


def test_a_session_can_register_the_source_by_hand(spark, postgresql, monkeypatch):
    """Under another name, because its own is found anyway."""

    class ByHand(SqlQueueDataSource):
        @classmethod
        def name(cls) -> str:
            return "by_hand"

    queue = postgresql.create_queue()
    queue.insert(2)
    monkeypatch.setattr("sqlqueue_spark.spark.datasource.SqlQueueDataSource", ByHand)
    sqlqueue_spark.register(spark)
    frame = spark.read.format("by_hand").options(url=postgresql.url, queue=queue.address).load()
    assert frame.count() == 2
