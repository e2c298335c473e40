"""A Delta table read by its log: Spark takes seconds to plan that.

A table holds the files that its log has added and not removed.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def column(table: Path, name: str) -> list[Any]:
    """The values of a column, in no order; the table was only ever written to, by few commits."""
    paths: dict[str, None] = {}
    for version in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text().splitlines()):
            if "protocol" in action:
                assert action["protocol"]["minReaderVersion"] == 1, "a file of the table holds what is in it"
            if "add" in action:
                paths[action["add"]["path"]] = None
            if "remove" in action:
                del paths[action["remove"]["path"]]
    files = (table / unquote(path) for path in paths)
    return [value for file in files for value in pq.read_table(file, columns=[name])[name].to_pylist()]
