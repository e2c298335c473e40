"""Which ODBC driver connects to SQL Server: the one that is named, else the best one here."""

import functools
import importlib.util
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.version import pip_install


@dataclass(frozen=True, kw_only=True)
class Driver:
    """An ODBC driver: its name or its file, where it comes from, and the version of a driver of Microsoft."""

    name: str
    origin: str
    version: int | None = None

    @property
    def is_freetds(self) -> bool:
        return re.search("(?i)freetds|tdsodbc", self.name) is not None


NEWEST = 18
_MICROSOFTS = re.compile(r"ODBC Driver (1[78]) for SQL Server")
#: The wheels that hold Microsoft's driver, and where in them it lies:
#: libs/<system>/<distribution>/<processor>/lib.
_WHEELS = ("mssql_python_odbc", "mssql_python")
#: For all other distributions there is debian_ubuntu.
_DISTRIBUTIONS = {"rhel": "rhel", "fedora": "rhel", "suse": "suse", "alpine": "alpine"}


def find_driver(installed: Sequence[str]) -> Driver:
    """The driver for a connection string that names none.

    Microsoft's driver 18 or 17 if one is installed, else the one in Microsoft's wheel, else FreeTDS.

    :param installed: the names that the driver manager knows, as ``pyodbc.drivers()`` tells.
    :raises ConfigurationError: there is no driver; the message says how to get one.
    """
    found = {int(match[1]): name for name in installed if (match := _MICROSOFTS.fullmatch(name))}
    if found:
        version, name = max(found.items())
        return Driver(name=name, version=version, origin="installed")
    for wheel in _WHEELS:
        if (file := _inside(wheel)) is not None:
            return Driver(name=str(file), version=NEWEST, origin=f"wheel {wheel.replace('_', '-')}")
    free = next((name for name in installed if name.lower() == "freetds"), None)
    if free is None:
        raise ConfigurationError(
            "There is no ODBC driver for SQL Server; install Microsoft's with: "
            f"{pip_install('mssql')}, or its package msodbcsql18."
        )
    return Driver(name=free, origin="installed")


def driver_of(text: OdbcString, installed: Sequence[str]) -> Driver | None:
    """The driver that a connection is made with; None where a data source decides.

    :raises ConfigurationError: the connection string names no driver, and none is installed.
    """
    if (named := text.get("Driver")) is None:
        return None if text.get("DSN") is not None else find_driver(installed)
    match = _MICROSOFTS.fullmatch(named) or re.search(r"msodbcsql[-.]?(1[78])", named)
    return Driver(name=named, origin="named", version=int(match[1]) if match else None)


@functools.cache
def _inside(wheel: str) -> Path | None:
    """The file of Microsoft's driver for this system, inside a wheel."""
    spec = importlib.util.find_spec(wheel)  # this imports nothing: the wheel's own code would open libraries
    if spec is None or not spec.submodule_search_locations:
        return None
    processor = {"aarch64": "arm64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine())
    system = {"Linux": f"linux/{_distribution()}", "Darwin": "macos"}.get(platform.system())
    if system is None:
        return None
    folder = Path(spec.submodule_search_locations[0], "libs", system, processor, "lib")
    return next(iter(sorted(folder.glob("libmsodbcsql*"))), None)


def _distribution() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "debian_ubuntu"
    like = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((_DISTRIBUTIONS[each] for each in like if each in _DISTRIBUTIONS), "debian_ubuntu")
