"""The settings of Spark in files: those that this package brings, and the user's own."""

import os
import re
from pathlib import Path

import pyspark

#: The configuration of Spark and of the jobs that this package brings, which a clone has as conf/.
CONF = Path(__file__).parents[1] / "conf"
#: A name, then blanks, = or :, then the value.
#: https://spark.apache.org/docs/latest/configuration.html#dynamically-loading-spark-properties
_SETTING = re.compile(r"^[ \t]*([^#!\s=:][^\s=:]*)[ \t]*[ \t=:][ \t]*(.*?)[ \t]*$", re.MULTILINE)


def settings_in(folder: Path) -> dict[str, str]:
    """The settings of the file spark-defaults.conf in a folder; none where the file is missing."""
    file = folder / "spark-defaults.conf"
    return dict(_SETTING.findall(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def users_folder() -> Path:
    """Where Spark looks for the user's own files; the folder need not be there."""
    named = os.environ.get("SPARK_CONF_DIR")
    return Path(named) if named else spark_home() / "conf"
