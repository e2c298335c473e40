#!/usr/bin/env bash
# Runs the tests of streams, of writing and of Spark's options on another version of Spark, in an environment of its own:
# spark.sh SPARK
# A run to the end of what is there is one micro-batch before Spark 4.2, so what drains in one run is left out. PySpark 4.1
# leaves sockets to be closed by the garbage collector.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=".venv/spark-$1"
[ -x "$venv/bin/pip" ] || .venv/bin/python -m venv "$venv"
requirements/install.sh "$venv/bin/python" dev
requirements/install.sh "$venv/bin/python" "spark-$1"
PYSPARK_PYTHON="$PWD/$venv/bin/python" PYSPARK_DRIVER_PYTHON="$PWD/$venv/bin/python" \
    "$venv/bin/python" -m pytest tests/streaming/test_before_spark_4_2.py tests/streaming/test_sink.py \
    tests/streaming/test_stream_writer.py tests/streaming/test_options_of_spark.py tests/streaming/test_installing.py \
    tests/faults/test_core_before_spark_4_2.py -k "not is_forwarded and not goes_out_once_and and not spark_runs_again" \
    -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
