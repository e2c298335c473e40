"""The package as people have it who install it: built as a wheel, in a virtual environment of its own,
without the clone.

What it depends on is not installed again, which would take minutes: a path leads to the packages of the
tests' environment. Their folder has a path entry for the clone, which Python reads in its own folders of
packages alone.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
#: Java, the cache of Delta's jars, the server's programs; nothing that names the clone.
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "SQLQUEUE_POSTGRESQL_BIN")


@dataclass(frozen=True)
class Installed:
    """:param wheel: the wheel's file."""

    wheel: Path
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def sqlqueue(self) -> str:
        return str(self.folder / "bin" / "sqlqueue")

    @property
    def files(self) -> set[str]:
        """The names of the files of the package."""
        with ZipFile(self.wheel) as zipped:
            return {name for name in zipped.namelist() if ".dist-info/" not in name}

    def add(self, requirements: str) -> None:
        """Install what a file of requirements/ pins, where the path does not lead to it.

        :raises subprocess.CalledProcessError: the index does not have it, or does not answer.
        """
        file = str(ROOT / "requirements" / f"{requirements}.txt")
        _run("pip", "--python", self.python, "install", "--require-hashes", "--requirement", file)

    def environment(self, **more: str) -> Mapping[str, str]:
        """The variables of a user who has installed the wheel and nothing else."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {**kept, "XDG_CACHE_HOME": str(Path(sys.prefix) / "cache"), **more}


def install(folder: Path) -> Installed:
    """Build the wheel from the clone, and install it into a new environment."""
    _run("hatchling", "build", "--target", "wheel", "--directory", str(folder))
    (wheel,) = folder.glob("*.whl")
    made = Installed(wheel, folder / "environment")
    venv.create(made.folder, symlinks=True)
    _run("pip", "--python", made.python, "install", "--no-index", "--no-deps", str(wheel))
    (packages,) = made.folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def _run(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=True, capture_output=True)
