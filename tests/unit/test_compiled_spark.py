"""A SPARK_HOME with compiled files where Spark's own has a zip of sources: made once, and only for a Spark from its wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sqlqueue_spark.pipeline import compiled_spark as module
from sqlqueue_spark.pipeline.compiled_spark import compiled_spark

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "sqlqueue"


def kept() -> Path:
    home = compiled_spark()
    assert home is not None
    return home


def test_what_stands_for_the_zip_is_the_installed_package(cache):
    home = kept()
    assert (home.parent, home.name.rpartition("-")[0]) == (cache, f"spark-{pyspark.__version__}")
    zips = sorted(each.name for each in (INSTALLED / "python" / "lib").glob("*.zip"))
    assert sorted(each.name for each in (home / "python" / "lib").iterdir()) == zips
    path = os.pathsep.join(str(home / "python" / "lib" / each) for each in zips)
    said = subprocess.run(
        [sys.executable, "-c", "import os, py4j, pyspark; print(*(os.path.realpath(each.__file__) for each in (py4j, pyspark)))"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True, text=True,
    ).stdout.split()  # fmt: skip
    assert said == [str(INSTALLED.with_name("py4j") / "__init__.py"), str(INSTALLED / "__init__.py")]
    assert {each: (home / each).resolve() for each in ("bin", "jars")} == {
        "bin": INSTALLED / "bin",
        "jars": INSTALLED / "jars",
    }


def test_it_is_made_once(cache):
    home = kept()
    before = home.stat().st_ino
    assert (kept(), home.stat().st_ino) == (home, before)
    assert [each.name for each in cache.iterdir()] == [home.name]  # and nothing half made beside it


def test_of_two_processes_that_make_it_at_once_the_first_one_wins(cache, monkeypatch):
    fill = module._fill

    def slowly(home: Path) -> None:
        fill(home)
        monkeypatch.setattr(module, "_fill", fill)
        other.append(kept())

    other: list[Path] = []
    monkeypatch.setattr(module, "_fill", slowly)
    home = kept()
    assert (other, [each.name for each in cache.iterdir()]) == ([home], [home.name])


def test_where_nothing_can_be_kept_there_is_none(cache):
    cache.touch()
    assert compiled_spark() is None


def test_a_spark_that_is_no_wheel_has_none(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_INSTALLED", tmp_path)
    assert compiled_spark() is None
