"""The folder of a demo: one demo at a time runs in it, and only its owner can read the urls in it."""

import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.embedded.data_folder import make_way
from sqlqueue_spark.embedded.programs import binary, one_at_a_time
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor.machine_checks import java, spark
from sqlqueue_spark.options.own_file import OwnFile


def check_parts() -> None:
    """Look, before anything is made, for what a demo needs on this machine.

    :raises SqlQueueError: it is not there; the text says how to install it.
    """
    binary("postgres")  # first, for the extra that brings it brings Spark too
    spark()
    java()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one demo run in a folder: two jobs on one checkpoint would stop each other."""
    with ExitStack() as stack:
        try:
            make_way(folder.absolute())
            stack.enter_context(one_at_a_time(folder / "lock", wait=False))
        except BlockingIOError as error:
            raise ConfigurationError(
                f"A demo runs in {folder} already; wait for it, or name another folder with --folder."
            ) from error
        except OSError as error:
            raise ConfigurationError(
                f"The demo cannot write into {folder} ({error.strerror}); name another folder with --folder."
            ) from error
        yield


def stop_servers(folder: Path, servers: Iterable[str]) -> list[Path]:
    """Stop a demo's servers; their data stay. Returns the folders of the data of those that ran."""
    data = [folder / each for each in servers]
    return [each for each in data if each.exists() and EmbeddedServer(each).stop()]


def url_file(file: Path, variable: str, url: str) -> str:
    """Write a url into a file that only we can read; returns what sets a variable from it in a shell."""
    OwnFile(file).write(url)
    return f'{variable}="$(cat {shlex.quote(short(file))})"'


def short(path: Path) -> str:
    """A path as one would type it here."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
