"""What Spark's Java says at its start: what it says at every start is not shown, and what fails is."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from functools import partial

import psutil
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from sqlqueue_spark.pipeline.running.java_start import _show, start_java
from tests.support.waiting import eventually

EVERY_START = """\
WARNING: Using incubator modules: jdk.incubator.vector
:: loading settings :: url = jar:file:/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /root/.ivy2.5.2/cache
The jars for the packages stored in: /root/.ivy2.5.2/jars
io.delta#delta-spark_4.2_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-f5da336e-9fb6-4c09-bf7a-a8954669091f;1.0
\tconfs: [default]
\tfound io.delta#delta-spark_4.2_2.13;4.4.0 in central
downloading https://repo1.maven.org/maven2/io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar ...
\t[SUCCESSFUL ] io.delta#delta-storage;4.4.0!delta-storage.jar (45ms)
:: resolution report :: resolve 1728ms :: artifacts dl 26ms
\t:: modules in use:
\tio.delta#delta-spark_4.2_2.13;4.4.0 from central in [default]
\t:: evicted modules:
\torg.slf4j#slf4j-api;2.0.17 by [org.slf4j#slf4j-api;2.0.13] in [default]
\t---------------------------------------------------------------------
\t|       conf       | number| search|dwnlded|evicted|| number|dwnlded|
\t---------------------------------------------------------------------
:: retrieving :: org.apache.spark#spark-submit-parent-f5da336e-9fb6-4c09-bf7a-a8954669091f
\t0 artifacts copied, 33 already retrieved (0kB/13ms)
"""
FAILED = """\
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: io.delta#delta-spark_4.2_2.13;4.4.0
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: io.delta#delta-spark_4.2_2.13;4.4.0: not found
\t[FAILED     ] io.delta#delta-storage;4.4.0!delta-storage.jar: Read timed out (5ms)
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: delta-spark]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
the last words"""


# pyspark leaves the pipe to a Java that has ended open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_what_fails_is_shown_to_its_last_word(monkeypatch, tmp_path, capfd):
    """In place of Spark's launcher stands one that says these lines and ends."""
    (tmp_path / "said").write_text(EVERY_START + FAILED)
    launcher = tmp_path / "bin" / "spark-submit"
    launcher.parent.mkdir()
    launcher.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        echo "$@" > {tmp_path}/given
        cat {tmp_path}/said >&2
        exit 1
    """)
    )
    launcher.chmod(0o700)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)  # another test may have started one
    for each in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_TESTING"):
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
        start_java({"spark.app.name": "job"})
    assert (capfd.readouterr().err, (tmp_path / "given").read_text()) == (
        FAILED,
        "--conf spark.app.name=job pyspark-shell\n",
    )


def test_a_ctrl_c_while_java_starts_ends_java_and_waits_for_none_of_its_programs(tmp_path):
    """Java hears no Ctrl-C, and would run for ever. A program that it has started holds stderr."""
    launcher = tmp_path / "bin" / "spark-submit"
    launcher.parent.mkdir()
    launcher.write_text(
        f"#!/bin/sh\nsleep 60 &\necho $$ $! > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nwait\n"
    )
    launcher.chmod(0o700)
    module = "from sqlqueue_spark.pipeline.running import java_start as module"
    # A job in the background of a shell ignores it.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{hears}; {module}; module._LAST_WORDS = 0.1; module.start_java({{}})"
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    job = subprocess.Popen(
        [sys.executable, "-c", program], env=theirs | {"SPARK_HOME": str(tmp_path)}, stderr=subprocess.PIPE
    )  # fmt: skip
    try:
        eventually((tmp_path / "pid").exists)
        job.send_signal(signal.SIGINT)
        job.wait(20)
    finally:
        java, program_of_java = map(int, (tmp_path / "pid").read_text().split())
        os.kill(program_of_java, signal.SIGKILL)
        job.kill()
        _, said = job.communicate()
    assert said.endswith(b"KeyboardInterrupt\n")
    eventually(lambda: not psutil.pid_exists(java) or psutil.Process(java).status() == psutil.STATUS_ZOMBIE)


def test_once_java_has_started_all_is_shown_as_it_comes(capfd):
    """Also what looks like a line of the start, and a line that is not at its end."""
    reader, writer = os.pipe()
    started = threading.Event()
    showing = threading.Thread(target=_show, args=(reader, started))
    showing.start()
    said = ""

    def shows(text):
        nonlocal said
        said += capfd.readouterr().err
        return said.endswith(text)

    os.write(writer, f"{EVERY_START}a warning\n".encode())
    eventually(partial(shows, "a warning\n"))
    started.set()
    for text in ("at its start\n", "downloading a model\n", "\r[Stage 1:>"):
        os.write(writer, text.encode())
        eventually(partial(shows, text))
    os.close(writer)
    showing.join()
    assert said == "a warning\nat its start\ndownloading a model\n\r[Stage 1:>"
