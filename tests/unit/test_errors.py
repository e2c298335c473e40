"""The one sentence that a user is shown of an error."""

import pytest

from sqlqueue_spark.errors import sentence_of

FOREACH = """[STREAM_FAILED] Query terminated: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided \
function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent \
call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "writer.py", line 1, in __call__
    Error: write(x)

"""


@pytest.mark.parametrize(
    "text,sentence",
    [
        ("[STREAM_FAILED] Query terminated: x\nsqlqueue_spark.errors.QueueError: No table.\n  at", "No table."),
        ("An error occurred while calling o44.start.\n: java.io.IOException: Full.\n\tat x", "java.io.IOException: Full."),
        (f"{FOREACH}pyspark.errors.exceptions.captured.AnalysisException: [DELTA_MISMATCH] No.\n- More", "[DELTA_MISMATCH] No."),
        (f"{FOREACH}py4j.protocol.Py4JJavaError: An error occurred while calling o7.save.\n: java.io.IOException: Full.\n\tat x", "java.io.IOException: Full."),
        (f"{FOREACH}KeyError: 'Body'\n\n\tat py4j.x\nCaused by: y", "KeyError: 'Body'"),
        ("\nFirst line.\nSecond line.", "First line."),
        ("", "ValueError"),
    ],
)  # fmt: skip
def test_an_errors_sentence_is_ours_or_its_first_line(text, sentence):
    assert sentence_of(ValueError(text)) == sentence
