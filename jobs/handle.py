r"""Handle each message of a queue by a Python function, for spark-submit; ``sqlqueue handle`` is the same.

::

    export SQLQUEUE_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/handle.py \
        --config conf/handle.toml --queue orders --handler shop.orders:handle \
        --endpoint Shop.Orders --error-queue error

Its flags: :mod:`sqlqueue_spark.pipeline.jobs`.
"""

from sqlqueue_spark.pipeline.jobs import handle

if __name__ == "__main__":
    handle()
