"""A job's note beside its checkpoint: where its destinations lie, and how addresses are read.

An outbox knows what was sent under these options alone. Under others a batch that is not settled, rows that
wait for a database, and rows that came back after a loss of the claim would be sent once more. So a job does
not begin under others before a run has ended that left nothing of these.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from sqlqueue_spark.engines.hosts import location
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError, TryAgain
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline.running.checkpoint_folder import Checkpoint, Files
from sqlqueue_spark.receive.claiming.queue_list import opened
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.send.waiting.waiting_rows import awaited
from sqlqueue_spark.tables.database_facts import identity

#: The name of the file in the checkpoint's folder.
NOTE = "sqlqueue-job.json"


class JobNote:
    """Notes that a run begins, and how it has ended.

    :param databases: those for which rows may wait; None where a batch waits instead.
    :raises ConfigurationError: an option means something else than it did, and messages are left of the runs
        before; or a url is new here, its database does not answer, and rows cannot wait for it.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        source: SourceOptions,
        places: Places,
        databases: RemoteDatabases | None,
    ) -> None:
        self._files, self._checkpoint = Files(spark), checkpoint
        self._file = f"{checkpoint}/{NOTE}"
        self._places, self._databases = places, databases
        noted, then, reached = _read(self._files.text(self._file))
        #: Of a url that is where it leads, and which database is there: None as long as none has answered.
        self._means = {**_naming(source, places), **self._leads(reached)}
        found = Checkpoint.of(self._files, checkpoint)
        #: Whether nothing was left when the checkpoint had this newest batch. A run that begins none, because
        #: its start fails, leaves nothing either.
        self._begun = found.begun
        begun_since = noted.get("begun", found.begun) != found.begun or found.pending is not None
        self._nothing_left = noted.get("nothingLeft", True) and not begun_since
        names = sorted({*then, *self._means}) if noted else []
        changed = [each for each in names if not _alike(then.get(each), self._means.get(each))]
        if changed and (not self._nothing_left or _rows_wait(source)):
            was, is_ = (_told(each.get(changed[0])) for each in (then, self._means))
            raise ConfigurationError(
                f"The option {changed[0]} was {was} and is {is_} now, and the last run has left messages "
                "that may then be sent twice; run the job as it was until it ends, with availableNow, or "
                f"delete the file {self._file} to accept that."
            )
        self._write()
        #: Whether rows came back into the queue since the query began.
        self.came_back = False
        if databases is not None:
            databases.on_reaching, databases.on_putting_back = self._note_reached, self._note_left

    def end(self, *, stopped: bool, available_now: bool, given_back: bool) -> None:
        """Note that a run has ended without an error: asked to stop, or by itself.

        With ``availableNow`` it has taken all that stood in the queue when the query began, also what an
        earlier loss of the claim had left there.

        :param given_back: whether the source has given rows of a logged batch back, its claim being lost.
        """
        found = Checkpoint.of(self._files, self._checkpoint)
        if found.pending is None:
            ended = available_now and not self.came_back
            self._nothing_left = self._nothing_left and not given_back if stopped else ended
            self._begun = found.begun
            self._write()

    def _write(self) -> None:
        note = {"means": self._means, "nothingLeft": self._nothing_left, "begun": self._begun}
        self._files.write(self._file, json.dumps(note, indent=1))

    def _leads(self, reached: Mapping[str, str]) -> dict[str, Any]:
        """Where each url of the sink leads, without its login, and the database that its server tells."""
        away = self._places.away
        urls = {f"endpoint.{name}.url": url for name, url in away.endpoint_urls.items()}
        if away.url != self._places.home.url:
            urls["sink.url"] = away.url
        targets = {each.url: each for each in self._places.everywhere()}
        seen: dict[str, Any] = {at: {"leads": at, "database": each} for at, each in reached.items()}
        for name, url in urls.items():
            if (leads := location(url)) not in seen:
                seen[leads] = {"leads": leads, "database": self._identity(targets[url], name)}
        return {name: seen[location(url)] for name, url in urls.items()}

    def _identity(self, target: Target, name: str) -> str | None:
        try:
            with connect(target) as connection, connection.transaction():
                return identity(connection)
        except TryAgain as error:
            if self._databases is not None:
                return None
            raise ConfigurationError(
                f"The database of {name} does not answer, no run with this checkpoint has reached it, and "
                f"rows cannot wait for it; start the job when the database is back: {error}"
            ) from error

    def _note_reached(self, target: Target) -> None:
        """Note which database answers at last, before anything is sent there."""
        for name, means in self._means.items():
            if means == {"leads": location(target.url), "database": None}:
                means["database"] = self._identity(target, name)
                self._write()

    def _note_left(self) -> None:
        """Note that rows which have waited come back into the queue, before they do."""
        self.came_back = True
        if self._nothing_left:
            self._nothing_left = False
            self._write()


def _read(text: str | None) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """A note, what its options meant, and which databases were reached; nothing if it is none of ours."""
    try:
        noted = json.loads(text or "{}")
        then = dict(noted.get("means", {}))
        urls = [each for each in then.values() if isinstance(each, dict)]
        return noted, then, {each["leads"]: each["database"] for each in urls if each["database"]}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}, {}, {}


def _naming(source: SourceOptions, places: Places) -> dict[str, Any]:
    """The options by which an address becomes a table, and by which an outbox is found."""
    home, away = places.home, places.away
    found = {"sink.queue": away.queue, "sink.endpoint": home.sender if home.uses_outbox else None}
    for side, options in (("source", source), ("sink", away)):
        found[f"{side}.defaultSchema"] = options.default_schema
        found[f"{side}.legacyAddresses"] = "true" if options.legacy_addresses else None
        for kind, schemas in (("queue", options.queue_schemas), ("endpoint", options.endpoint_schemas)):
            found |= {f"{side}.{kind}.{name}.schema": schema for name, schema in schemas.items()}
    return {name: value for name, value in found.items() if value is not None}


def _rows_wait(source: SourceOptions) -> bool:
    with connect(Target.of(source)) as connection:
        with connection.transaction():
            queues = opened(connection, source, looking=True)
        return any(awaited(connection, each.table) for each in queues)


def _alike(then: Any, now: Any) -> bool:
    """Whether an option means the same. Two urls lead to one database where the server says so.

    A url of which no server was reached may be corrected: nothing was sent there.
    """
    if isinstance(then, dict) and isinstance(now, dict):
        return then["database"] in (None, now["database"])
    return bool(then == now)


def _told(means: Any) -> str:
    return repr(means["leads"] if isinstance(means, dict) else means) if means else "not set"
