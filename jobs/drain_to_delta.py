"""Drain a queue table into a Delta table, exactly once, for spark-submit; ``sqlqueue drain`` is the same.

::

    export SQLQUEUE_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/drain_to_delta.py --config conf/drain_to_delta.toml --queue orders

Its flags: :mod:`sqlqueue_spark.pipeline.jobs`.
"""

from sqlqueue_spark.pipeline.jobs import drain

if __name__ == "__main__":
    drain()
