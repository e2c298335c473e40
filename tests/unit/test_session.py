"""What a job starts Spark with: the settings of conf that the user leaves open;
and what is missing is said.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from unittest import mock

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from sqlqueue_spark.errors import ConfigurationError, SqlQueueError
from sqlqueue_spark.pipeline.running import delta_lake, settings_files
from sqlqueue_spark.pipeline.running import session as module
from sqlqueue_spark.pipeline.running.delta_lake import fetched, remember
from sqlqueue_spark.pipeline.running.readiness import check_file, check_folder, check_machine
from sqlqueue_spark.pipeline.running.session import session
from tests.support.installing import OF_SPARK
from tests.support.jobs import ROOT
from tests.support.other_user import as_root, as_user
from tests.support.sparks import DELTA

JAVA = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseParallelGC -XX:NewSize=256m -XX:MetaspaceSize=256m "
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
LOG = f"-Dlog4j2.configurationFile={(settings_files.CONF / 'log4j2.properties').as_uri()}"
LOGGED = {"spark.driver.extraJavaOptions": f"{JAVA} {LOG}"}
SHARED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": JAVA,
}
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
WITHOUT_DELTA = {
    **SHARED,
    "spark.sql.shuffle.partitions": "4",
    "spark.python.daemon.module": "sqlqueue_spark.spark.worker_daemon",
}
WITH_DELTA = {
    **WITHOUT_DELTA,
    "spark.jars.packages": DELTA,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
VARIABLES = (
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_REMOTE",
    *module._JAVA_VARIABLES,
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "SPARK_LOCAL_IP",
    "PYTHONSAFEPATH",
)


class Started(Exception):
    """Spark would start."""


class Builder:
    """Spark's, until it would start."""

    def __init__(self):
        self.settings = {}

    def appName(self, name):  # noqa: N802 -- Spark's name
        self.settings["name"] = name
        return self

    def config(self, *, map):
        self.settings |= map
        return self

    def getOrCreate(self):  # noqa: N802 -- likewise
        raise Started


@pytest.fixture
def builder(monkeypatch, tmp_path):
    """In a process where no Spark runs, and none is configured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for each in VARIABLES:
        monkeypatch.setenv(each, "")  # so that it is as before at the end, also where it was not there
        monkeypatch.delenv(each)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(module, "start_java", lambda _: None)
    return SparkSession.builder


def started(builder, *, delta=True, **more):
    with pytest.raises(Started):
        session("job", delta=delta, **more)
    return builder.settings


def missing_settings(*, delta):
    """What a session is given beside what the user's file says."""
    theirs = settings_files.settings_in(settings_files.users_folder())
    return module.missing_settings(theirs, delta=delta)


def test_without_configuration_it_is_that_of_conf(builder):
    assert started(builder) == {"name": "job", **WITH_DELTA, **LOGGED}
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    said = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    assert settings_files.settings_in(settings_files.CONF) == said


def test_a_job_without_a_table_needs_no_delta(builder):
    assert started(builder, delta=False) == {"name": "job", **WITHOUT_DELTA, **LOGGED}
    assert started(builder, delta=False, settings={"spark.master": "local[4]"})["spark.master"] == "local[4]"


@pytest.mark.parametrize("variable", ["PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"])
def test_what_others_start_is_left_as_it_is(builder, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert started(builder) == {"name": "job"}
    assert "PYSPARK_PYTHON" not in os.environ


def test_what_the_user_has_set_stays(builder, monkeypatch, tmp_path):
    """The rest is filled in; on a cluster but for what is good for one machine."""
    (tmp_path / "log4j2.xml").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert started(builder) == {"name": "job", **WITH_DELTA}
    lines = (
        "#spark.sql.session.timeZone UTC",
        "  spark.sql.session.timeZone\tEurope/Vienna",
        "spark.jars.packages=a:b:1",
        "spark.sql.catalog.spark_catalog : mine  ",
        "",
        "spark.master yarn",
        "spark.app.name = two words ",
    )
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    assert missing_settings(delta=True) == {
        "spark.sql.extensions": WITH_DELTA["spark.sql.extensions"],
        "spark.jars.packages": f"a:b:1,{DELTA}",
        "spark.ui.showConsoleProgress": "false",
    }
    assert settings_files.settings_in(tmp_path) == {
        "spark.sql.session.timeZone": "Europe/Vienna",
        "spark.jars.packages": "a:b:1",
        "spark.sql.catalog.spark_catalog": "mine",
        "spark.master": "yarn",
        "spark.app.name": "two words",
    }


def test_a_list_of_the_user_that_has_delta_stays(builder, monkeypatch, tmp_path):
    """Neither is a jar fetched that is there."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    settings = tmp_path / "spark-defaults.conf"
    settings.write_text(f"spark.jars.packages {DELTA},a:b:1\nspark.sql.extensions mine\n")
    found = missing_settings(delta=True)
    assert "spark.jars.packages" not in found
    assert found["spark.sql.extensions"] == f"mine,{WITH_DELTA['spark.sql.extensions']}"
    settings.write_text("spark.jars /here/delta-spark_4.2_2.13-4.4.0.jar\n")
    assert "spark.jars.packages" not in missing_settings(delta=True)
    settings.unlink()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert missing_settings(delta=True)["spark.jars.packages"] == DELTA
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    assert "spark.jars.packages" not in missing_settings(delta=True)


def test_jars_that_were_fetched_are_not_asked_for_again(builder, tmp_path):
    """Unless one of them is gone, or the user names others."""
    jars = [tmp_path / "delta one.jar", tmp_path / "two.jar"]
    for each in jars:
        each.touch()
    urls = ",".join(each.as_uri() for each in jars)
    remember(DELTA, urls)
    without = {name: value for name, value in WITH_DELTA.items() if name != "spark.jars.packages"}
    assert missing_settings(delta=True) == {**without, "spark.jars": urls, **LOGGED}
    assert missing_settings(delta=False) == {**WITHOUT_DELTA, **LOGGED}
    (note,) = (tmp_path / "cache" / "sqlqueue").iterdir()
    assert note.name == "io.delta-delta-spark_4.2_2.13-4.4.0.jars"
    jars[0].unlink()
    assert missing_settings(delta=True) == {**WITH_DELTA, **LOGGED}


def test_only_jars_on_this_machine_are_noted(builder, tmp_path):
    """And where no note can be written, nothing is said."""
    remember(DELTA, "")
    remember(DELTA, "s3a://lake/delta.jar")
    assert not (tmp_path / "cache").exists()
    (tmp_path / "cache").touch()
    remember(DELTA, (tmp_path / "cache").as_uri())
    assert fetched(DELTA) is None


@pytest.mark.parametrize("theirs,noted", [("spark.jars /mine.jar", False), ("spark.master local", True)])
def test_jars_of_the_user_are_not_noted_as_those_of_delta(builder, monkeypatch, tmp_path, theirs, noted):
    """Spark lists all jars together, and a later start would bring a jar that the user no longer names."""
    (tmp_path / "spark-defaults.conf").write_text(theirs)
    (tmp_path / "all.jar").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    jars = (tmp_path / "all.jar").as_uri()
    monkeypatch.setattr(Builder, "getOrCreate", lambda _: mock.Mock(conf={"spark.jars": jars}))
    monkeypatch.setattr(delta_lake, "check_delta", lambda _: None)
    session("job")
    assert fetched(DELTA) == (jars if noted else None)


@pytest.mark.parametrize("installed", [True, False])
def test_a_session_without_delta_is_refused_with_what_to_start_it_with(monkeypatch, installed):
    """Also where Delta's wheel is not installed, as beside spark-submit."""
    monkeypatch.setattr(delta_lake, "lacks_delta", lambda _: "its jar is not there")
    if not installed:
        monkeypatch.setattr(delta_lake, "_delta_version", lambda: None)
    with pytest.raises(ConfigurationError) as caught:
        delta_lake.check_delta(mock.Mock())
    assert str(caught.value) == (
        "This Spark session has no Delta Lake (its jar is not there); start it with: spark-submit "
        f"--packages {DELTA} --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
        "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog, or set "
        "spark.jars.packages and these two in the spark-defaults.conf of SPARK_CONF_DIR."
    )


@pytest.mark.parametrize(
    "settings,lacking",
    [
        ({}, "spark.sql.extensions does not name io.delta.sql.DeltaSparkSessionExtension"),
        (
            {"spark.sql.extensions": "mine"},
            "spark.sql.extensions does not name io.delta.sql.DeltaSparkSessionExtension",
        ),
        ({"spark.sql.extensions": EXTENSION}, "spark.sql.catalog.spark_catalog is not set"),
        ({"spark.sql.extensions": f"mine,{EXTENSION}", "spark.sql.catalog.spark_catalog": "theirs"}, None),
    ],
)
def test_delta_needs_its_two_settings(monkeypatch, settings, lacking):
    """The catalog may be another one that knows Delta."""
    monkeypatch.setattr(delta_lake, "knows", lambda *_: True)
    monkeypatch.setattr(delta_lake, "is_reachable", lambda _: True)
    assert delta_lake.lacks_delta(mock.Mock(conf=settings)) == lacking


def test_a_log_that_the_environment_configures_stays(builder, monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g -Dlog4j2.configurationFile=mine.xml")
    assert missing_settings(delta=False) == WITHOUT_DELTA


@pytest.mark.parametrize("variable", [*module._JAVA_VARIABLES, None])
def test_java_that_the_user_has_tuned_is_not_tuned_again(builder, monkeypatch, tmp_path, variable):
    """It would not start with two collectors."""
    if variable is None:
        (tmp_path / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -XX:+UseZGC")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    else:
        monkeypatch.setenv(variable, "-Xmx2g -XX:+UseZGC")
    assert missing_settings(delta=False)["spark.driver.extraJavaOptions"] == LOG


def test_java_is_tuned_beside_an_archive_of_classes(builder, monkeypatch):
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/here/spark.jsa -Xshare:auto")
    assert missing_settings(delta=False) == {**WITHOUT_DELTA, **LOGGED}


def test_workers_run_in_the_python_of_the_job(builder, monkeypatch):
    """And import nothing from its folder first. Unless another one is named."""
    started(builder)
    told = [os.environ[each] for each in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")]
    assert told == [sys.executable, sys.executable, "127.0.0.1"]
    assert os.environ["PYTHONSAFEPATH"] == "1"
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    started(builder)
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYTHONSAFEPATH"]) == ("mine", "")


@pytest.mark.parametrize(
    "spark,delta,package",
    [
        ("4.0.1", "4.0.0", "io.delta:delta-spark_2.13:4.0.0"),
        ("4.1.0", "4.1.0", "io.delta:delta-spark_4.1_2.13:4.1.0"),
        ("4.2.0", "4.4.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_the_jar_is_that_of_the_wheels(monkeypatch, spark, delta, package):
    monkeypatch.setattr(pyspark, "__version__", spark)
    monkeypatch.setattr(delta_lake, "version", lambda _: delta)
    assert delta_lake.delta_package() == package


def test_without_deltas_wheel_the_remedy_is_said(builder, monkeypatch):
    """Where it is this process that brings Delta."""

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(delta_lake, "version", missing)
    with pytest.raises(ConfigurationError) as caught:
        check_machine()
    assert str(caught.value) == (
        f"Delta Lake is not installed (there is no package delta-spark); install it with: {OF_SPARK}."
    )
    check_machine(delta=False)
    assert started(builder, delta=False) == {"name": "job", **WITHOUT_DELTA, **LOGGED}
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages io.delta:… pyspark-shell")
    check_machine()


def test_without_java_the_remedy_is_said(builder, monkeypatch):
    """Unless Spark runs elsewhere."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(
        SqlQueueError, match=r"^Java 17 is missing, for JAVA_HOME is '/nowhere'.*; install a JRE"
    ):
        check_machine(delta=False)
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    check_machine(delta=False)


def test_a_spark_that_does_not_start_is_said(builder, monkeypatch):
    """With what may be in its way."""

    def exited(_):
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(Builder, "getOrCreate", exited)
    with pytest.raises(ConfigurationError) as caught:
        session("job", delta=False)
    assert str(caught.value) == "Spark did not start; what it said stands above."
    with pytest.raises(ConfigurationError) as caught:
        session("job")
    assert str(caught.value) == (
        f"Spark did not start; what it said stands above. The first time it fetches {DELTA} from Maven's "
        "repository; where there is no way to that, name a mirror in the file of the setting "
        "spark.jars.ivySettings, or bring the jars with spark.jars."
    )


def test_the_admin_commands_import_no_spark():
    """Nor does the help that lists the jobs."""
    program = (
        "import sys; from sqlqueue_spark.cli import main; main(['--help'], standalone_mode=False); "
        "print('pyspark' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^  drain ", said, re.MULTILINE)
    assert said.endswith("\nFalse\n")


def test_a_folder_that_cannot_be_written_is_said_before_spark_starts(builder, monkeypatch, tmp_path):
    """With the file that is in its place. What lies elsewhere, or may lie there, is left to Spark."""
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "below" / "orders")

    def refused(path):
        with pytest.raises(ConfigurationError) as caught:
            check_machine(delta=False, folders={"checkpoint": path})
        return str(caught.value)

    for path in (below, f"file:{below}"):
        assert refused(path) == (
            f"The option checkpoint is {path!r}, and {tmp_path / 'file'} is a file; name a folder."
        )
    monkeypatch.chdir(tmp_path)
    assert refused("file").endswith(f"and {tmp_path / 'file'} is a file; name a folder.")
    check_machine(delta=False, folders={"path": "new/folder", "checkpoint": "s3a://lake/c"})
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    for variable in ("HADOOP_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "/etc/hadoop")
            check_machine(delta=False, folders={"path": below})
    (tmp_path / "spark-defaults.conf").write_text("spark.hadoop.fs.defaultFS hdfs://here")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    check_machine(delta=False, folders={"path": below})


@pytest.mark.parametrize(
    "path, there, said",
    [
        ("/proc/nope", "/proc", "No such file or directory"),
        ("{here}/new/" + 256 * "x", "{here}", "File name too long"),
    ],
)
def test_a_folder_that_the_system_does_not_make_is_said_before_spark_starts(tmp_path, path, there, said):
    """No right forbids it. What was made to try it is gone."""
    path, there = path.format(here=tmp_path), there.format(here=tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        check_folder("The option path", path)
    assert (str(caught.value), [*tmp_path.iterdir()]) == (
        (
            f"The option path is {path!r}, and this user cannot write into {there} ({said}); name another "
            "folder, or have that allowed."
        ),
        [],
    )


@as_root
def test_a_folder_of_another_user_is_said_before_spark_starts(tmp_path):
    def work():
        with pytest.raises(ConfigurationError) as caught:
            check_folder("The option path", "/root/lake/orders")
        assert str(caught.value) == (
            "The option path is '/root/lake/orders', and this user cannot write into /root (Permission "
            "denied); name another folder, or have that allowed."
        )

    as_user("nobody", work)


@pytest.mark.parametrize(
    "path, said",
    [
        ("{here}", "The option stopFile is '{here}', which is a folder; name a file."),
        (
            "{here}/file/stop",
            (
                "The option stopFile is '{here}/file/stop'; its folder is '{here}/file', and {here}/file is "
                "a file; name a folder."
            ),
        ),
    ],
)
def test_a_file_that_cannot_be_made_is_said_before_spark_starts(tmp_path, path, said):
    (tmp_path / "file").touch()
    check_file("The option stopFile", f"{tmp_path}/new/stop")
    with pytest.raises(ConfigurationError) as caught:
        check_file("The option stopFile", path.format(here=tmp_path))
    assert str(caught.value) == said.format(here=tmp_path)


def test_a_working_folder_that_is_gone_is_said(builder, monkeypatch, tmp_path):
    """Java would say that it has no version."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigurationError) as caught:
        check_machine(delta=False)
    assert str(caught.value) == (
        "The working folder cannot be used (No such file or directory); change into another one."
    )


def test_deltas_jars_need_a_folder(builder, monkeypatch, tmp_path):
    """Where Spark would fetch them."""
    (tmp_path / "file").touch()
    (tmp_path / "spark-defaults.conf").write_text(f"spark.jars.ivy {tmp_path}/file")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        check_machine()
    assert str(caught.value) == (
        f"Spark's setting spark.jars.ivy is '{tmp_path}/file', and {tmp_path}/file is a file; name a folder."
    )
    check_machine(delta=False)
