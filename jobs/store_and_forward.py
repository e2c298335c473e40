"""Send what is stored for another database, for spark-submit; ``sqlqueue store-and-forward`` is the same.

::

    export SQLQUEUE_URL=postgresql://… SQLQUEUE_SINK_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/store_and_forward.py --config conf/store_and_forward.toml

Its flags: :mod:`sqlqueue_spark.pipeline.jobs`.
"""

from sqlqueue_spark.pipeline.jobs import store_and_forward

if __name__ == "__main__":
    store_and_forward()
