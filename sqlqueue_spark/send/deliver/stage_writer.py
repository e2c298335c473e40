"""Puts messages on the stage of an atomic pipeline; they go out from there when their batch is settled."""

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError, QueueError, RowsHeld, StatementTimeout
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.compose.chunk import Chunk
from sqlqueue_spark.send.compose.column_values import gathered, joined
from sqlqueue_spark.send.deliver.addressed_chunk import Decision
from sqlqueue_spark.send.deliver.destination_tables import Destination, Destinations, Rows
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.sends_once import SendsOnce
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.insert import fitted
from sqlqueue_spark.tables.stages.stage import Stage, StageRun
from sqlqueue_spark.tables.stages.stage_name import table_of
from sqlqueue_spark.tables.stages.stage_table import Gone

log = logger(__name__)

#: How long a rehearsal waits for the locks of others.
_REHEARSAL_MS = 100


@dataclass(frozen=True)
class Staged:
    """What one task has put on the stage. It counts when the stage is sealed with the task's name."""

    task: str
    destinations: Sequence[str]
    #: Those that messages have named, and no option.
    named: Sequence[str]
    rows: int
    #: What these rows are. Repeated are those that it has left out: the outbox knows them from times in which
    #: the pipeline was not atomic.
    sent: Sent = field(default_factory=Sent)


def stage(destinations: Destinations, chunks: Iterable[Chunk]) -> Staged:
    """Stage chunks in their order, under a new name for the task, which no other attempt has.

    Chunks are committed one by one. A task that fails leaves rows on the stage. They never count, and they go
    when the stage is next emptied.

    :raises TryAgain: the database gave way too often, or it is not known whether a chunk was committed.
    """
    with _StageWriter(destinations) as writer:
        sent = writer.send(chunks)
    return Staged(writer.task, [*writer.staged], [*writer.named], sum(writer.staged.values()), sent)


def seal(
    options: SinkOptions,
    staged: Sequence[Staged],
    run: StageRun,
    *,
    own_ids: bool = False,
    void: Collection[str] = (),
) -> None:
    """Write into the mark which tasks' rows count: those that Spark has accepted. A repetition is harmless.

    First the sink rehearses each destination, so that it finds what a destination would refuse while the
    batch can still be refused. Errors as :meth:`Stage.seal`.

    :param run: what :func:`prepare` returned.
    :param own_ids: whether the rows have Ids of their own. A destination may have any of these already.
    :param void: tasks that do not count any more.
    :raises QueueError: a destination is not there any more, or refuses a message.
    """
    tasks: dict[str, int | None] = {each.task: each.rows for each in staged}
    names = list(dict.fromkeys(name for each in staged for name in each.destinations))
    named = list(dict.fromkeys(name for each in staged for name in each.named))
    if not run.claimed and not any(tasks.values()):
        return  # the source has no rows in the batch, and there is nothing to send

    def sealed() -> None:
        with connect(Target.of(options), again=True) as connection:
            stage = Stage(connection, table_of(options), options)
            for name in sorted(names):
                _rehearse(stage, tasks, name, whole=own_ids, named=name in named)
            with connection.transaction():
                stage.seal(tasks, names, run=run.name, batch=run.batch, named=named, void=void)

    Retry(f"sealing the stage of {options.sender}").retried(sealed)
    fail_points.step(fail_points.STAGE_SEALED)


def _rehearse(stage: Stage, tasks: Mapping[str, int | None], name: str, *, whole: bool, named: bool) -> None:
    """Send to a destination what settling will send to it, or one message of that, and roll back."""
    try:
        with stage.connection.rehearsal(_REHEARSAL_MS):
            stage.rehearse(tasks, name, whole=whole, named=named)
    except RowsHeld:
        log.debug("not_rehearsed destination=%s: it is locked, which says nothing of its messages", name)
    except (QueueError, ConfigurationError, StatementTimeout) as error:
        if stage.error_queue is None or not (named or isinstance(error, Gone)):
            raise
        log.debug("not_rehearsed destination=%s: what it refuses fails when it is settled: %s", name, error)


class _StageWriter(Sender):
    """Puts chunks on the stage over a connection of its own, each chunk in one transaction.

    It tries again as long as it is certain that the chunk is not on the stage.
    """

    def __init__(self, destinations: Destinations) -> None:
        super().__init__(destinations)
        self.task = str(uuid.uuid4())
        #: The names of the tables that messages go to, each with the number of messages.
        self.staged: Counter[str] = Counter()
        #: Those that messages have named, and no option.
        self.named: set[str] = set()
        self._committing = False
        self._retry = Retry(f"staging by {self._options.sender}")

    def _delivered(self, target: Target, work: SendsOnce) -> Decision:  # noqa: ARG002 -- home
        return self._retried(lambda: self._staged(work), lambda _: not self._committing)

    def _staged(self, work: SendsOnce) -> Decision:
        self._committing = False
        connection = self._connected(self._home)
        known = set()
        if self._destinations.has_sent(connection):
            outbox = work.outbox(connection)
            with connection.transaction():
                known = work.known(outbox, work.asked(outbox))
        decision = work.decide(known)
        with connection.transaction(), work.entered(connection, locking=False) as barred:
            work.check_allowed(decision, barred)
        rows = [part for to, its in work.messages(decision) for part in work.message_rows(to, its)]
        rows += [*work.beside(decision), *work.acknowledged(decision, barred)]
        with connection.transaction():
            messages = {_text(to): fitted(connection, to.table, its) for to, its in _together(rows)}
            Stage(connection, table_of(self._options)).add(self.task, messages)
            fail_points.step(fail_points.ROWS_STAGED)
            self._committing = True
        self.staged.update({name: len(its) for name, its in messages.items()})
        self.named.update(_text(to) for to, _ in rows if not to.chosen)
        return decision


def _text(to: Destination) -> str:
    """The name of a destination on a stage."""
    return replace(to.table.table, catalog=to.table.database).to_text()


def _together(rows: Iterable[Rows]) -> list[Rows]:
    """The rows with those of one table together."""
    tables = gathered(rows, lambda each: each[0].table.address).values()
    return [(its[0][0], joined([part for _, part in its])) for its in tables]
