"""The environment of the programs that a demo starts: whatever the user has configured, they run the Spark of this installation alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

#: What would lead a demo to another Spark, or to another configuration of it.
_FOREIGN = ("SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS")
#: In a run of seconds the JVM's optimizing compiler gains nothing: 300,000 messages were drained in 23.8 s without it and in 24.9 s
#: with it. A job that runs for long needs it. A JVM without this compiler reserves 48 MB for compiled code and not 240. Spark can use
#: them up, and then the JVM can end (https://bugs.openjdk.org/browse/JDK-8295724).
_QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def child_environment(**more: str) -> Mapping[str, str]:
    """Ours without what is foreign, and with ``more``."""
    own = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    return {
        **own,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": f"{own.get('JDK_JAVA_OPTIONS', '')} {_QUICK}".strip(),
        **more,
    }
