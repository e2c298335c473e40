"""Reads a Delta table by its log, because Spark takes seconds to plan that.

A table holds the files that its log has added and not removed.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def column(table: Path, name: str) -> list[Any]:
    """The values of a column, in no order.

    This works for a table that was only ever written to, by few commits.
    """
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


def by_batch(table: Path, name: str) -> dict[int, list[Any]]:
    """The values of a column, by the number of the batch in which one streaming query wrote them.

    A query adds the number of a batch to the commit, as the version of a transaction of its own.
    """
    found: dict[int, list[Any]] = {}
    queries = set()
    for version in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in version.read_text().splitlines()]
        assert not any("remove" in action for action in actions), "nothing was removed from the table"
        for transaction in (action["txn"] for action in actions if "txn" in action):
            queries.add(transaction["appId"])
            assert transaction["version"] not in found, f"batch {transaction['version']} was written twice"
            files = (table / unquote(action["add"]["path"]) for action in actions if "add" in action)
            found[transaction["version"]] = [
                value for file in files for value in pq.read_table(file, columns=[name])[name].to_pylist()
            ]
    assert len(queries) <= 1, f"these queries wrote to the table: {queries}"
    return found
