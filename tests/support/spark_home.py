"""The SPARK_HOME of the tests, whose Python processes start quickly (:mod:`sqlqueue_spark.pipeline.compiled_spark`)."""

import functools
import os
import sys
from pathlib import Path

import pyspark

from sqlqueue_spark.pipeline.compiled_spark import made


@functools.cache
def spark_home() -> Path:
    """The folder, beside the virtual environment's other files; this makes it if it is not there."""
    return made(Path(sys.prefix) / f"spark-home-{pyspark.__version__}")


def python_path(*folders: object) -> str:
    """A PYTHONPATH with these folders, before those of our own; with it Spark's Python processes begin as forks
    (:mod:`tests.support.early_imports.forks`).
    """
    ours = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(map(str, (Path(__file__).with_name("early_imports"), *folders, *ours)))
