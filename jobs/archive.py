"""Archive an error or audit queue in a Delta table, for spark-submit; ``sqlqueue archive`` is the same.

::

    export SQLQUEUE_URL=postgresql://…
    SPARK_CONF_DIR=conf spark-submit jobs/archive.py --config conf/archive.toml --queue error

What it does, and every flag: :mod:`sqlqueue_spark.pipeline.archive_job`.
"""

from sqlqueue_spark.pipeline.archive_job import main

if __name__ == "__main__":
    main()
