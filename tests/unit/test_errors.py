"""The one sentence that a user is shown of an error."""

import pytest

from sqlqueue_spark import why
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.send.deliver.tables_of_chunk import DatabaseDown

FOREACH = """[STREAM_FAILED] Query terminated: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the \
user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return \
Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "writer.py", line 1, in __call__
    Error: write(x)

"""

STREAM = "[STREAM_FAILED] Query [id = 3d91f1c5, runId = 69ddb4db] terminated with exception: "
READER = (
    "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source "
    "perform latestOffset: "
)
WORKER = "An exception was thrown from the Python worker:\n"
TRACE = """Traceback (most recent call last):
  File "main.py", line 7, in <lambda>
    return 1 / x
           ~~^~~
"""
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"
ABORTED = (
    "An error occurred while calling o243.parquet.\n: org.apache.spark.SparkException: Job aborted due to "
    "stage failure: Task 1 in stage 2.0 failed 1 times, most recent failure: Lost task 1.0 in stage 2.0 "
    "(TID 4) (localhost executor driver): "
)
BY_ZERO = "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    "text,sentence",
    [
        (
            "[STREAM_FAILED] Query terminated: x\nsqlqueue_spark.errors.QueueError: No table.\n  at",
            "No table.",
        ),
        (
            "An error occurred while calling o44.start.\n: java.io.IOException: Full.\n\tat x",
            "java.io.IOException: Full.",
        ),
        (
            f"{FOREACH}pyspark.errors.exceptions.captured.AnalysisException: [DELTA_MISMATCH] No.\n- More",
            "[DELTA_MISMATCH] No.",
        ),
        (
            (
                f"{FOREACH}py4j.protocol.Py4JJavaError: An error occurred while calling o7.save.\n: "
                "java.io.IOException: Full.\n\tat x"
            ),
            "java.io.IOException: Full.",
        ),
        (f"{FOREACH}KeyError: 'Body'\n\n\tat py4j.x\nCaused by: y", "KeyError: 'Body'"),
        (
            (
                f"{FOREACH}pyspark.errors.exceptions.captured.PythonException: "
                f"{WORKER}{TRACE}{BY_ZERO}\n SQLSTATE: 3"
            ),
            BY_ZERO,
        ),
        (f"{STREAM}{READER}sqlqueue_spark.errors.QueueError: No.\n SQLSTATE: 38000\n=== Query ===", "No."),
        (f"{STREAM}{READER}{DatabaseDown.__module__}.DatabaseDown: No.\n SQLSTATE: 38000", "No."),
        (f"{STREAM}[DELTA_MISMATCH] No.\n=== Streaming Query ===", "[DELTA_MISMATCH] No."),
        (f"[PYTHON_DATA_SOURCE_ERROR] Failed: {TRACE}TypeError: no\n SQLSTATE: 38000", "TypeError: no"),
        (
            f"{TRACE}sqlqueue_spark.errors.QueueError: No.\n{HANDLING}{TRACE}UnboundLocalError: reader\n",
            "No.",
        ),
        (f"{TRACE}KeyError: 'x'\n{HANDLING}{TRACE}ValueError: no x\n", "ValueError: no x"),
        (f"{WORKER}{BY_ZERO}", BY_ZERO),
        (f"\n {WORKER[:-2]}. Please see the stack trace below.\n{WORKER}{BY_ZERO}", BY_ZERO),
        (f"{ABORTED}java.io.IOException: Mkdirs failed: x\n\tat x", "java.io.IOException: Mkdirs failed: x"),
        (
            (
                f"{ABORTED}org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed.\n\tat x"
                "\nCaused by: y\n\tat y\nCaused by: java.io.IOException: Full.\n\tat z"
            ),
            "java.io.IOException: Full.",
        ),
        ("(org.apache.spark.sql.AnalysisException) [PATH_NOT_FOUND] No path.", "[PATH_NOT_FOUND] No path."),
        (f"cut off: {TRACE}", "cut off: Traceback (most recent call last):"),
        ("no_sqlqueue_spark.errors.QueueError: No.", "no_sqlqueue_spark.errors.QueueError: No."),
        (
            f"{WORKER}ModuleNotFoundError: No module named 'sqlqueue_spark'\n\n\tat x",
            (
                "Spark's workers lack the package sqlqueue_spark; install it on each machine of the cluster, "
                "or give its wheel, named .zip, to spark-submit as --py-files."
            ),
        ),
        (
            f"{STREAM} SQLSTATE: XXKST\n=== Streaming Query ===",
            (
                "Spark says no reason; most often the process that reads a source of the query was killed, "
                "by hand or for want of memory. Start the query again."
            ),
        ),
        ("\nFirst line.\nSecond line.", "First line."),
        ("", "ValueError"),
    ],
)
def test_an_errors_sentence_is_ours_or_its_first_line(text, sentence):
    assert why(ValueError(text)) == sentence


def test_the_sentence_of_an_error_of_ours_is_its_text():
    assert why(QueueError("No table.")) == "No table."
    assert why(DatabaseDown("It is down.")) == "It is down."


def test_an_error_that_was_raised_from_another_says_what_ours_among_them_says():
    ours, job = QueueError("No table."), RuntimeError("the job")
    spark = ValueError(f"{STREAM}sqlqueue_spark.errors.QueueError: No queue.")
    job.__cause__ = spark
    assert why(job) == "No queue."
    spark.__cause__ = ours
    assert why(job) == "No queue."
    wrapped = ConfigurationError("The function failed.")
    wrapped.__cause__ = job
    assert why(wrapped) == "The function failed."
    other = RuntimeError("the job")
    other.__cause__ = KeyError("Body")
    assert why(other) == "the job"
    other.__cause__ = other  # ``raise error from error``
    assert why(other) == "the job"


def test_an_error_that_cannot_be_read_is_named():
    """Py4J asks for the text of an error when it is shown, and Java may have ended."""

    class Py4JJavaError(Exception):
        def __str__(self):
            raise ConnectionRefusedError

    assert why(Py4JJavaError()) == "Py4JJavaError"
