"""``SqlQueueSink``: translates between ``foreachBatch`` and the sender; decides nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Literal, Never, Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.options.environment import of_libpq, with_password
from sqlqueue_spark.options.fields import written
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import look_before, prepare
from sqlqueue_spark.send.deliver.stage_writer import Staged, seal
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.databases_down import RemoteDatabases, database_came_back
from sqlqueue_spark.spark.batch_frame import addresses, batch_of, needed
from sqlqueue_spark.spark.computed_again import surely_same, warn_if_computed_again
from sqlqueue_spark.spark.error_boundary import end_if_stopped, shorten
from sqlqueue_spark.spark.processes import log_to_stderr
from sqlqueue_spark.spark.send_task import SENT_COLUMNS, STAGED_COLUMNS, SendTask, counted, log_untyped
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner
from sqlqueue_spark.tables.stages.stage import StageRun
from sqlqueue_spark.tables.stages.stage_mark import Batch

#: As people write it, ``"30s"``, or as Python has it.
Duration = str | timedelta
#: What stands among the arguments and is no option by its name.
_NO_OPTIONS = ("self", "options", "unknown")
#: The options of home, those of another database, and whether answers stay at home.
_State = tuple[SinkOptions, SinkOptions | None, bool]
#: How many batches the sink remembers the number of sent messages of.
_REMEMBERED = 100


class SqlQueueSink:
    """Sends the rows of each micro-batch to queues: ``df.writeStream.foreachBatch(SqlQueueSink(…)).start()``.

    Its arguments are the options, by their names. Durations are texts like ``30s``, or ``timedelta``.
    Options with dots in their names go into ``options``; others may stand there too, all as texts::

        SqlQueueSink(url="postgresql://…", queue="Billing", endpoint="Sales.Spark", outbox="pessimistic",
                     options={"endpoint.Shipping*.url": "postgresql://…"})

    With an outbox a batch that is tried again sends only what is missing. A frame must have the column
    ``Body`` (binary or string). It may have ``Headers`` (JSON or map), ``MessageId``, ``Destination``,
    ``Id``, ``CorrelationId``, ``ReplyToAddress``, and ``TimeToBeReceived`` (interval) or ``Expires``. Where
    it has ``RowVersion``, its rows were received: then ``Id`` (and ``Queue``) tell which row that was, and
    are not written.

    With the column ``Outgoing`` (an array of messages) or ``Failure`` (NULL where nothing failed), each row
    is the outcome of a received message, and has its ``Queue``, ``RowVersion`` and ``Id``: it sends all of
    ``Outgoing`` at once, or it goes to ``errorQueue``. However often its batch is tried, with an outbox it
    has one outcome, the first that is committed.

    The sink logs one line a batch, as a warning where messages had been sent before: ``sent batch=7 sent=90
    repeated=10``.

    Where ``url`` is the environment's ``SQLQUEUE_URL`` and no login is given, the password is
    ``SQLQUEUE_PASSWORD``.

    When it is made, it looks for the queues and the outbox that its options name, and for the right to write
    there. A database that is down is no error yet. Through Spark Connect, Spark's driver is another process,
    and the first batch looks.

    :raises ConfigurationError: an option is unknown, missing or malformed, or a database refuses the login;
        or a column is malformed, when it is called.
    :raises QueueError: a queue or an outbox is missing, or may not be written to.
    """

    def __init__(
        self,
        *,
        options: Mapping[str, str] | None = None,
        url: str | None = None,
        user: str | None = None,
        password: str | None = None,
        accessToken: str | None = None,
        accessTokenProvider: str | None = None,
        defaultSchema: str | None = None,
        legacyAddresses: bool | None = None,
        lockTimeout: Duration | None = None,
        commandTimeout: Duration | None = None,
        allowedDestinations: str | None = None,
        queue: str | None = None,
        endpoint: str | None = None,
        outbox: Literal["optimistic", "pessimistic", "none"] | None = None,
        isolationLevel: Literal["ReadCommitted", "RepeatableRead", "Serializable", "Snapshot"] | None = None,
        keepDeduplicationDataFor: Duration | None = None,
        cleanupEvery: Duration | None = None,
        disableCleanup: bool | None = None,
        errorQueue: str | None = None,
        auditQueue: str | None = None,
        retryInterval: Duration | None = None,
        giveUpAfter: Duration | None = None,
        delayedEndpoint: str | None = None,
        publish: bool | None = None,
        messageType: str | None = None,
        transactionMode: Literal["receiveOnly", "sendsAtomicWithReceive", "none"] | None = None,
        stream: str | None = None,
        storeAndForward: str | None = None,
        **unknown: Never,
    ) -> None:
        named = {name: value for name, value in locals().items() if name not in _NO_OPTIONS} | unknown
        given = {name: written(value) for name, value in named.items() if value is not None}
        parsed = SinkOptions.parse(with_password({**(options or {}), **given}))
        if not is_remote():
            look_before(parsed)
        self.__setstate__((parsed, None, False))

    @classmethod
    def of(
        cls, options: SinkOptions, away: SinkOptions | None = None, *, answers_at_home: bool = False
    ) -> Self:
        """A sink with options that are read already; the environment adds nothing.

        :param options: those of the database in which its rows were received.
        :param away: those of another database, in which the destinations lie.
        :param answers_at_home: whether what a handler sends goes to the first one all the same.
        """
        sink = cls.__new__(cls)
        sink.__setstate__((options, away, answers_at_home))
        return sink

    def __getstate__(self) -> _State:
        return self._state

    def __setstate__(self, state: _State) -> None:
        options, away, answers_at_home = state
        if is_remote():  # it comes from another machine, and its source has the environment of this one
            options = replace(options, environment=of_libpq())
            away = away and replace(away, environment=of_libpq())
        self._options, self._state = options, (options, away, answers_at_home)
        self._destinations = Destinations(options, away)
        #: What reads the addresses of a handler's messages, where these are not the destinations of others.
        self._answers = Places(options, options) if answers_at_home else None
        self._cleaner = OutboxCleaner(options, at=self._destinations.places.at)
        self._patience = Retry(f"sending by {options.sender or 'a sink'}")
        self._counts: dict[int, Sent] = {}
        #: What the last batch was staged for. While it is None, an error is the configuration's and final.
        self._last_run: StageRun | None = None
        self._said_untyped = False
        #: The run of a stage and its batch; what this sink has sealed there, kept until the next batch; and
        #: tasks of calls that raised while they sealed: it is not known whether these count.
        self._stage_run: tuple[str, Batch] | None = None
        self._sealed: list[tuple[DataFrame, Sent]] = []
        self._in_doubt: list[str] = []
        #: Whether rows of the present batch wait by themselves for a database that is down.
        self._rows_wait = False
        #: Other databases. Messages for those that are down wait. A job sets it, and looks whether they are
        #: back.
        self.databases: RemoteDatabases | None = None
        #: Looks at what became of a batch before Spark logs it. A job sets it.
        self.check: Callable[[Sent], object] = lambda _: None
        #: Whether the program is asked to stop, so that a batch does not wait any longer.
        self.stopped: Callable[[], bool] = lambda: False

    @property
    def places(self) -> Places:
        return self._destinations.places

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Send a batch; Spark calls this. Columns, destinations and outbox are checked before the first send.

        While a database of ``endpoint.<name>.url`` is down, the batch waits for it.
        """
        log_to_stderr()
        while True:
            try:
                self._send_batch(df, batch_id)
                self.check(self._counts[batch_id])
            except Exception as error:
                end_if_stopped(error)
                final = self._rows_wait or (isinstance(error, ConfigurationError) and not error.may_pass)
                if final or not database_came_back(
                    self.places, batch_id, reached=bool(self._counts), stopped=self.stopped
                ):
                    shorten(error)
                    raise
            else:
                return

    def _send_batch(self, df: DataFrame, batch_id: int) -> None:
        columns = FrameColumns.of(df.dtypes, self._options)
        self._rows_wait = self.databases is not None and columns.tells_rows
        # Outcomes are not looked at before: the handler that made them must not run twice.
        looked_at = "Destination" in columns.names and not columns.outcomes
        kept = looked_at and df.storageLevel == StorageLevel.NONE  # else a user keeps it
        if kept:
            df.persist()
        try:
            named = addresses(df, columns.names if looked_at else {}, self._options)
            batch = batch_of(df, batch_id)
            if columns.outcomes:
                warn_if_computed_again(df, batch)
            destinations, last = self._destinations, self._last_run
            run = self._last_run = self._patience.retried(
                lambda: prepare(destinations, columns, named, batch=batch, last=last, down=self._down()),
                lambda _: last is not None,
            )
            rows = needed(df, columns)
            task = SendTask(columns, destinations, self._down(), self._answers)
            if self._options.transaction_mode == ATOMIC:
                self._stage(df, rows, task, run, own_ids="Id" in columns.names and not columns.received)
            else:
                sent = counted(rows.mapInArrow(task.send, SENT_COLUMNS).collect())
                self._told(sent, batch_id, "sent")
                if self.databases is not None:
                    self.databases.note(sent)
            outboxes = self._destinations.having_outboxes()
            if self.databases is None:
                self._cleaner.clean_when_due(outboxes)
            else:
                self.databases.clean(self._cleaner, outboxes)
        except BaseException:
            self._destinations.forget()
            raise
        finally:
            if kept:
                df.unpersist()

    def _down(self) -> set[Target] | None:
        return None if self.databases is None else self.databases.down()

    def _stage(self, df: DataFrame, rows: DataFrame, task: SendTask, run: StageRun, *, own_ids: bool) -> None:
        """Stage and seal a frame, or count it as repeated if this sink has sealed it in this run."""
        if self._stage_run != (run.name, run.batch):
            self._stage_run, self._sealed, self._in_doubt = (run.name, run.batch), [], []
        for before, sent in self._sealed:
            if surely_same(before, df):
                again = sent.repeated + (sent.handled or sent.sent) + sent.failed + sent.retried
                told = Sent(repeated=again, received=sent.received, cubes=sent.cubes)
                self._told(told, run.batch.number, "staged")
                return
        done = rows.mapInArrow(task.stage, STAGED_COLUMNS).collect()
        staged = [Staged(each.task, each.destinations, each.named, each.rows) for each in done]
        try:
            seal(self._options, staged, run, own_ids=own_ids, void=self._in_doubt)
        except BaseException:
            self._in_doubt += [each.task for each in staged]
            raise
        sent = counted(done)
        self._told(sent, run.batch.number, "staged")
        self._sealed.append((df, sent))

    def _told(self, sent: Sent, batch_id: int, what: str) -> None:
        """Remember and log what became of a batch; say once that messages have no type."""
        self._counts.pop(batch_id, None)
        self._counts[batch_id] = sent
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]
        sent.log(f"batch={batch_id} ", what)
        if sent.untyped and not self._said_untyped:
            self._said_untyped = True
            log_untyped(sent.untyped)

    def sent_in(self, batch_id: int) -> Sent | None:
        """How many messages of a batch went out, or onto the stage, and how many had been sent before.

        None if it is not among this process's last batches. Under Spark Connect another process sends.
        """
        return self._counts.get(batch_id)

    def details(self, batch_id: int) -> str:
        """What :meth:`sent_in` says, as ``key=value`` for the batch's line; empty where it is not known."""
        if (sent := self.sent_in(batch_id)) is None:
            return ""
        atomic = self._options.transaction_mode == ATOMIC
        repeated = f" repeated={sent.repeated}" if sent.repeated or not atomic else ""
        return f"sent={sent.sent}{repeated}{sent.others}"

    def __repr__(self) -> str:
        return f"SqlQueueSink({self._options!r})"
