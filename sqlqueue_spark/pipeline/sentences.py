"""What of an error a person is shown: one sentence."""

from __future__ import annotations

import re

_OURS = re.compile(r"sqlqueue_spark\.errors\.\w+: (?P<sentence>.+)")
_CALLING = re.compile(r"\A(py4j\.protocol\.Py4JJavaError: )?An error occurred while calling \S+\.\n: ")
#: What a ``foreachBatch`` function raised, below the lines of its stack.
_RAISED = re.compile(
    r"Return Message: Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(?P<error>[A-Za-z_][\w.]*: .*)",
    re.DOTALL,
)
_CAPTURED = re.compile(r"\Apyspark\.errors\.[\w.]+: ")


def sentence_of(error: BaseException) -> str:
    """The one sentence of ours in an error that came through Spark, or the first line of somebody else's."""
    text = str(error)
    found = list(_OURS.finditer(text))
    if found:
        return found[-1]["sentence"]
    raised = _RAISED.search(text)
    said = _CAPTURED.sub("", _CALLING.sub("", (raised["error"] if raised else text).strip()))
    return (said.splitlines() or [type(error).__name__])[0]
