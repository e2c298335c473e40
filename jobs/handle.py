r"""Handle each message of a queue table by a Python function, for spark-submit; ``sqlqueue handle`` is the same.

::

    export SQLQUEUE_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/handle.py \
        --config conf/handle.toml --queue orders --handler shop.orders:handle --endpoint Shop.Orders --error-queue error

What it does, and every flag: :mod:`sqlqueue_spark.pipeline.handle_job`.
"""

from sqlqueue_spark.pipeline.handle_job import main

if __name__ == "__main__":
    main()
