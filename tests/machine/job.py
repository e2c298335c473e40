"""What a job keeps beside its checkpoint: the real note, over files that the machine keeps in memory."""

from collections.abc import Callable

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline.running.changed_options import JobNote
from sqlqueue_spark.pipeline.running.checkpoint_folder import Files
from sqlqueue_spark.receive.holding.done_file import GIVEN_BACK, DoneFile
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from tests.machine.remote import ASIDE
from tests.machine.world import DESTINATIONS, ERRORS

#: Options of which a job may have one: those by which addresses are judged, and the one for what fails.
LEGACY, SCHEMA, OF_QUEUE, URLS, OTHER_ERRORS = (
    "legacyAddresses",
    "defaultSchema",
    "queue.<name>.schema",
    "endpoint.<name>.url",
    "errorQueue",
)
#: What they are. Those of ``URLS`` lead each to the other's database.
GIVEN = {
    LEGACY: {"legacyAddresses": "true"},
    SCHEMA: {"defaultSchema": ASIDE},
    OF_QUEUE: {f"queue.{DESTINATIONS[0]}.schema": ASIDE},
    OTHER_ERRORS: {"errorQueue": ERRORS[1]},
}


class CheckpointFiles(Files):
    """The files of a checkpoint.

    :param logs: gives how many batches are in ``offsets``, and how many in ``commits``.
    """

    def __init__(self, logs: Callable[[], tuple[int, int]]) -> None:
        self._logs = logs
        self.texts: dict[str, str] = {}

    def names(self, folder: str) -> list[str]:
        offsets, commits = self._logs()
        return [str(number) for number in range(offsets if folder.endswith("/offsets") else commits)]

    def text(self, file: str) -> str | None:
        return self.texts.get(file)

    def write(self, file: str, text: str) -> None:
        self.texts[file] = text


class Told(DoneFile):
    """In the place of a file ``doneFile``: it settles nothing, and keeps what the source says."""

    def __init__(self, *_: object) -> None:
        self.said: set[str] = set()

    def watch(self) -> None: ...
    def look(self) -> None: ...
    def close(self) -> None: ...

    def say(self, which: str, _: str = "") -> None:
        self.said.add(which)

    @property
    def given_back(self) -> bool:
        return GIVEN_BACK in self.said


class Job:
    """A job as its note sees it."""

    def __init__(self, logs: Callable[[], tuple[int, int]]) -> None:
        self.files = CheckpointFiles(logs)
        #: Whether nothing has befallen it since the beginning, or since a run that ended by itself.
        self.calm = True
        #: Whether it has begun under other options than it had.
        self.changed = False
        self._note: JobNote | None = None

    def begin(
        self, folder: str, source: SourceOptions, places: Places, databases: RemoteDatabases | None
    ) -> None:
        """Begin a run. Errors as of :class:`JobNote`."""
        self._note = None
        self._note = JobNote(self.files, folder, source, places, databases)

    def query_begins(self) -> None:
        """Note that rows which came back until now are received by the query."""
        assert self._note is not None
        self.calm &= not self._note.came_back
        self._note.came_back = False

    def end(self, *, by_itself: bool, given_back: bool, waits: bool) -> None:
        """End a run without an error.

        :param waits: whether rows wait at its end.
        """
        note, self._note = self._note, None
        assert note is not None
        note.end(stopped=not by_itself, available_now=by_itself, given_back=given_back)
        self.calm = not (note.came_back or waits) and (by_itself or (self.calm and not given_back))
