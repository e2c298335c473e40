"""Forward the messages of a queue table to other queues, each once, as ``sqlqueue forward`` does.

``SPARK_CONF_DIR=conf spark-submit jobs/forward.py --config conf/forward.toml --queue orders --to Billing``
"""

from sqlqueue_spark.pipeline.declared.jobs import forward

if __name__ == "__main__":
    forward()
