r"""Forward the messages of a queue table to other queues, each once, for spark-submit; ``sqlqueue forward`` is the same.

::

    export SQLQUEUE_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/forward.py \
        --config conf/forward.toml --queue orders --to Billing --endpoint Forward.Orders

What it does, and every flag: :mod:`sqlqueue_spark.pipeline.forward_job`.
"""

from sqlqueue_spark.pipeline.forward_job import main

if __name__ == "__main__":
    main()
