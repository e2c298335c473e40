"""An error of ours leaves a process of Spark without stack traces. All other errors keep them."""

import inspect
import logging
import os
from unittest import mock

import pytest
from pyspark.errors import PySparkException

from sqlqueue_spark.errors import ConnectionLost, QueueError
from sqlqueue_spark.spark import (
    datasource,
    error_boundary,
    readers,
    send_task,
    stream_reader,
    writers,
)
from sqlqueue_spark.spark.error_boundary import sentence_first, shorten

#: The classes whose methods Spark calls.
CALLED = (
    *(datasource.SqlQueueDataSource, readers.SqlQueuePeekReader, readers.StreamReaderBeforeSpark42),
    *(stream_reader.SqlQueueStreamReader, writers.SqlQueueWriter, writers.SqlQueueStreamWriter),
    *(send_task.SendTask, datasource.SomeRowsSource),
)


@sentence_first
class Reader:
    def read(self, error):
        """:param error: what it raises."""
        raise error

    def rows(self, error):
        yield 1
        raise error


@pytest.fixture
def of_spark(monkeypatch):
    """Let this be a process of Spark, and give its environment."""
    monkeypatch.setattr(error_boundary, "is_of_spark", lambda: True)
    with mock.patch.dict(os.environ):
        yield os.environ


@pytest.mark.parametrize(
    "error,hidden", [(QueueError("No table."), "1"), (KeyError("Body"), None), (AssertionError(), None)]
)
def test_only_an_error_of_ours_is_told_without_its_stack_trace(of_spark, error, hidden):
    with pytest.raises(type(error)):
        Reader().read(error)
    assert of_spark.pop("SPARK_HIDE_TRACEBACK", None) == hidden
    with pytest.raises(type(error)):
        list(Reader().rows(error))
    assert of_spark.get("SPARK_HIDE_TRACEBACK") == hidden


def test_stack_traces_stay_with_the_level_debug(of_spark, caplog):
    caplog.set_level(logging.DEBUG, "sqlqueue_spark")
    with pytest.raises(QueueError):
        Reader().read(QueueError("No table."))
    assert "SPARK_HIDE_TRACEBACK" not in of_spark


def test_a_stream_that_has_no_reader_says_so_when_it_is_asked(of_spark):
    """Spark's own code looks at ``latestOffset`` first, and stops the reader at last."""

    @sentence_first
    class Source:
        def streamReader(self):  # noqa: N802 -- Spark's name
            raise QueueError("No table.")

    reader = Source().streamReader()
    with pytest.raises(QueueError, match=r"No table\."):
        reader.latestOffset  # noqa: B018 -- to ask for it is what fails
    assert (reader.stop(), of_spark["SPARK_HIDE_TRACEBACK"]) == (None, "1")


def test_a_process_of_a_user_is_left_alone():
    """Else Spark's processes that it starts would hide the stack traces of a user's functions."""
    with pytest.raises(QueueError):
        Reader().read(QueueError("No table."))
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_rows_that_are_read_no_further_are_closed():
    closed = []

    @sentence_first
    class Rows:
        def rows(self):
            try:
                yield 1
            finally:
                closed.append(True)

    rows = Rows().rows()
    assert next(rows) == 1
    rows.close()
    assert closed == [True]


def test_all_that_spark_calls_is_told_so():
    """And it takes what it took, for Spark looks how many arguments ``latestOffset`` has."""
    bare = {
        (kind.__name__, name)
        for kind in CALLED
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if name[0] != "_" and method.__module__.startswith("sqlqueue_spark.")
        if not hasattr(method, "__wrapped__")
    }
    assert bare == set()
    latest = inspect.signature(stream_reader.SqlQueueStreamReader.latestOffset)
    assert list(latest.parameters) == ["self", "start", "limit"]


@pytest.mark.parametrize(
    "error, above",
    [
        (QueueError("No table."), "SqlQueueError('No table.')"),
        (PySparkException("In a worker:\nsqlqueue_spark.errors.QueueError: No."), "SqlQueueError('No.')"),
        (PySparkException("A mistake of the user's."), "None"),
    ],
)
def test_what_a_callback_raises_has_no_stack_trace_but_our_sentence_above_it(error, above):
    caught = raised(error)
    shorten(caught)
    assert (caught.__traceback__, caught.__suppress_context__) == (None, True)
    assert repr(caught.__cause__) == above


def test_what_is_no_sentence_keeps_its_stack_trace(caplog):
    error = raised(TypeError("a mistake of ours"))
    shorten(error)
    assert (error.__traceback__ is None, type(error.__cause__)) == (False, ConnectionLost)
    caplog.set_level(logging.DEBUG, "sqlqueue_spark")
    error = raised(QueueError("No table."))
    shorten(error)
    assert (error.__traceback__ is None, type(error.__cause__)) == (False, ConnectionLost)


def raised(error):
    try:
        raise error from ConnectionLost("The cause.")
    except type(error) as caught:
        return caught
