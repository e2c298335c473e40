"""Handle each message of a queue table by a Python function, as ``sqlqueue handle`` does.

``SPARK_CONF_DIR=conf spark-submit jobs/handle.py --config conf/handle.toml --handler shop.orders:handle``
"""

from sqlqueue_spark.pipeline.declared.jobs import handle

if __name__ == "__main__":
    handle()
