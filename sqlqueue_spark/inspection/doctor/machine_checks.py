"""Checks this machine: Python for driver and workers, Java, Spark itself, and the databases' drivers."""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from sqlqueue_spark.engines import drivers
from sqlqueue_spark.engines.dialect import Dialect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor.checks import Check, Open, State, Wrong, checked
from sqlqueue_spark.version import pip_install, requirements

_OLDEST_JAVA = 17
_OLDEST_SPARK = [4, 0]
#: The packages that bring Spark; the first one brings all of it.
_SPARKS = ("pyspark", "pyspark-client", "databricks-connect")
_SECONDS = 30
#: Prints the version of a worker's Python, the packages that it lacks, and in a line of its own why the data
#: source cannot be imported: first the package that fails. Its working folder does not count.
_ASKED = """
import sys
sys.path[:] = [each for each in sys.path if each]
import importlib.util, traceback
packages = ("sqlqueue_spark", "pyarrow")
lacking = [each for each in packages if importlib.util.find_spec(each) is None]
print(*sys.version_info[:2], *lacking)
try:
    import sqlqueue_spark.spark.datasource
except Exception as error:
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = getattr(error, "name", None) or frame.f_globals["__name__"]
    print("why:", name.partition(".")[0], type(error).__name__, *str(error).split())
"""


def checks() -> Iterator[Check]:
    for look in (python, java, spark, workers):
        yield checked(look.__name__, look)


def python() -> str:
    return f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"


def java() -> str:
    """Check the Java that Spark starts: that of JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    remedy = "install a JRE 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"
    try:
        said = _said([program, "-version"])
    except OSError:
        where = f"JAVA_HOME is {home!r}, which has no bin/java" if home else "there is no java on the PATH"
        raise Wrong(f"Java {_OLDEST_JAVA} is missing, for {where}; {remedy}.") from None
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', said)
    if match is None or int(match[2]) < _OLDEST_JAVA:
        version = match[1] if match else "of no version that can be read"
        raise Wrong(f"Java {_OLDEST_JAVA} is missing, for {program} is {version}; {remedy}.")
    return f"{match[1]} ({'JAVA_HOME' if home else shutil.which(program)})"


def spark() -> str:
    """Check which Spark is installed, and compare it with the tested one."""
    if (found := _installed()) is None:
        raise Wrong(f"Spark is not installed; install it with: {pip_install('spark')}.")
    name, version = found
    # The version that this package's metadata pins; None if the package is not installed.
    pins = (re.match(r"pyspark\s*==\s*([\w.]+)", each) for each in requirements("spark"))
    tested = next((pin[1] for pin in pins if pin), None)
    if tested is None or version == tested:
        return f"{name} {version}" + (", as tested" if tested else "")
    runtime = os.environ.get("DATABRICKS_RUNTIME_VERSION")  # its Spark has more than its version says
    if runtime is not None or not name.startswith("pyspark"):
        return f"{name} {version}" + (f" of Databricks runtime {runtime}" if runtime else "")
    if _release(version) < _OLDEST_SPARK:
        raise Wrong(f"{name} is {version}, which streams from no Python source; install {name}=={tested}.")
    earlier = _release(version) < _release(tested)
    limits = "; for the limits of earlier ones see docs/limits.md" if earlier else ""
    return f"{name} {version} (tested is {tested}{limits})"


def workers() -> str:
    """Check the Python that Spark starts for its workers on this machine: PYSPARK_PYTHON, else python3."""
    if _installed() is None:
        raise Open("not tried: Spark is not installed")
    program = os.environ.get("PYSPARK_PYTHON") or "python3"
    remedy = f"set PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    wrong, version = "", ""
    try:
        said = _said([program, "-c", _ASKED])
        major, minor, *lacking = said.partition("\n")[0].split()
    except (OSError, ValueError):
        wrong = "is no Python that runs"
    else:
        version = f"{major}.{minor}"
        if version != "{}.{}".format(*sys.version_info):
            wrong = f"is Python {version}"
        elif lacking:
            wrong = f"lacks {' and '.join(lacking)}"
        elif why := re.search("^why: (.*?) (.*)", said, re.MULTILINE):
            wrong, remedy = f"cannot import this package ({why[2]})", f"install its {why[1]} anew"
            if why[1] in ("pyspark", "py4j"):
                remedy = f"run {pip_install('spark')}"
    if wrong:
        raise Wrong(f"Spark starts its workers with {program}, which {wrong}; {remedy}.")
    return f"Python {version} ({shutil.which(program)})"


def drivers_of(needed: Dialect | None, url: str | None) -> Iterator[Check]:
    """Check each driver. A missing driver is wrong only if it is needed.

    :param needed: the engine of the url. Without a url the drivers of any one engine must be complete.
    """
    complete = False
    for engine, its in drivers.NEEDED_DRIVERS.items():
        own_url = url if engine is needed else None
        made = [checked(each.name, partial(_driver, engine, each, own_url, engine is needed)) for each in its]
        yield from made
        complete |= all(check.state is State.FINE for check in made)
    if needed is None and not complete:
        commands = ", or: ".join(pip_install(engine.extra) for engine in drivers.NEEDED_DRIVERS)
        said = f"No engine has all its drivers; install those of one with: {commands}."
        yield Check(name="drivers", state=State.WRONG, said=said)


def _driver(engine: Dialect, driver: drivers.NeededDriver, url: str | None, needed: bool) -> str:
    try:
        return driver.look(url)
    except (ImportError, ConfigurationError) as error:
        if driver.loader is not None and isinstance(error, ImportError):
            raise Open(f"not tried: {driver.loader} cannot be loaded") from None
        said = f"It {drivers.remedy(engine, error)}" if isinstance(error, ImportError) else str(error)
    raise Wrong(said) if needed else Open(f"{said} Only {engine.title} needs it.")


def _said(command: list[str]) -> str:
    try:
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return ""
    return ended.stdout + ended.stderr


def _installed() -> tuple[str, str] | None:
    for name in _SPARKS:
        with suppress(importlib.metadata.PackageNotFoundError):
            return name, importlib.metadata.version(name)
    return None


def _release(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)[:2]]
