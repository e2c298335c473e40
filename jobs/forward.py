r"""Forward the messages of a queue table to other queues, for spark-submit; ``sqlqueue forward`` is the same.

::

    export SQLQUEUE_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/forward.py \
        --config conf/forward.toml --queue orders --to Billing --endpoint Forward.Orders

Its flags: :mod:`sqlqueue_spark.pipeline.jobs`.
"""

from sqlqueue_spark.pipeline.jobs import forward

if __name__ == "__main__":
    forward()
