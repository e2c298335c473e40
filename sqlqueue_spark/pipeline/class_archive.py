"""An archive of the Java classes that a job loads. Java maps it into memory, where it would read and check 20,000 classes at each start.

It belongs to one Java and one Spark. Java itself looks whether it does, and starts without it where it does not.
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pyspark

from sqlqueue_spark.inspection.doctor.machine_checks import java_program
from sqlqueue_spark.pipeline.cache_folder import cache_folder

#: Java says nothing where an archive does not fit, as it says nothing where there is none.
_IN_SILENCE = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_file(spark_home: Path) -> Path:
    """Where the archive is, or would be: for this Spark and the Java that this process would start, in the user's cache.

    :raises RuntimeError: nobody knows where the user's home is.
    """
    java = os.path.realpath(shutil.which(java_program()) or java_program())
    place = hashlib.sha256(os.fsencode(f"{java}\n{spark_home}")).hexdigest()[:12]
    return cache_folder() / f"classes-{pyspark.__version__}-{place}.jsa"


def with_archive(java_options: str, spark_home: Path) -> str:
    """Options of Java and those by which it uses the archive, where there is one."""
    with suppress(OSError, RuntimeError):
        file = archive_file(spark_home)
        if file.is_file():
            return f'{java_options} "-XX:SharedArchiveFile={file}" {_IN_SILENCE}'
    return java_options
