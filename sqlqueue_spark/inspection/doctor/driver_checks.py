"""Checks the database drivers: those of the engine that a url leads to, or those of at least one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlqueue_spark.engines import drivers
from sqlqueue_spark.engines.dialects import POSTGRESQL, SQLSERVER, Dialect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor.checks import Check, Open, State, Wrong, checked

Look = Callable[[], str]


def checks(needed: Dialect | None, url: str | None) -> Iterator[Check]:
    """Check each driver; a line a driver. A driver that is missing is wrong only where it is needed.

    :param needed: the engine of the url. Without a url the drivers of any one engine must be complete.
    """
    looks: dict[Dialect, dict[str, Look]] = {
        POSTGRESQL: {"psycopg": drivers.psycopg, "adbc": drivers.adbc},
        SQLSERVER: {"pyodbc": drivers.pyodbc, "odbc": lambda: _odbc(url if needed is SQLSERVER else None)},
    }
    complete = False
    for engine, theirs in looks.items():
        made = [checked(name, _needed(engine, look, needed is engine)) for name, look in theirs.items()]
        yield from made
        complete = complete or all(each.state is State.FINE for each in made)
        if engine is SQLSERVER:
            yield checked("arrow-odbc", _arrow_odbc)
    if needed is None and not complete:
        said = (
            "There is no engine whose drivers are all there; install those of one with: pip install "
            "'sqlqueue-spark[postgresql]' or 'sqlqueue-spark[mssql]'."
        )
        yield Check(name="drivers", state=State.WRONG, said=said)


def _needed(engine: Dialect, look: Look, needed: bool) -> Look:
    def looked() -> str:
        try:
            return look()
        except (ImportError, ConfigurationError) as error:
            said = _sentence(engine, error)
        raise Wrong(said) if needed else Open(f"{said} Only {engine.title} needs it.")

    return looked


def _odbc(url: str | None) -> str:
    try:
        return drivers.odbc(url)
    except ImportError:
        raise Open("not tried: pyodbc cannot be loaded") from None


def _arrow_odbc() -> str:
    try:
        return drivers.arrow_odbc()
    except ImportError as error:
        said = _sentence(SQLSERVER, error)
    raise Open(
        f"{said} Until then SQL Server's rows are read a value at a time, which costs this machine more."
    )


def _sentence(engine: Dialect, error: ImportError | ConfigurationError) -> str:
    if isinstance(error, ConfigurationError):
        return str(error)
    if "libodbc" in str(error):
        return "It does not find unixODBC's library; install it (Debian: apt-get install unixodbc)."
    extra = "mssql" if engine is SQLSERVER else engine.name
    why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded ({error})"
    return f"It {why}; install it with: pip install 'sqlqueue-spark[{extra}]'."
