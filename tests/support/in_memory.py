"""Lets the tests' temporary files live in memory, where the machine has enough of it.

Each test has a database of its own, which is 300 files. On a disk (ext4 without a journal) the kernel then
spends half of the processors on looking for inodes that were not deleted lately: the tests without Spark took
twice as long.
"""

import os
import shutil
import tempfile
from pathlib import Path

import psutil

_MEMORY = Path("/dev/shm")  # noqa: S108 -- Linux has a file system in memory there
#: The tests have up to half a gigabyte of files at a time. The rest is for the servers and for Spark.
_ENOUGH = 8 << 30


def keep_temporary_files_in_memory() -> None:
    """Unless the environment names another folder; processes that are started later do the same."""
    if "TMPDIR" in os.environ or not _MEMORY.is_dir():
        return
    if min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) >= _ENOUGH:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None  # what was found out before
