"""The connection over which workers read Arrow from PostgreSQL."""

import os
import subprocess
import sys

import pytest
from adbc_driver_manager import DataError

from sqlqueue_spark.engines.postgresql.arrow_connection import ArrowConnection

_READS = """
import os, sys
from sqlqueue_spark.engines.postgresql.arrow_connection import ArrowConnection
connection = ArrowConnection(os.environ["SQLQUEUE_URL"])
with connection.read("SELECT 1 AS one", 1_000) as rows:
    print(rows.read_all().to_pylist())
connection.close()
print(sorted({"pandas", "pyarrow.dataset"} & sys.modules.keys()))
"""


@pytest.fixture
def connection(postgresql):
    opened = ArrowConnection(postgresql.url)
    yield opened
    opened.close()


def test_a_worker_that_reads_imports_no_pandas(postgresql):
    """It would take longer than all else that it imports."""
    environment = os.environ | {"SQLQUEUE_URL": postgresql.url}
    ran = subprocess.run(
        [sys.executable, "-c", _READS], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["[{'one': 1}]", "[]"]


def test_an_error_in_the_middle_of_a_stream_is_the_servers(connection):
    text = "SELECT 1 / (50000 - number) FROM generate_series(1, 100000) AS number"
    with pytest.raises(DataError) as caught, connection.read(text, 1_000) as rows:
        rows.read_all()
    assert caught.value.sqlstate == "22012"
    with connection.read("SELECT 1 AS one", 1_000) as rows:
        assert rows.read_all().to_pylist() == [{"one": 1}]


def test_a_connection_is_closed_though_a_reader_still_reads(connection):
    """As a task that is given up in the middle of a slice does."""

    def numbers():
        with connection.read("SELECT generate_series(1, 100000)", 1_000) as rows:
            yield from rows

    reading = numbers()
    assert next(reading).num_rows > 0
    connection.close()
    reading.close()
    assert list(reading) == []
