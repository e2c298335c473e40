"""Checks the database drivers: those of the engine that a url leads to, or those of at least one engine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sqlqueue_spark.engines import drivers
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor.checks import Check, Open, State, Wrong, checked


def checks(needed: Dialect | None, url: str | None) -> Iterator[Check]:
    """Check each driver. A missing driver is wrong only if it is needed.

    :param needed: the engine of the url. Without a url the drivers of any one engine must be complete.
    """
    complete = False
    for engine, its in drivers.NEEDED_DRIVERS.items():
        own_url = url if engine is needed else None
        made = {
            each: checked(each.name, partial(_look, engine, each, own_url, engine is needed)) for each in its
        }
        yield from made.values()
        complete |= all(check.state is State.FINE for driver, check in made.items() if driver.without is None)
    if needed is None and not complete:
        extras = " or ".join(f"'sqlqueue-spark[{engine.extra}]'" for engine in drivers.NEEDED_DRIVERS)
        said = f"No engine has all its drivers; install those of one with: pip install {extras}."
        yield Check(name="drivers", state=State.WRONG, said=said)


def _look(engine: Dialect, driver: drivers.NeededDriver, url: str | None, needed: bool) -> str:
    try:
        return driver.look(url)
    except (ImportError, ConfigurationError) as error:
        if driver.loader is not None and isinstance(error, ImportError):
            raise Open(f"not tried: {driver.loader} cannot be loaded") from None
        said = _sentence(engine, error)
    if driver.without is not None:
        raise Open(f"{said} {driver.without}")
    raise Wrong(said) if needed else Open(f"{said} Only {engine.title} needs it.")


def _sentence(engine: Dialect, error: ImportError | ConfigurationError) -> str:
    return str(error) if isinstance(error, ConfigurationError) else f"It {drivers.remedy(engine, error)}"
