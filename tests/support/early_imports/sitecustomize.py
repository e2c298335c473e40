"""Lets Spark's Python processes begin as forks (:mod:`tests.support.early_imports.forks`).

Python runs a module of this name at its start if its folder is on PYTHONPATH. https://docs.python.org/3/library/site.html
"""

import sys

#: What Spark starts with ``python -m``: the process from which it forks its workers,
#: and the one that plans a stream.
_PROGRAMS = (
    "pyspark.daemon",
    "sqlqueue_spark.spark.worker_daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
)

if sys.platform == "linux" and sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in _PROGRAMS:
    import forks  # type: ignore[import-not-found] # beside this file

    forks.stand_in()
