"""Parses T-SQL with Microsoft's ScriptDom: what is asked comes as JSON on stdin,
and what the parsers say goes to stdout.

In: ``library`` (the file of ScriptDom), ``runtime`` (the folder of a .NET runtime, or null for the machine's
own) and ``texts`` by their names. Out: by the level of each parser, the names of the texts that it refuses,
with what it says of each.
"""

import importlib
import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

#: The level of SQL Server 2016, the oldest that we support.
OLDEST = 130
#: Any .NET from 3.1 on. Invariant: no library of languages (ICU) is looked for.
CONFIGURATION = {
    "runtimeOptions": {
        "tfm": "netcoreapp3.1",
        "rollForward": "LatestMajor",
        "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
        "configProperties": {"System.Globalization.Invariant": True},
    }
}


def main() -> None:
    asked = json.load(sys.stdin)
    load(asked["runtime"])
    clr = importlib.import_module("clr")
    assembly = clr.AddReference(asked["library"])
    scriptdom = importlib.import_module("Microsoft.SqlServer.TransactSql.ScriptDom")
    reader = importlib.import_module("System.IO").StringReader
    names = (str(each.Name) for each in assembly.GetTypes())
    levels = sorted(int(found[1]) for name in names if (found := re.fullmatch(r"TSql(\d+)Parser", name)))
    said: dict[int, dict[str, list[str]]] = {}
    for level in levels:
        if level >= OLDEST:
            parser = getattr(scriptdom, f"TSql{level}Parser")(
                True
            )  # QUOTED_IDENTIFIER ON, as our sessions have it
            heard = {name: refused(parser, reader(text)) for name, text in asked["texts"].items()}
            said[level] = {name: errors for name, errors in heard.items() if errors}
    json.dump(said, sys.stdout)


def load(runtime: str | None) -> None:
    """Start .NET in this process."""
    clr_loader, pythonnet = (importlib.import_module(name) for name in ("clr_loader", "pythonnet"))
    with TemporaryDirectory() as folder:
        configuration = Path(folder, "runtimeconfig.json")
        configuration.write_text(json.dumps(CONFIGURATION))
        root = {} if runtime is None else {"dotnet_root": runtime}
        pythonnet.load(clr_loader.get_coreclr(runtime_config=str(configuration), **root))


def refused(parser: Any, text: Any) -> list[str]:
    _, errors = parser.Parse(text, None)
    return [f"line {each.Line}, column {each.Column}: {each.Message}" for each in errors]


if __name__ == "__main__":
    main()
