"""What ``import sqlqueue_spark`` offers, and ``python -m sqlqueue_spark``."""

import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import sqlqueue_spark

PUBLIC = {
    "Outbox",
    "SqlQueueSink",
    "__version__",
    "errors",
    "functions",
    "handling",
    "options",
    "pipeline",
    "register",
    "send",
    "why",
}


def fresh(program, *arguments):
    """What a new Python process prints."""
    return subprocess.run(
        [sys.executable, *(arguments or ("-c", program))],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_all_that_is_public_is_named_before_it_is_imported():
    """And neither Spark nor a driver is imported for it."""
    program = "import sqlqueue_spark, sys; print(*dir(sqlqueue_spark)); print(*sys.modules)"
    names, imported = (line.split() for line in fresh(program).splitlines())
    assert set(sqlqueue_spark.__all__) == PUBLIC
    assert set(names) >= PUBLIC
    assert names == sorted(names)
    assert {"pyspark", "pyarrow", "psycopg", "sqlqueue_spark.errors"} & set(imported) == set()


def test_all_that_is_public_is_there():
    kinds = {name: type(getattr(sqlqueue_spark, name)) for name in PUBLIC}
    assert kinds == {
        "Outbox": type,
        "SqlQueueSink": type,
        "__version__": str,
        "register": FunctionType,
        "send": FunctionType,
        "why": FunctionType,
        **dict.fromkeys(("errors", "functions", "handling", "options", "pipeline"), ModuleType),
    }


def test_send_is_the_function_though_a_room_has_its_name():
    """Also where the room of that name is imported. It needs neither Spark nor a driver."""
    program = """
import sys
sys.modules["pyspark"] = None
import sqlqueue_spark.send.compose.database_of_address
from sqlqueue_spark import send
print(send.__module__, sqlqueue_spark.send is send)
print(sys.modules["sqlqueue_spark.send"].__name__, "psycopg" in sys.modules)"""
    assert fresh(program).split() == [
        "sqlqueue_spark.administration.python_send",
        "True",
        "sqlqueue_spark.send",
        "False",
    ]


def test_no_other_name_is_there():
    with pytest.raises(AttributeError, match="module 'sqlqueue_spark' has no attribute 'Sink'"):
        sqlqueue_spark.Sink  # noqa: B018 -- to ask for it is what fails


def test_the_package_runs_as_the_command():
    assert (
        fresh("", "-m", "sqlqueue_spark", "--version") == f"sqlqueue, version {sqlqueue_spark.__version__}\n"
    )
