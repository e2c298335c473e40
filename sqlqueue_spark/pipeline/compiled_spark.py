"""A SPARK_HOME whose Python processes import the compiled files of Spark's wheel instead of a zip of sources.

Every Python process that Spark starts has ``SPARK_HOME/python/lib/pyspark.zip`` in front of its path (``PythonUtils.
sparkPythonPath``). There is no compiled file in it, so each of the first processes of a stream, which wait for each other, compiles
Spark's modules anew: 0.8 s rather than 0.2 s. In this SPARK_HOME a folder of that name leads to the installed package, which is the
same code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

from sqlqueue_spark.pipeline.cache_folder import cache_folder

_INSTALLED = Path(pyspark.__file__).parent
_ZIPS = Path("python", "lib")


def compiled_spark() -> Path | None:
    """The folder for the Spark that is installed here, in the user's cache; None where it cannot be made."""
    if not (_INSTALLED / _ZIPS / "pyspark.zip").is_file() or not (_INSTALLED / "jars").is_dir():
        return None  # it is no wheel's
    with suppress(OSError, RuntimeError):
        place = hashlib.sha256(os.fsencode(_INSTALLED)).hexdigest()[:12]
        return made(cache_folder() / f"spark-{pyspark.__version__}-{place}")
    return None


def made(home: Path) -> Path:
    """Such a folder at this place, where it is not there yet.

    :raises OSError: it cannot be made.
    """
    if not home.exists():
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        begun = Path(tempfile.mkdtemp(dir=home.parent))
        begun.chmod(0o755)
        _fill(begun)
        try:
            begun.rename(home)
        except OSError:
            shutil.rmtree(begun, ignore_errors=True)
            if not home.is_dir():  # else another process was faster
                raise
    return home


def _fill(home: Path) -> None:
    for each in ("bin", "conf", "jars"):
        (home / each).symlink_to(_INSTALLED / each)
    for zipped in (_INSTALLED / _ZIPS).glob("*.zip"):
        package = "py4j" if zipped.name.startswith("py4j") else "pyspark"
        folder = home / _ZIPS / zipped.name
        folder.mkdir(parents=True)
        (folder / package).symlink_to(_INSTALLED.with_name(package))
