"""Spark generates code for the columns of a message, and Java compiles it: once for a stream,
because each new code begins slowly.
"""

from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.pipeline.running.queue_stream import with_message_columns
from tests.support.streams import stream


def test_batches_share_their_code_though_each_has_a_moment_of_its_own(spark, engine, queue, tmp_path):
    queue.insert(6)
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    codes, rows_at = [], []

    def handle(df, _):
        before = compiled.getCount()
        rows_at.append({row[0]: row[1] for row in df.groupBy("IngestedAt").agg(F.count("*")).collect()})
        codes.append(compiled.getCount() - before)

    rows = with_message_columns(stream(spark, engine, queue, maxMessagesPerTrigger="2"))
    query = (
        rows.writeStream.foreachBatch(handle)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert [list(each.values()) for each in rows_at] == [[2], [2], [2]]
    assert len({moment for each in rows_at for moment in each}) == 3
    assert codes[0] > 0
    assert codes[1:] == [0, 0]
