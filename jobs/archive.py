"""Archive an error or audit queue in a Delta table, for spark-submit; ``sqlqueue archive`` is the same.

::

    export SQLQUEUE_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/archive.py --config conf/archive.toml --queue error

Its flags: :mod:`sqlqueue_spark.pipeline.jobs`.
"""

from sqlqueue_spark.pipeline.jobs import archive

if __name__ == "__main__":
    archive()
