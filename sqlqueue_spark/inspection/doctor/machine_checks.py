"""Checks what Spark needs on this machine: Python for driver and workers, Java, and Spark itself."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sqlqueue_spark.inspection.doctor.checks import Check, Open, Wrong, checked

_OLDEST_PYTHON = (3, 11)
_OLDEST_JAVA = 17
_OLDEST_SPARK = [4, 0]
#: The packages that bring Spark; the first one brings all of it.
_SPARKS = ("pyspark", "pyspark-client", "databricks-connect")
_SECONDS = 30
#: Prints the version of a worker's Python and the packages that it lacks. Its working folder does not count.
_ASKED = """
import importlib.util, sys
sys.path[:] = [each for each in sys.path if each]
packages = ("sqlqueue_spark", "pyarrow")
print(*sys.version_info[:2], *(each for each in packages if importlib.util.find_spec(each) is None))
"""


def checks() -> Iterator[Check]:
    yield checked("python", python)
    yield checked("java", java)
    yield checked("spark", spark)
    yield checked("workers", workers)


def python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST_PYTHON:
        raise Wrong(f"Python is {found}, and {_dotted(_OLDEST_PYTHON)} or newer is needed: install one.")
    return f"{found} ({sys.executable})"


def java_program() -> str:
    """Return the Java that Spark starts: that of JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def java() -> str:
    """Check the Java that Spark starts."""
    home, program = os.environ.get("JAVA_HOME"), java_program()
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
    found = _installed()
    if found is None:
        raise Wrong("Spark is not installed; install it with: pip install 'sqlqueue-spark[spark]'.")
    name, version = found
    tested = _tested()
    if tested is None or version == tested:
        return f"{name} {version}" + (", as tested" if tested else "")
    runtime = os.environ.get("DATABRICKS_RUNTIME_VERSION")  # its Spark has more than its version says
    if runtime is not None or not name.startswith("pyspark"):
        return f"{name} {version}" + (f" of Databricks runtime {runtime}" if runtime else "")
    if _release(version) < _OLDEST_SPARK:
        raise Wrong(f"{name} is {version}, which streams from no Python source; install {name}=={tested}.")
    limits = (
        "; for the limits of earlier ones see docs/limits.md" if _release(version) < _release(tested) else ""
    )
    return f"{name} {version} (tested is {tested}{limits})"


def workers() -> str:
    """Check the Python that Spark starts for its workers on this machine: PYSPARK_PYTHON, else python3."""
    if _installed() is None:
        raise Open("not tried: Spark is not installed")
    program = os.environ.get("PYSPARK_PYTHON") or "python3"
    remedy = f"set PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    try:
        major, minor, *lacking = _said([program, "-c", _ASKED]).split()
    except (OSError, ValueError):
        raise Wrong(
            f"Spark starts its workers with {program}, which is no Python that runs; {remedy}."
        ) from None
    version = f"{major}.{minor}"
    if version != _dotted(sys.version_info[:2]):
        raise Wrong(f"Spark starts its workers with {program}, which is Python {version}; {remedy}.")
    if lacking:
        raise Wrong(
            f"Spark starts its workers with {program}, which lacks {' and '.join(lacking)}; {remedy}."
        )
    return f"Python {version} ({shutil.which(program)})"


def _said(command: list[str]) -> str:
    """Return what a program prints on stdout and stderr."""
    try:
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return ""
    return ended.stdout + ended.stderr


def _installed() -> tuple[str, str] | None:
    for name in _SPARKS:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _tested() -> str | None:
    """Return the version of Spark that this package's metadata pins; None if the package is not installed."""
    try:
        required = importlib.metadata.requires("sqlqueue_spark") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    pins = (re.match(r"pyspark\s*==\s*([\w.]+)", each) for each in required)
    return next((pin[1] for pin in pins if pin), None)


def _release(version: str) -> list[int]:
    """Return the first two numbers of a version."""
    return [int(each) for each in re.findall(r"\d+", version)[:2]]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
