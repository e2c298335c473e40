"""A job's note beside its checkpoint: where its destinations lie, and how addresses are read.

An outbox knows what was sent under these options alone. Under others a batch that is not settled, rows that
wait for a database, and rows that came back after a loss of the claim would be sent once more. So a job does
not begin under others before a run has ended that left nothing of these.
"""

import json
import threading
from collections.abc import Mapping
from typing import Any

from sqlqueue_spark.engines.hosts import location
from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import ConfigurationError, TryAgain
from sqlqueue_spark.options import NO_OUTBOX, SourceOptions
from sqlqueue_spark.pipeline.running.checkpoint_folder import Checkpoint, Files
from sqlqueue_spark.receive.claiming.queue_list import opened
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases
from sqlqueue_spark.send.waiting.waiting_rows import awaited
from sqlqueue_spark.tables.database_facts import identity
from sqlqueue_spark.tables.outbox import OutboxTable

#: The name of the file in the checkpoint's folder.
NOTE = "sqlqueue-job.json"


class JobNote:
    """Notes that a run begins, and how it has ended.

    :param files: where the checkpoint is.
    :param databases: those for which rows may wait; None where a batch waits instead.
    :raises ConfigurationError: an option means something else than it did, and messages are left of the runs
        before; or a url is new here, its database does not answer, and rows cannot wait for it.
    :raises QueueError: the database of a new url has no outbox.
    """

    def __init__(
        self,
        files: Files,
        checkpoint: str,
        source: SourceOptions,
        places: Places,
        databases: RemoteDatabases | None,
    ) -> None:
        self._files, self._checkpoint = files, checkpoint
        self._file = f"{checkpoint}/{NOTE}"
        self._source, self._places, self._databases = source, places, databases
        self._lock = threading.Lock()
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
            raise self._refused(changed[0], then.get(changed[0]), self._means.get(changed[0]))
        self._write()
        #: Whether rows have begun to wait, or came back into the queue, since the query began.
        self.came_back = False
        if databases is not None:
            databases.on_reaching, databases.on_leaving = self._note_reached, self._note_left

    def end(self, *, stopped: bool, available_now: bool, given_back: bool) -> None:
        """Note that a run has ended without an error: asked to stop, or by itself.

        With ``availableNow`` it has taken all that stood in the queue when the query began, also what an
        earlier loss of the claim had left there.

        :param given_back: whether the source has given rows of a logged batch back, its claim being lost.
        """
        found = Checkpoint.of(self._files, self._checkpoint)
        if found.pending is None:
            ended = available_now and not self.came_back and not _rows_wait(self._source)
            self._nothing_left = self._nothing_left and not given_back if stopped else ended
            self._begun = found.begun
            self._write()

    def _write(self) -> None:
        with self._lock:  # the newest note stays
            note = {"means": self._means, "nothingLeft": self._nothing_left, "begun": self._begun}
            self._files.write(self._file, json.dumps(note, indent=1))

    def _refused(self, name: str, then: Any, now: Any) -> ConfigurationError:
        was, is_ = _told(then), _told(now)
        if was == is_:  # the url leads to another database now
            was, is_ = (f"{_told(each)} ({each['database']})" for each in (then, now))
        return ConfigurationError(
            f"The option {name} was {was} and is {is_} now, and the last run has left messages "
            "that may then be sent twice; run the job as it was until it ends, with availableNow, or "
            f"delete the file {self._file} to accept that."
        )

    def _leads(self, reached: Mapping[str, str]) -> dict[str, Any]:
        """Where each url of the sink leads, without its login, and the database that its server tells."""
        away = self._places.away
        urls = {f"endpoint.{name}.url": url for name, url in away.endpoint_urls.items()}
        if away.url != self._places.home.url:
            urls["sink.url"] = away.url
        targets = {each.url: each for each in self._places.everywhere()}
        means = {
            url: {"leads": (leads := location(url)), "database": self._look(targets[url], reached.get(leads))}
            for url in dict.fromkeys(urls.values())
        }
        return {name: means[url] for name, url in urls.items()}

    def _look(self, target: Target, reached: str | None) -> str | None:
        """Which database answers; the one that was reached before, if none does.

        :raises QueueError: it is a new one, and has no outbox: nothing was sent there, and nothing will be.
        """
        if self._databases is not None and target in self._databases.down():
            return reached
        options = self._places.at(target)
        stores = options.store_and_forward is not None
        try:
            with connect(target, again=reached is not None) as connection:
                if reached is None and options.uses_outbox and not stores:
                    OutboxTable.of_sink(connection, options).check()
                with connection.transaction():
                    return identity(connection)
        except TryAgain as error:
            if reached is not None or stores or self._databases is not None:
                return reached
            raise ConfigurationError(
                f"The database of {self._places.option_of(target)} does not answer, no run with this "
                "checkpoint has reached it, and rows cannot wait for it; start the job when the database is "
                f"back: {error}"
            ) from error

    def _note_reached(self, connection: Connection) -> None:
        """Note which database answers, before anything is sent there.

        :raises TryAgain: it does not any more.
        :raises ConfigurationError: it is another one than this run has noted.
        """
        with connection.transaction():
            found = {"leads": location(connection.target.url), "database": identity(connection)}
        for name, means in self._means.items():
            if not isinstance(means, dict) or means["leads"] != found["leads"] or means == found:
                continue
            if means["database"] is not None:
                raise self._refused(name, means, found)
            means["database"] = found["database"]
            self._write()

    def _note_left(self) -> None:
        """Note that rows wait: any mover may put them back. And that they come back, before they do."""
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
    """The options by which an address becomes a table, an event has a type, and an outbox is found."""
    home, away = places.home, places.away
    queue = away.queue and str(places.destination(away.queue).table)
    # An atomic batch asks the outbox of its endpoint too.
    found = {"sink.queue": queue, "sink.endpoint": None if home.outbox == NO_OUTBOX else home.sender}
    found["sink.messageType"] = away.message_type if away.publish else None
    for side, options, target in (("source", source, places.at_home), ("sink", away, Target.of(away))):
        found[f"{side}.defaultSchema"] = options.naming(target.dialect).default_schema
        found[f"{side}.legacyAddresses"] = "true" if options.legacy_addresses else None
        for kind, schemas in (("queue", options.queue_schemas), ("endpoint", options.endpoint_schemas)):
            found |= {f"{side}.{kind}.{name}.schema": schema for name, schema in schemas.items()}
    return {name: value for name, value in found.items() if value is not None}


def _rows_wait(source: SourceOptions) -> bool:
    with connect(Target.of(source)) as connection:
        with connection.transaction():
            queues = opened(connection, source, looking=True)
        return bool(awaited(connection, [each.table.table for each in queues]))


def _alike(then: Any, now: Any) -> bool:
    """Whether an option means the same. Two urls lead to one database where the server says so.

    A url of which no server was reached may be corrected or left out: nothing was sent there.
    """
    if isinstance(then, dict):
        return then["database"] is None or (isinstance(now, dict) and then["database"] == now["database"])
    return bool(then == now)


def _told(means: Any) -> str:
    return repr(means["leads"] if isinstance(means, dict) else means) if means else "not set"
