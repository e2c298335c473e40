"""Makes a SPARK_HOME whose Python processes import the compiled files of Spark's wheel instead of a zip of sources.

Every Python process that Spark starts has ``SPARK_HOME/python/lib/pyspark.zip`` in front of its path (``PythonUtils.
sparkPythonPath``). There is no compiled file in it, so each of the ten processes of one stream compiles Spark's modules
anew: 0.9 s of work rather than 0.2 s. In our SPARK_HOME a folder of that name leads to the installed package, which is the
same code.
"""

import contextlib
import functools
import sys
import tempfile
from pathlib import Path

import pyspark


@functools.cache
def spark_home() -> Path:
    """The folder, beside the virtual environment's other files; this makes it if it is not there."""
    home = Path(sys.prefix) / f"spark-home-{pyspark.__version__}"
    if not home.exists():
        begun = Path(tempfile.mkdtemp(dir=sys.prefix))
        begun.chmod(0o755)
        _fill(begun)
        with contextlib.suppress(OSError):  # another process was faster
            begun.rename(home)
    return home


def _fill(home: Path) -> None:
    packages = Path(pyspark.__file__).parents[1]
    installed = packages / "pyspark"
    for each in ("bin", "jars"):
        (home / each).symlink_to(installed / each)
    for zipped in (installed / "python" / "lib").glob("*.zip"):
        package = "py4j" if zipped.name.startswith("py4j") else "pyspark"
        folder = home / "python" / "lib" / zipped.name
        folder.mkdir(parents=True)
        (folder / package).symlink_to(packages / package)
