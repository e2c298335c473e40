"""What is installed comes under its own name. This package is on no index: who took its name there could run code."""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from sqlqueue_spark.version import __version__, pip_install
from tests.support.installing import OF_DEMO, OF_MSSQL, OF_POSTGRESQL, OF_SPARK
from tests.support.pages import ROOT, page

#: This package as an index would know it: with extras, or behind ``pip``. A path to it is none.
FROM_AN_INDEX = re.compile(
    r"\bpip3?\b[^\n`/]*\bsqlqueue[-_.]?spark\b|(?<![\w/])sqlqueue[-_.]?spark *\[", re.IGNORECASE
)
FOLDERS = (".ci", ".github", "benchmarks", "conf", "docs", "jobs", "notebooks", "sqlqueue_spark", "tests")
#: The extras of one another, which the build resolves, and the examples below.
NAMED = {"pyproject.toml", "tests/unit/test_installing.py"}


def texts() -> Iterator[Path]:
    files = [*ROOT.glob("*"), *(file for each in FOLDERS for file in (ROOT / each).rglob("*"))]
    kinds = {".conf", ".ipynb", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml", ""}
    return (each for each in files if each.is_file() and each.suffix in kinds)


@pytest.mark.parametrize(
    "extra,command",
    [("postgresql", OF_POSTGRESQL), ("mssql", OF_MSSQL), ("spark", OF_SPARK), ("demo", OF_DEMO)],
)
def test_an_extra_is_installed_by_the_names_of_its_packages(extra, command):
    assert pip_install(extra) == command


def test_files_without_metadata_lead_to_a_clone(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert pip_install("spark") == "pip install '.[spark]' in a clone of this package"


@pytest.mark.parametrize(
    "text,found",
    [
        ("pip install 'sqlqueue_spark[spark]'", True),
        ("pip install -U sqlqueue-spark", True),
        ("the package with its extras, `sqlqueue_spark[sqlserver,notebooks]`", True),
        ("pip install dist/sqlqueue_spark-0.3.0-py3-none-any.whl", False),
        ("pip install 'dist/sqlqueue_spark-0.3.0-py3-none-any.whl[spark]'", False),
        ("pip install 'pyspark==4.2.0'", False),
    ],
)
def test_what_would_be_asked_of_an_index_is_known(text, found):
    assert bool(FROM_AN_INDEX.search(text)) == found


def test_no_text_asks_an_index_for_this_package():
    wrong = [
        f"{name}: {match[0]}"
        for file in texts()
        if (name := str(file.relative_to(ROOT))) not in NAMED
        for match in FROM_AN_INDEX.finditer(file.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_the_wheel_that_the_pages_name_is_the_one_that_is_built():
    assert re.findall(r"sqlqueue_spark-([\w.]+)-py3-none-any", page("docs/running.md").text) == [__version__]


def test_no_requirement_of_this_package_is_this_package():
    assert [each for each in metadata.requires("sqlqueue_spark") or [] if each.startswith("sqlqueue")] == []
