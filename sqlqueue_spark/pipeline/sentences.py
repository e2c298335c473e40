"""What of an error a person is shown: one sentence."""

from __future__ import annotations

import re

_OURS = re.compile(r"sqlqueue_spark\.errors\.\w+: (?P<sentence>.+)")
_CALLING = re.compile(r"\AAn error occurred while calling \S+\.\n: ")


def sentence_of(error: BaseException) -> str:
    """The one sentence of ours in an error that came through Spark, or the first line of somebody else's."""
    found = list(_OURS.finditer(str(error)))
    if found:
        return found[-1]["sentence"]
    said = _CALLING.sub("", str(error)).strip()
    return (said.splitlines() or [type(error).__name__])[0]
