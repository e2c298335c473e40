"""What a shell completes, without a database: commands and options, quickly,
and never a word amid the user's line.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import completion
from sqlqueue_spark.cli import main
from tests.support.asking_server import asking
from tests.support.completing import completed, in_bash, in_fish, in_zsh, needs_fish, needs_zsh

ROOT = Path(__file__).parents[2]
HEAVY = {
    "pyarrow",
    "numpy",
    "pandas",
    "pyspark",
    "psycopg",
    "pyodbc",
    "adbc_driver_manager",
    "sqlqueue_spark.send",
}


def imported_by(program):
    said = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    return set(said.split())


def test_the_commands_import_nothing_that_takes_long():
    """So that a line is completed, and help is shown, before anybody waits for it."""
    imported = imported_by("import sqlqueue_spark.cli")
    assert "sqlqueue_spark.cli.commands" in imported
    assert imported & HEAVY == set()


def test_a_connection_does_not_import_what_only_readers_need():
    imported = imported_by("import sqlqueue_spark.engines.postgresql.connection")
    assert "psycopg" in imported
    assert imported & {"pandas", "pyarrow", "adbc_driver_manager.dbapi"} == set()


def test_the_data_source_imports_no_pandas():
    """Each stream starts a process that imports it. Pandas would take half of the time."""
    imported = imported_by("import pyspark_sqlqueue")
    assert "sqlqueue_spark.spark.datasource" in imported
    assert "pandas" not in imported


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell):
    result = CliRunner().invoke(main, ["completion", shell])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_SQLQUEUE_COMPLETE={shell}_complete" in result.stdout
    assert result.stdout == CliRunner(env={"_SQLQUEUE_COMPLETE": f"{shell}_source"}).invoke(main).stdout


def test_a_shell_that_is_not_known_is_refused():
    result = CliRunner().invoke(main, ["completion", "csh"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'csh' is not one of 'bash', 'zsh', 'fish'." in result.stderr


@pytest.mark.parametrize(
    "line, values",
    [
        ("sqlqueue sub", ["subscribe", "subscriptions"]),
        ("sqlqueue errors d", ["discard"]),
        ("sqlqueue length --default", ["--default-schema"]),
        ("sqlqueue script orders --engine p", ["postgresql"]),
        ("sqlqueue script 'open --eng", []),
    ],
)
def test_bash_completes_commands_and_options(tmp_path, line, values):
    assert in_bash(tmp_path, line) == (values, "")


@needs_fish
def test_fish_completes_commands_and_options(tmp_path):
    assert in_fish(tmp_path, "sqlqueue sub") == ["subscribe", "subscriptions"]
    assert in_fish(tmp_path, "sqlqueue length --default") == ["--default-schema"]


@needs_zsh
def test_zsh_completes_commands(tmp_path):
    in_zsh(tmp_path, "sqlqueue errors disc", "sqlqueue errors discard")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@127.0.0.1:1/shop",
        "mssql://me@127.0.0.1:1/shop",
        "nonsense",
    ],
)
def test_whatever_is_wrong_nothing_is_said(tmp_path, url):
    environment = {"SQLQUEUE_URL": url, "SQLQUEUE_LOG": "debug"}
    assert in_bash(tmp_path, "sqlqueue length o", **environment) == ([], "")


def test_no_person_is_asked_for_a_password(tmp_path):
    with asking() as server:
        assert in_bash(tmp_path, "sqlqueue length o", SQLQUEUE_URL=server.url()) == ([], "")
        assert b"\0me\0" in server.heard


def test_the_environments_password_goes_to_no_other_server(monkeypatch):
    monkeypatch.setenv("SQLQUEUE_PASSWORD", "hunter2")
    with asking() as own, asking() as other:
        monkeypatch.setenv("SQLQUEUE_URL", own.url())
        assert completed("length", "--url", other.url(), "o") == []
        assert completed("length", "o") == []
        assert (b"hunter2" in own.heard, b"hunter2" in other.heard) == (True, False)


def test_a_shell_does_not_wait_for_a_database_that_says_nothing(monkeypatch):
    monkeypatch.setattr(completion, "_SECONDS", 0.1)
    monkeypatch.setattr(completion, "_names", lambda *_, **__: time.sleep(30))
    began = time.monotonic()
    assert completed("length", "--url", "postgresql://me@127.0.0.1:1/shop", "o") == []
    assert time.monotonic() - began < 10
