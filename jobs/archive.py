"""Archive an error or audit queue in a Delta table, as ``sqlqueue archive`` does.

``SPARK_CONF_DIR=conf spark-submit jobs/archive.py --config conf/archive.toml --queue error``
"""

from sqlqueue_spark.pipeline.declared.jobs import archive

if __name__ == "__main__":
    archive()
