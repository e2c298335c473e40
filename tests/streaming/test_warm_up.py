"""The write that a job does for nothing while its Spark starts: it leaves nothing behind, and what hinders it does no harm."""

import tempfile
from contextlib import nullcontext
from unittest import mock

import pytest

from sqlqueue_spark.pipeline.warm_up import warm_up


def warmed_up(spark):
    writing = warm_up(spark)
    assert writing is not None
    writing.join()


def test_it_writes_into_a_table_of_its_own(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda **_: nullcontext(str(tmp_path)))
    warmed_up(spark)
    assert spark.read.format("delta").load(str(tmp_path / "warm-up")).count() == 1


def test_it_leaves_nothing_behind(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    warmed_up(spark)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_a_place_to_write_to_nothing_happens(spark, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    warmed_up(spark)


@pytest.mark.parametrize("master", ["yarn", "spark://here:7077", None])
def test_a_cluster_is_not_warmed_up(master):
    """Its workers have no such folder."""
    assert warm_up(mock.Mock(sparkContext=mock.Mock(master=master))) is None
