"""The README's example in Python runs as it is printed."""

import re
from pathlib import Path
from typing import Any

from tests.support.streams import end

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_stream_of_the_readme_runs_as_printed(spark, postgresql, tmp_path, monkeypatch):
    (program,) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    queue = postgresql.create_queue()
    queue.insert(3)
    monkeypatch.setenv("SQLQUEUE_URL", postgresql.url)
    monkeypatch.chdir(tmp_path)
    # Spark takes relative paths from where its JVM was started, not from here.
    printed = '"checkpoints/orders-to-console"'
    assert program.count(printed) == 1
    names: dict[str, Any] = {}
    exec(program.replace(printed, repr(str(tmp_path / "checkpoint"))), names)  # noqa: S102 -- what a reader would type
    end(names["query"])
    assert names["query"].exception() is None
    assert names["messages"].columns == ["Id", "CorrelationId", "ReplyToAddress", "Recoverable", "Expires", "Headers", "Body", "RowVersion"]  # fmt: skip
    assert (names["query"].lastProgress.numInputRows, queue.count()) == (3, 0)
