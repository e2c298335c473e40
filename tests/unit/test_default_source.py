"""The module that Spark looks up: it is imported whatever is missing, and then says what."""

import runpy
import sys
import warnings

import pytest
from pyspark.sql.datasource import DataSource

from sqlqueue_spark.spark.datasource import SqlQueueDataSource
from tests.support.pages import ROOT

MODULE = str(ROOT / "pyspark_sqlqueue.py")
DATASOURCE = "sqlqueue_spark.spark.datasource"


def test_spark_finds_the_data_source():
    assert runpy.run_path(MODULE)["DefaultSource"] is SqlQueueDataSource


def test_a_package_that_cannot_be_imported_is_told_by_a_warning_and_to_those_who_use_the_format(monkeypatch):
    monkeypatch.setitem(sys.modules, DATASOURCE, None)
    said = (
        f'There is no format("sqlqueue"), for {sys.executable} cannot import sqlqueue_spark '
        f"(ModuleNotFoundError: import of {DATASOURCE} halted; None in sys.modules); sqlqueue doctor says "
        "what to install."
    )
    with pytest.warns() as warned:
        source = runpy.run_path(MODULE)["DefaultSource"]
    assert [str(each.message) for each in warned] == [said]
    assert (issubclass(source, DataSource), source.name()) == (True, "sqlqueue")
    with pytest.raises(RuntimeError) as caught:
        source(options={})
    assert str(caught.value) == said


@pytest.mark.parametrize("error", [ImportError, AttributeError, SyntaxError])
def test_the_look_up_of_other_data_sources_goes_on(monkeypatch, error):
    """Also where warnings are errors."""

    class Broken:
        @property
        def SqlQueueDataSource(self):  # noqa: N802 -- a class's name
            raise error("something is wrong")

    monkeypatch.setitem(sys.modules, DATASOURCE, Broken())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert runpy.run_path(MODULE)["DefaultSource"].name() == "sqlqueue"
