"""Microsoft's own parser of T-SQL (ScriptDom), without SQL Server and without Windows.

It is a .NET library. ``tests/install_scriptdom.sh`` takes it out of a wheel of Microsoft's, and
``dotnetcore2`` is a wheel with a runtime for it; any other .NET runtime from 3.1 on serves too, if
``DOTNET_ROOT`` or the PATH leads to it. A newer ScriptDom than that of the wheel, which ends with SQL Server
2019, is named by ``SQLQUEUE_TEST_SCRIPTDOM``.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "SQLQUEUE_TEST_SCRIPTDOM"
_LIBRARY = "Microsoft.SqlServer.TransactSql.ScriptDom.dll"

#: For each parser, by its level (130 is SQL Server 2016), the texts that it refuses, with what it says.
Complaints = Mapping[int, Mapping[str, list[str]]]


def missing() -> str | None:
    """Why nothing can be parsed here, with the remedy."""
    if find_spec("clr_loader") is None or find_spec("pythonnet") is None:
        return "pythonnet is not here; run: make setup"
    if not _library().is_file():
        return (
            f"{_library()} is not there; run: tests/install_scriptdom.sh, or name another one in {VARIABLE}"
        )
    if _runtime() is None and not os.environ.get("DOTNET_ROOT") and shutil.which("dotnet") is None:
        return (
            "there is no .NET runtime; run: make setup, where dotnetcore2 has a wheel, "
            "or install one of 3.1 or later"
        )
    return None


def complaints(texts: Mapping[str, str]) -> Complaints:
    """Have each text parsed by the parser of each version of SQL Server from 2016 on.

    It happens in a process of its own: a .NET runtime takes signals and memory for itself.
    """
    runtime = _runtime()
    asked = {"library": str(_library()), "runtime": str(runtime) if runtime else None, "texts": dict(texts)}
    program = [sys.executable, "-m", "tests.support.drivers.parse_tsql"]
    done = subprocess.run(
        program, input=json.dumps(asked), check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return {int(level): found for level, found in json.loads(done.stdout).items()}


def _library() -> Path:
    return Path(os.environ.get(VARIABLE) or Path(sys.prefix, "scriptdom", _LIBRARY))


def _runtime() -> Path | None:
    """The folder of the runtime inside the wheel; None where it is not installed."""
    spec = find_spec("dotnetcore2")  # this imports nothing
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], "bin")
