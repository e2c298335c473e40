"""Apache Spark as a full citizen of message systems that live in SQL tables."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from sqlqueue_spark.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from sqlqueue_spark import errors, functions, handling, options, pipeline
    from sqlqueue_spark.administration.python_send import send
    from sqlqueue_spark.errors import why
    from sqlqueue_spark.spark.sink import SqlQueueSink
    from sqlqueue_spark.tables.outbox import Outbox

__all__ = ["Outbox", "SqlQueueSink", "__version__",
           "errors", "functions", "handling", "options", "pipeline", "register", "send", "why"]  # fmt: skip

_MODULES = ("errors", "functions", "handling", "options", "pipeline")
_HOMES = {
    "Outbox": "sqlqueue_spark.tables.outbox",
    "SqlQueueSink": "sqlqueue_spark.spark.sink",
    "send": "sqlqueue_spark.administration.python_send",
    "load_ipython_extension": "sqlqueue_spark.spark.error_boundary",
    "unload_ipython_extension": "sqlqueue_spark.spark.error_boundary",
    "why": "sqlqueue_spark.errors",
}


class _Package(ModuleType):
    """Keeps ``send`` the function, also when the room of the same name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "send" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    """Import what is public when it is first asked for: the command line needs no Spark."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All that is public, imported or not."""
    return sorted({*globals(), *__all__})


def register(spark: SparkSession, *, allowed: Collection[str] = ()) -> None:
    """Make ``format("sqlqueue")`` known to a session by hand, for ``--py-files``, or to allow code. Through
    Spark Connect the package must be installed on the server.

    :param allowed: what of this machine the options of this session may name, options in SQL too: an
        ``accessTokenProvider`` by its name, a parameter of a url as ``keyword=value``
        (``sslrootcert=/etc/ca.pem``, ``Trusted_Connection=yes``), a login that a driver takes from the
        machine by its variable (``PGSSLCERT``). Without this argument they may name what ``SQLQUEUE_ALLOWED``
        has in the environment of Spark's driver, with commas between: nothing by default.
    """
    from sqlqueue_spark.spark.datasource import allow

    allow(spark, allowed)
