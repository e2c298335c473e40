"""A server that a program has started ends with it, also by kill -9: a shell waits for the program's end."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from sqlqueue_spark.embedded.programs import as_child, binary

#: Waits until its input is closed, and stops the server: the program and the data directory are its
#: arguments.
_STOP_AT_LAST = 'cat >/dev/null; exec "$0" stop -s -D "$1" -m fast'


class EndWithProgram:
    """Ends the server on a data directory with this process, from :meth:`begin` on until it is called off."""

    def __init__(self, data_directory: Path) -> None:
        self._data_directory = data_directory
        self._shell: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start a shell that stops the server when our end of its input closes; even kill -9 closes that."""
        self.call_off()  # ends the shell of a server that died
        self._shell = subprocess.Popen(
            ["sh", "-c", _STOP_AT_LAST, binary("pg_ctl"), self._data_directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **as_child(),
        )

    def call_off(self) -> None:
        if self._shell is not None:
            # At the end of the block its input is closed, and it is awaited.
            with self._shell, suppress(ProcessLookupError):
                os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell = None
