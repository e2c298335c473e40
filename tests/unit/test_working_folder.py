"""A file in the working folder takes the place of no module; a user's own modules are found there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sqlqueue_spark.options.named_module import imported
from tests.support.jobs import ROOT

EVIL = "raise SystemExit('a file of the working folder was run')"


@pytest.fixture
def folder(tmp_path):
    """One in which another user has put modules."""
    for each in ("click", "psycopg", "struct"):
        (tmp_path / f"{each}.py").write_text(EVIL)
    return tmp_path


def said(folder, *command, **environment):
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_command_runs_no_file_of_the_working_folder(folder):
    assert said(folder, "-m", "sqlqueue_spark", "--help").startswith("Usage: sqlqueue")


def test_the_daemon_of_the_workers_runs_no_file_of_the_working_folder_and_has_it_last(folder):
    """Spark starts it with this variable. Here it prints its path instead of listening."""
    begun = "import runpy, sys, pyspark.daemon as d; d.manager = lambda: print(*sys.path, sep='\\n')"
    run = "runpy.run_module('sqlqueue_spark.spark.worker_daemon', run_name='__main__')"
    path = said(folder, "-c", f"{begun}; {run}", PYTHONSAFEPATH="1").splitlines()
    assert [path.index(each) for each in path if each == str(folder)] == [len(path) - 1]


def test_a_module_is_found_in_the_working_folder_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    (tmp_path / "shop_of_mine.py").write_text("def place(message): ...")
    (tmp_path / "colorsys.py").write_text(EVIL)
    assert Path(str(imported("shop_of_mine").__file__)) == tmp_path / "shop_of_mine.py"
    assert sys.path[-1] == str(tmp_path)
    assert Path(str(imported("colorsys").__file__)).parent != tmp_path
    imported("shop_of_mine")
    assert sys.path.count(str(tmp_path)) == 1
