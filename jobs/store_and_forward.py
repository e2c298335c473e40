"""Send on what senders have stored for another database, for spark-submit; ``sqlqueue store-and-forward`` is the same.

::

    export SQLQUEUE_URL=postgresql://… SQLQUEUE_SINK_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/store_and_forward.py --config conf/store_and_forward.toml

What it does, and every flag: :mod:`sqlqueue_spark.pipeline.store_and_forward_job`.
"""

from sqlqueue_spark.pipeline.store_and_forward_job import main

if __name__ == "__main__":
    main()
