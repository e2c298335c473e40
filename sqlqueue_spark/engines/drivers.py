"""The database drivers of this machine: which there are, and whether they can be loaded.

Each function that looks says in a few words what it found. It raises an :class:`ImportError` where the driver
is not there or cannot be loaded.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.engines.sqlserver.odbc_driver import Driver, driver_of, find_driver
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.version import pip_install


class NeededDriver(NamedTuple):
    """A driver that an engine needs. ``look`` is given the url if it is one of that engine's, else None."""

    name: str
    look: Callable[[str | None], str]
    #: The driver that loads this one.
    loader: str | None = None


def psycopg() -> str:
    from psycopg import __version__, pq

    libpq = pq.version()
    return f"{__version__} ({pq.__impl__}, libpq {libpq // 10_000}.{libpq % 10_000})"


def adbc() -> str:
    import adbc_driver_manager  # noqa: F401 -- it opens the driver
    import adbc_driver_postgresql  # noqa: F401 -- shows that it can be loaded

    return version("adbc-driver-postgresql")


def pyodbc() -> str:
    import pyodbc as found  # this opens unixODBC's library

    return f"{found.version} and the driver manager"


def odbc(url: str | None) -> str:
    """The ODBC driver that connections to SQL Server go through, or would go through.

    :raises ConfigurationError: there is no driver, or the one that the url names is not installed, or it
        cannot be loaded.
    """
    import pyodbc

    installed = pyodbc.drivers()
    driver = find_driver(installed) if url is None else driver_of(OdbcString.of(url), installed)
    if driver is None:
        return "the one of the data source that the url names"
    check_opens(driver, installed)
    others = [name for name in installed if name.lower() == "freetds" and not driver.is_freetds]
    return f"{driver.name} ({driver.origin})" + "".join(f"; {name} is there too" for name in others)


def check_opens(driver: Driver, installed: Sequence[str]) -> None:
    """Refuse a driver that unixODBC would not be able to open.

    :param installed: the names that the driver manager knows.
    :raises ConfigurationError: the driver is not there, or it misses a library; the message says which.
    """
    if driver.name in installed:
        return
    if "/" not in driver.name or not Path(driver.name).is_file():
        remedy = (
            f"name one that is ({', '.join(installed)})"
            if installed
            else f"install Microsoft's ({pip_install(SQLSERVER.extra)})"
        )
        raise ConfigurationError(
            f"The url names the ODBC driver {driver.name!r}, which is not installed; {remedy}, or leave "
            "Driver out of the url to have one found."
        )
    try:
        ctypes.CDLL(driver.name)
    except OSError as error:
        raise ConfigurationError(
            f"The ODBC driver {driver.name} cannot be loaded ({error}); install the library that it misses "
            "(Debian: apt-get install unixodbc libgssapi-krb5-2)."
        ) from error


def remedy(engine: Dialect, error: ImportError) -> str:
    """Why a driver cannot be loaded, and what to do, behind a name or an ``It``."""
    if "libodbc" in str(error):
        return "does not find unixODBC's library; install it (Debian: apt-get install unixodbc)."
    why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded ({error})"
    return f"{why}; install it with: {pip_install(engine.extra)}."


NEEDED_DRIVERS: Mapping[Dialect, Sequence[NeededDriver]] = {
    POSTGRESQL: (NeededDriver("psycopg", lambda _: psycopg()), NeededDriver("adbc", lambda _: adbc())),
    SQLSERVER: (NeededDriver("pyodbc", lambda _: pyodbc()), NeededDriver("odbc", odbc, loader="pyodbc")),
}
