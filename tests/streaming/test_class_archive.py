"""The archive of Java's classes: Spark starts from it, and who could not use one is told so before anything is made."""

import re
import shlex
import subprocess

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.pipeline.class_archive import archive_file, with_archive
from tests.support.quick_java import archive
from tests.support.spark_home import spark_home

#: What ``java -version`` prints.
VERSION = re.compile("openjdk version|OpenJDK")


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache of our own, for the tests' Spark."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.setenv("SPARK_HOME", str(spark_home()))
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    return tmp_path / "a cache" / "sqlqueue"


def test_spark_loads_its_classes_from_the_archive(cache, monkeypatch, tmp_path):
    file = archive_file(spark_home())
    cache.mkdir(parents=True)
    file.symlink_to(archive())
    log = tmp_path / "classes"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", with_archive(f"-Xlog:class+load:file={log}", spark_home()))
    said = subprocess.run(
        [spark_home() / "bin" / "spark-submit", "--version"], capture_output=True, text=True, check=True
    )
    assert "version 4." in said.stderr
    classes = log.read_text()
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in classes


def test_what_is_no_archive_of_this_class_path_is_passed_over_in_silence(cache, tmp_path):
    cache.mkdir(parents=True)
    file = archive_file(spark_home())
    file.symlink_to(archive())
    assert started(tmp_path) == ("", 0)
    file.unlink()
    file.write_bytes(b"rubbish" * 1000)
    assert started(tmp_path) == ("", 0)


def started(class_path):
    """What Java says, and its exit code, where it starts with the archive and another class path than that of Spark."""
    options = shlex.split(with_archive("", spark_home()))
    run = subprocess.run(
        ["java", *options, "-cp", class_path, "-version"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return "".join(line for line in run.stderr.splitlines() if not VERSION.match(line)), run.returncode


@pytest.mark.parametrize(
    "variable,value", [("JDK_JAVA_OPTIONS", "-XX:+UseZGC"), ("SPARK_CONF_DIR", "{tmp_path}")]
)
def test_who_could_not_use_one_is_told_so(cache, monkeypatch, tmp_path, variable, value):
    (tmp_path / "spark-defaults.conf").write_text("spark.master yarn")
    monkeypatch.setenv(variable, value.format(tmp_path=tmp_path))
    result = CliRunner().invoke(main, ["class-archive"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: The jobs would not use an archive, for Spark runs on a cluster or its Java has options of yours; to use one, add "
        "-XX:ArchiveClassesAtExit=FILE to them for a job that ends, and -XX:SharedArchiveFile=FILE from then on.\n"
    )
    assert not cache.exists()


def test_a_folder_with_files_in_the_class_path_is_named(cache, monkeypatch, tmp_path):
    (tmp_path / "spark-defaults.conf").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    result = CliRunner().invoke(main, ["class-archive"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: Java makes no archive where a folder of its class path has files, as {tmp_path} has, with which Spark's begins; make it, "
        "and run the jobs, without that folder (SPARK_CONF_DIR).\n"
    )
    assert not cache.exists()


def test_where_spark_does_not_start_there_is_no_archive(cache, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    result = CliRunner().invoke(main, ["class-archive"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: Java has made no archive of classes; what was said last: ")
    assert list(cache.glob("classes-*")) == []
