"""The tests' Java takes Spark's classes from the archive; it would ignore one that does not fit."""

import os
import subprocess

import pytest

from tests.support.quick_java import archive, quick
from tests.support.spark_home import spark_home


@pytest.mark.timeout(400)
def test_spark_loads_its_classes_from_the_archive(tmp_path):
    assert archive().is_file()
    log = tmp_path / "classes"
    run = subprocess.run(
        [spark_home() / "bin" / "spark-submit", "--version"],
        env=os.environ | quick() | {"SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={log}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "version 4." in run.stderr
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in log.read_text()
