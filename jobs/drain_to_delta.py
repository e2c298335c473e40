"""Drain a queue table into a Delta table, exactly once, as ``sqlqueue drain`` does.

``SPARK_CONF_DIR=conf spark-submit jobs/drain_to_delta.py --config conf/drain_to_delta.toml --queue orders``
"""

from sqlqueue_spark.pipeline.declared.jobs import drain

if __name__ == "__main__":
    drain()
