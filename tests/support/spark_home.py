"""The SPARK_HOME of the tests, whose Python processes start quickly.

Spark puts ``SPARK_HOME/python/lib/pyspark.zip`` at the front of the path of each Python process
(``PythonUtils.sparkPythonPath``). The zip has no compiled file, so each process compiles Spark's modules
anew. Here a folder of that name leads to the installed package, which is the same code.
"""

import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark

#: Where the Spark is that is installed. A link to it may be of a worktree that goes before the folder does.
INSTALLED = Path(pyspark.__file__).resolve().parent
_ZIPS = Path("python", "lib")


@functools.cache
def spark_home() -> Path:
    """The folder, beside the virtual environment's other files; this makes it if it is not there."""
    # Java finds in its archive under which path it was made: a link to the environment would be another one.
    home = Path(sys.prefix).resolve() / f"spark-home-{pyspark.__version__}"
    if not home.exists():
        begun = Path(tempfile.mkdtemp(dir=sys.prefix))
        begun.chmod(0o755)
        fill(begun)
        try:
            begun.rename(home)
        except OSError:
            shutil.rmtree(begun, ignore_errors=True)
            if not home.is_dir():  # else another process was faster
                raise
    return home


def fill(home: Path) -> None:
    """Fill an empty folder with links to the Spark that is installed."""
    for each in ("bin", "conf", "jars"):
        (home / each).symlink_to(INSTALLED / each)
    for zipped in (INSTALLED / _ZIPS).glob("*.zip"):
        package = "py4j" if zipped.name.startswith("py4j") else "pyspark"
        folder = home / _ZIPS / zipped.name
        folder.mkdir(parents=True)
        (folder / package).symlink_to(INSTALLED.with_name(package))


def python_path(*folders: object) -> str:
    """A PYTHONPATH with these folders, before those of our own; with it Spark's Python processes begin as
    forks (:mod:`tests.support.early_imports.forks`).
    """
    ours = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(map(str, (Path(__file__).with_name("early_imports"), *folders, *ours)))
