"""Starts the Java of Spark. What it says on stderr is shown, but not what it says at every start."""

import os
import re
import subprocess
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

#: Java uses an incubator module, and Ivy has found and fetched a package. What fails has other lines.
_USUAL = re.compile(
    rb"WARNING: Using incubator modules: .*"
    rb"|:: (?:loading settings|resolving dependencies|resolution report|retrieving) :: .*"
    rb"|(?:Ivy Default Cache set to|The jars for the packages stored in): .*|downloading .*"
    rb"|[^\s#]++#\S++ added as a dependency"
    rb"|\t(?:confs: |found |:: modules in use:|:: evicted modules:|\[SUCCESSFUL \]|-----|\|).*"
    rb"|\t[^\s#]++#[^\s;]++;\S++ (?:from|by) .*|\t\d++ artifacts copied, .*"
)
#: How long a Java that has not started may take to say why, in seconds.
_LAST_WORDS = 5.0


def start_java(settings: Mapping[str, str]) -> None:
    """Start the Java of Spark with these settings; the next session of this process runs in it.

    :raises PySparkException: Java ended. All that it said of that has been shown.
    """
    reader, writer = os.pipe()
    started = threading.Event()
    shown = threading.Thread(target=_show, args=(reader, started), daemon=True)
    shown.start()
    try:
        conf = SparkConf().setAll([*settings.items()])
        gateway = launch_gateway(conf, {"stderr": writer})  # type: ignore[no-untyped-call] # pyspark's
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 -- the builder takes no gateway
    except KeyboardInterrupt as error:  # Java would never end: it cannot tell where it listens any more
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if isinstance(java := frame.f_locals.get("proc"), subprocess.Popen):
                java.kill()
        raise
    finally:
        os.close(writer)
        started.set()
        if SparkContext._gateway is None:  # noqa: SLF001 -- likewise
            shown.join(_LAST_WORDS)  # after a Ctrl-C a program of Java's may live on for a while


def _show(reader: int, started: threading.Event) -> None:
    """Show what comes, line by line without the usual lines; once Java has started, all as it comes."""
    rest, starts = b"", True
    while got := os.read(reader, 1 << 16):
        *lines, rest = (rest + got).split(b"\n")
        text = b"".join(each + b"\n" for each in lines if not (starts and _USUAL.fullmatch(each)))
        if started.is_set():  # all of the start was in this pipe before, and one look takes it
            text, rest, starts = text + rest, b"", False
        _write(text)
    _write(rest)
    os.close(reader)


def _write(text: bytes) -> None:
    with suppress(OSError):  # where stderr is closed, Java must not wait for a reader
        while text:
            text = text[os.write(2, text) :]
