"""The doctor without a database: what it says of this machine, and that it goes on whatever it finds."""

import os
import subprocess
import sys
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.engines import drivers as found
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection import doctor
from sqlqueue_spark.inspection.doctor import Check, State, machine_checks
from sqlqueue_spark.inspection.doctor.checks import checked
from sqlqueue_spark.options import ConnectionOptions
from tests.support import recording
from tests.support.installing import OF_MSSQL, OF_POSTGRESQL, OF_SPARK
from tests.support.pages import ROOT

SECRET = "hunter2"
PYODBC_MISSING = recording.pyodbc_missing()
loads_pyodbc = pytest.mark.skipif(PYODBC_MISSING is not None, reason=str(PYODBC_MISSING))
LOCAL = ["python", "java", "spark", "workers", "psycopg", "adbc", "pyodbc", "odbc"]
STEPS = ["network", "login", "database", "queue", "rights"]


def run(*arguments, **environment):
    return CliRunner(env={"SQLQUEUE_URL": None, **environment}).invoke(main, ["doctor", *arguments])


def program(folder, says):
    """A program that says something, in a folder of its own."""
    file = folder / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{says}\n")
    file.chmod(0o755)
    return file


# -- the machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said,expected",
    [
        ("echo 'openjdk version \"17.0.9\" 2023-10-17' >&2", (State.FINE, "17.0.9 (JAVA_HOME)")),
        ("echo 'openjdk version \"21\" 2023-09-19'", (State.FINE, "21 (JAVA_HOME)")),
        ("echo 'java version \"1.8.0_392\"' >&2", (State.WRONG, "is 1.8.0_392; install a JRE 17")),
        ("echo 'openjdk version \"11.0.2\"' >&2", (State.WRONG, "is 11.0.2; install a JRE 17")),
        ("exit 1", (State.WRONG, "is of no version that can be read; install a JRE 17")),
    ],
)
def test_java_is_that_of_java_home_and_17_or_newer(monkeypatch, tmp_path, said, expected):
    program(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = checked("java", machine_checks.java)
    assert (check.state, expected[1] in check.said) == (expected[0], True)


def test_a_place_without_java_is_named(monkeypatch, tmp_path):
    """Be it JAVA_HOME or the PATH."""
    remedy = "install a JRE 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one."
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert checked("java", machine_checks.java).said == (
        f"Java 17 is missing, for JAVA_HOME is {str(tmp_path)!r}, which has no bin/java; {remedy}"
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        checked("java", machine_checks.java).said
        == f"Java 17 is missing, for there is no java on the PATH; {remedy}"
    )


@pytest.mark.parametrize(
    "version,expected",
    [
        ("4.2.0", (State.FINE, "pyspark 4.2.0, as tested")),
        ("4.2.7", (State.FINE, "pyspark 4.2.7 (tested is 4.2.0)")),
        (
            "4.1.0",
            (
                State.FINE,
                "pyspark 4.1.0 (tested is 4.2.0; for the limits of earlier ones see docs/limits.md)",
            ),
        ),
        (
            "3.5.3",
            (State.WRONG, "pyspark is 3.5.3, which streams from no Python source; install pyspark==4.2.0."),
        ),
        (
            None,
            (State.WRONG, "Spark is not installed; install it with: pip install 'pyspark==4.2.0'."),
        ),
    ],
)
def test_spark_is_shown_beside_the_pinned_version(monkeypatch, version, expected):
    def installed(name):
        if name != "pyspark" or version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", installed)
    monkeypatch.setattr(metadata, "requires", lambda _: ["click>=8.1", 'pyspark==4.2.0; extra == "spark"'])
    check = checked("spark", machine_checks.spark)
    assert (check.state, check.said) == expected


def test_the_package_tells_the_pinned_version():
    assert machine_checks.spark() == f"pyspark {metadata.version('pyspark')}, as tested"


@pytest.mark.parametrize(
    "says,complaint",
    [
        ("echo 3 9", "which is Python 3.9"),
        ("echo 3 11 sqlqueue_spark pyarrow", "which lacks sqlqueue_spark and pyarrow"),
        ("exit 1", "which is no Python that runs"),
    ],
)
def test_workers_that_would_not_run_are_found(monkeypatch, tmp_path, says, complaint):
    if "3 11" in says:
        says = says.replace("3 11", "{} {}".format(*sys.version_info[:2]))
    other = program(tmp_path, says)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    assert checked("workers", machine_checks.workers) == Check(
        name="workers",
        state=State.WRONG,
        said=f"Spark starts its workers with {other}, {complaint}; set PYSPARK_PYTHON={sys.executable}.",
    )


@pytest.mark.parametrize(
    "package,remedy", [("pyspark", f"run {OF_SPARK}"), ("pyarrow", "install its pyarrow anew")]
)
def test_a_package_that_workers_cannot_import_is_no_format_that_spark_finds(
    monkeypatch, tmp_path, package, remedy
):
    version = "{} {}".format(*sys.version_info[:2])
    says = f"{version}\nwhy: {package} ImportError cannot import name 'New'\nand a warning"
    other = program(tmp_path, f'cat <<"END"\n{says}\nEND')
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    assert checked("workers", machine_checks.workers) == Check(
        name="workers",
        state=State.WRONG,
        said=f"Spark starts its workers with {other}, which cannot import this package (ImportError cannot "
        f"import name 'New'); {remedy}.",
    )


def test_a_python_says_why_it_cannot_import_the_package(tmp_path):
    """One in which Spark's part is another one."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise RuntimeError('a broken\\nSpark')")
    asked = subprocess.run(
        [sys.executable, "-c", machine_checks._ASKED],
        env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    version = "{} {}".format(*sys.version_info[:2])
    assert asked.stdout == f"{version}\nwhy: pyspark RuntimeError a broken Spark\n"


def test_this_python_can_run_the_workers(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    version = "{}.{}".format(*sys.version_info[:2])
    assert checked("workers", machine_checks.workers) == Check(
        name="workers", state=State.FINE, said=f"Python {version} ({sys.executable})"
    )


# -- drivers --------------------------------------------------------------------------------------


def missing(error):
    def look(*_):
        raise error

    return look


def looking(monkeypatch, **looks):
    """Let these drivers be looked for so."""
    needed = {
        engine: tuple(each._replace(look=looks.get(each.name, each.look)) for each in its)
        for engine, its in found.NEEDED_DRIVERS.items()
    }
    monkeypatch.setattr(found, "NEEDED_DRIVERS", needed)


@pytest.fixture
def without_drivers(monkeypatch):
    looking(
        monkeypatch,
        **{each.name: missing(ModuleNotFoundError()) for each in chain(*found.NEEDED_DRIVERS.values())},
    )


@loads_pyodbc
def test_the_drivers_of_the_tests_are_there():
    assert [each.name for each in machine_checks.drivers_of(POSTGRESQL, None) if each.state is State.FINE][
        :3
    ] == [
        "psycopg",
        "adbc",
        "pyodbc",
    ]


def test_a_missing_driver_is_wrong_only_if_needed(without_drivers):
    of_postgresql = f"It is not installed; install it with: {OF_POSTGRESQL}."
    of_sqlserver = f"It is not installed; install it with: {OF_MSSQL}."
    assert list(machine_checks.drivers_of(POSTGRESQL, "postgresql://db")) == [
        Check(name="psycopg", state=State.WRONG, said=of_postgresql),
        Check(name="adbc", state=State.WRONG, said=of_postgresql),
        Check(name="pyodbc", state=State.OPEN, said=f"{of_sqlserver} Only SQL Server needs it."),
        Check(name="odbc", state=State.OPEN, said="not tried: pyodbc cannot be loaded"),
    ]
    states = [each.state for each in machine_checks.drivers_of(SQLSERVER, "Server=db")]
    assert states == [State.OPEN, State.OPEN, State.WRONG, State.OPEN]


def test_without_a_url_one_engine_must_be_complete(without_drivers, monkeypatch):
    (*_, last) = machine_checks.drivers_of(None, None)
    assert last == Check(
        name="drivers",
        state=State.WRONG,
        said=f"No engine has all its drivers; install those of one with: {OF_POSTGRESQL}, or: {OF_MSSQL}.",
    )
    looking(monkeypatch, psycopg=lambda _: "3", adbc=lambda _: "1")
    assert State.WRONG not in [each.state for each in machine_checks.drivers_of(None, None)]


def test_without_a_url_the_drivers_of_sql_server_are_enough(without_drivers, monkeypatch):
    looking(monkeypatch, pyodbc=lambda _: "5", odbc=lambda _: "ODBC Driver 18 for SQL Server (installed)")
    assert [each.state for each in machine_checks.drivers_of(None, None)] == [
        *[State.OPEN] * 2,
        *[State.FINE] * 2,
    ]


def test_a_missing_library_is_named_with_its_package(monkeypatch):
    looking(monkeypatch, pyodbc=missing(ImportError("libodbc.so.2: cannot open shared object file")))
    (_, _, check, *_) = machine_checks.drivers_of(SQLSERVER, "Server=db")
    assert check.said == "It does not find unixODBC's library; install it (Debian: apt-get install unixodbc)."


@loads_pyodbc
@pytest.mark.parametrize(
    "look", [found.odbc, lambda url: connect(Target.of(ConnectionOptions.parse({"url": url})))]
)
@pytest.mark.parametrize(
    "url,complaint",
    [
        (
            "Driver={No Such};Server=db;PWD=open sesame",
            "The url names the ODBC driver 'No Such', which is not installed; ",
        ),
        (f"Driver={__file__};Server=db;PWD=open sesame", f"The ODBC driver {__file__} cannot be loaded ("),
    ],
)
def test_a_driver_that_a_url_names_must_load(url, complaint, look):
    with pytest.raises(ConfigurationError) as caught:
        look(url)
    assert str(caught.value).startswith(complaint)
    assert "sesame" not in str(caught.value)


@loads_pyodbc
@pytest.mark.parametrize(
    "installed,remedy",
    [
        ([], f"install Microsoft's ({OF_MSSQL})"),
        (["FreeTDS", "Other"], "name one that is (FreeTDS, Other)"),
    ],
)
def test_a_missing_driver_is_told_with_the_remedy(monkeypatch, installed, remedy):
    """With those that are there, or how to get one."""
    monkeypatch.setattr("pyodbc.drivers", lambda: installed)
    with pytest.raises(ConfigurationError) as caught:
        found.odbc("Driver={No Such};Server=db")
    assert str(caught.value) == (
        f"The url names the ODBC driver 'No Such', which is not installed; {remedy}, or leave Driver out of "
        "the url to have one found."
    )


@loads_pyodbc
def test_a_driver_is_shown_with_its_origin(monkeypatch):
    import pyodbc

    monkeypatch.setattr(pyodbc, "drivers", lambda: ["FreeTDS", "ODBC Driver 18 for SQL Server"])
    assert found.odbc("Server=db") == "ODBC Driver 18 for SQL Server (installed); FreeTDS is there too"
    assert found.odbc("DSN=shop") == "the one of the data source that the url names"


# -- the command ----------------------------------------------------------------------------------


def test_without_a_url_only_the_machine_is_checked():
    result = run("orders")
    assert [line.split()[1] for line in result.stdout.splitlines()][: len(LOCAL)] == LOCAL


def test_all_is_well_is_exit_code_0(monkeypatch):
    """And plain text where it goes to no terminal."""
    made = [
        Check(name="java", state=State.FINE, said="17"),
        Check(name="rights", state=State.OPEN, said="not tried: x"),
    ]
    monkeypatch.setattr("sqlqueue_spark.cli.commands.examine", lambda *_, **__: iter(made))
    result = run()
    assert (result.exit_code, result.stdout) == (0, "✓ java        17\n- rights      not tried: x\n")


def test_only_our_own_colours_reach_a_terminal(monkeypatch):
    """Never those of a message."""
    made = [
        Check(name="java", state=State.FINE, said="17"),
        Check(name="queue", state=State.WRONG, said="\x1b[31m"),
    ]
    monkeypatch.setattr("sqlqueue_spark.cli.commands.examine", lambda *_, **__: iter(made))
    result = CliRunner().invoke(main, ["doctor"], color=True)
    assert (result.exit_code, result.stdout) == (
        1,
        "\x1b[32m✓\x1b[0m java        17\n\x1b[31m✗\x1b[0m queue       \\x1b[31m\n",
    )


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/shop",
        f"mssql://me:{SECRET}@127.0.0.1:1/shop",
        f"Server=127.0.0.1,1;Database=shop;UID=me;PWD={SECRET}",
    ],
)
def test_an_unreachable_server_ends_the_checks(url):
    """And no secret is shown."""
    result = run("orders", "--url", url, "--password", SECRET)
    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr, SECRET in result.output) == (1, "", False)
    assert [line.split()[1] for line in lines] == [*LOCAL, *STEPS]
    assert lines[len(LOCAL)].startswith("✗ network     No server answers at 127.0.0.1:1 (")
    assert lines[len(LOCAL) + 1 :] == [f"- {step:10}  not tried: no server answers" for step in STEPS[1:]]


@pytest.mark.parametrize(
    "url", [f"mysql://me:{SECRET}@db", f"postgresql://me:1/{SECRET}@db/shop", f"Server=db;PWD={{{SECRET}"]
)
def test_an_unreadable_url_stops_no_local_check(url):
    result = run("--url", url)
    assert (result.exit_code, result.stderr, SECRET in result.output) == (1, "", False)
    lines = result.stdout.splitlines()
    assert [line.split()[1] for line in lines] == [*LOCAL, "url", *STEPS]
    assert lines[len(LOCAL)].startswith("✗ url         The option url ")


def test_a_url_given_as_the_queue_is_refused():
    """Without being repeated."""
    result = run(f"postgresql://me:{SECRET}@db/shop")
    assert (result.exit_code, SECRET in result.output) == (2, False)


def test_checks_are_made_as_they_are_asked_for(monkeypatch):
    monkeypatch.setattr(machine_checks, "java", missing(AssertionError("not yet")))
    assert next(doctor.examine()).name == "python"


def test_a_name_on_the_path_is_shown_by_its_file(monkeypatch, tmp_path):
    file = program(tmp_path, "echo 'openjdk version \"17.0.9\"'")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{Path(file).parent}{os.pathsep}{os.environ['PATH']}")
    assert checked("java", machine_checks.java).said == f"17.0.9 ({file})"
