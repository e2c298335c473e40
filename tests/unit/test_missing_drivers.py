"""A machine that lacks a driver: the remedy names what is missing, and what needs no driver runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sqlqueue_spark.engines import open_connection as connecting
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from tests.support.installing import OF_MSSQL, OF_POSTGRESQL

ROOT = Path(__file__).parents[2]
NO_UNIXODBC = "libodbc.so.2: cannot open shared object file: No such file or directory"
MSSQL = "mssql://me@127.0.0.1:1/shop"


@pytest.mark.parametrize(
    "url,error,sentence",
    [
        (
            MSSQL,
            ImportError(NO_UNIXODBC),
            (
                "The driver for SQL Server does not find unixODBC's library; install it (Debian: apt-get "
                "install unixodbc)."
            ),
        ),
        (
            MSSQL,
            ModuleNotFoundError("No module named 'pyodbc'"),
            f"The driver for SQL Server is not installed; install it with: {OF_MSSQL}.",
        ),
        (
            "postgresql://me@127.0.0.1:1/shop",
            ImportError("no pq wrapper available"),
            (
                "The driver for PostgreSQL cannot be loaded (no pq wrapper available); install it with: "
                f"{OF_POSTGRESQL}."
            ),
        ),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(monkeypatch, url, error, sentence):
    def missing(_name):
        raise error

    monkeypatch.setattr(connecting, "import_module", missing)
    with pytest.raises(ConfigurationError) as caught:
        connect(Target(url=url))
    assert str(caught.value) == sentence


def without_unixodbc(folder, *command):
    (folder / "pyodbc.py").write_text(f"raise ImportError({NO_UNIXODBC!r})")
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, *command],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
    )


@pytest.mark.parametrize("program", ["drain", "send"])
def test_the_benchmarks_of_postgresql_need_no_unixodbc(tmp_path, program):
    ended = without_unixodbc(tmp_path, f"benchmarks/{program}.py", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_benchmark_of_sql_server_says_what_it_needs(tmp_path):
    ended = without_unixodbc(tmp_path, "benchmarks/drain.py", "--url", MSSQL)
    assert (ended.returncode, ended.stderr) == (
        1,
        (
            "The driver for SQL Server does not find unixODBC's library; "
            "install it (Debian: apt-get install unixodbc).\n"
        ),
    )
