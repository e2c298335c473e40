"""Send on what senders have stored for another database, as ``sqlqueue store-and-forward`` does.

``SPARK_CONF_DIR=conf spark-submit jobs/store_and_forward.py --config conf/store_and_forward.toml``
"""

from sqlqueue_spark.pipeline.declared.jobs import store_and_forward

if __name__ == "__main__":
    store_and_forward()
