"""``SqlQueueSink``: translates between ``foreachBatch`` and the sender; decides nothing."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send import (
    DatabaseWait,
    Destinations,
    FrameColumns,
    RemoteDatabases,
    Sent,
    Staged,
    prepare,
    seal,
)
from sqlqueue_spark.send.frame_columns import ORIGIN
from sqlqueue_spark.spark.processes import log_to_stderr
from sqlqueue_spark.spark.send_task import (
    SENT_COLUMNS,
    STAGED_COLUMNS,
    SendTask,
    Task,
    counted,
    log_sent,
    log_untyped,
)
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner
from sqlqueue_spark.tables.stage import Run
from sqlqueue_spark.tables.stage_mark import Batch

log = logger(__name__)

#: How long a batch job waits at its end for a cleanup of the outbox. What remains is left to the next cleanup.
_CLEANUP_SECONDS = 10.0

#: The sink remembers of so many batches how many messages it sent.
_REMEMBERED = 100
#: What is looked at of the outcome of a received message.
_OF_OUTCOMES = frozenset({*ORIGIN, "Headers", "Body", "MessageId", "Outgoing", "Failure"})
#: The properties in which Spark keeps a query's id and the id of its run, on the thread that runs the query's batches.
_QUERY_ID, _RUN_ID = "sql.streaming.queryId", "spark.jobGroup.id"
#: Stands for the run's id where Spark does not tell it (Spark Connect).
_PROCESS = str(uuid.uuid4())


class SqlQueueSink:
    """Sends the rows of each micro-batch to queue tables: ``df.writeStream.foreachBatch(SqlQueueSink(…)).start()``.

    Its arguments are the options, by their names. Options whose names have dots go into ``options``::

        SqlQueueSink(url="postgresql://…", queue="Billing", endpoint="Sales.Spark", outbox="pessimistic",
                     options={"endpoint.Shipping*.url": "postgresql://…"})

    With an outbox a batch that is tried again sends only what is missing. A frame must have the column ``Body`` (binary or
    string). It may have ``Headers`` (JSON or map), ``MessageId``, ``Destination``, ``Id``, ``CorrelationId``,
    ``ReplyToAddress``, and ``TimeToBeReceived`` (interval) or ``Expires``. Where it has ``RowVersion``, its rows were
    received: then ``Id`` (and ``Queue``) tell which row that was, and are not written.

    With the column ``Outgoing`` (an array of messages) or ``Failure`` (NULL where nothing failed), each row is the outcome of a
    received message, and has its ``Queue``, ``RowVersion`` and ``Id``: it sends all of ``Outgoing`` at once, or it goes to
    ``errorQueue``. However often its batch is tried, with an outbox it has one outcome, the first that is committed.

    The sink logs one line a batch, as a warning where messages had been sent before: ``sent batch=7 sent=90 repeated=10``.

    :raises ConfigurationError: an option is unknown, missing or malformed; or, when the sink is called, a column is.
    """

    def __init__(self, *, options: Mapping[str, str] | None = None, **named: object) -> None:
        given = {name: _text(value) for name, value in named.items() if value is not None}
        self.__setstate__(SinkOptions.parse({**(options or {}), **given}))

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Send a batch; Spark calls this. The sink sends nothing before it has checked columns, destinations and outbox.

        While a database of ``endpoint.<name>.url`` is down, the batch waits for it.
        """
        log_to_stderr()
        while True:
            try:
                self._send_batch(df, batch_id)
            except Exception:
                if not self._options.endpoint_urls or not DatabaseWait(self._options, self.stopped).waited(
                    batch_id
                ):
                    raise
            else:
                return

    def _send_batch(self, df: DataFrame, batch_id: int) -> None:
        columns = FrameColumns.of(df.dtypes, self._options)
        # Outcomes are not looked at before: whoever made them must not make them twice.
        looked_at = "Destination" in columns.names and not columns.outcomes
        rows = kept = df.persist() if looked_at else df
        try:
            addresses = _addresses(rows, columns.names if looked_at else {}, self._options)
            batch = _batch_of(df, batch_id)
            last = self._last_run
            sent_before = last is not None
            run = self._patience.retried(
                lambda: prepare(
                    self._options,
                    self._destinations,
                    addresses,
                    again=sent_before,
                    delays=columns.delays,
                    events=columns.events or self._options.publish,
                    batch=batch,
                    last=last,
                    databases=self.databases,
                ),
                lambda _: sent_before,
            )
            self._last_run = run
            rows = _needed(rows, columns)
            down = None if self.databases is None else self.databases.down()
            task = SendTask.of(columns, self._options, self._destinations, down)
            if self._options.transaction_mode == ATOMIC:
                own_ids = "Id" in columns.names and not columns.received
                self._stage(rows, task, run, own_ids=own_ids)
            else:
                self._send(rows, task, batch_id)
            self._cleaner.clean_when_due(self._destinations.having_outboxes())
        except BaseException:
            self._destinations.forget()
            raise
        finally:
            if kept is not df:
                kept.unpersist()

    def _send(self, rows: DataFrame, task: Task, batch_id: int) -> None:
        done = rows.mapInArrow(task.send, SENT_COLUMNS).collect()
        sent = counted(done)
        self._remember(batch_id, sent)
        if self.databases is not None:
            self.databases.note(sent)
        log_sent(f"batch={batch_id} ", sent)
        self._say_untyped(sum(each.untyped for each in done))

    def _stage(self, rows: DataFrame, task: SendTask, run: Run, *, own_ids: bool) -> None:
        done = rows.mapInArrow(task.stage, STAGED_COLUMNS).collect()
        staged = [
            Staged(task=each.task, destinations=tuple(each.destinations), rows=each.rows) for each in done
        ]
        seal(self._options, staged, run, own_ids=own_ids)
        sent = counted(done)
        self._remember(run.batch.number, sent)
        level = logging.WARNING if sent.repeated or sent.failed else logging.INFO
        said = "staged batch=%s staged=%d repeated=%d%s"
        log.log(level, said, run.batch.number, sent.sent, sent.repeated, sent.others)
        self._say_untyped(sum(each.untyped for each in done))

    def _say_untyped(self, count: int) -> None:
        """Say once that messages have no type."""
        if count and not self._said_untyped:
            self._said_untyped = True
            log_untyped(count)

    def sent_in(self, batch_id: int) -> Sent | None:
        """How many messages of a batch went out, or onto the stage, and how many had been sent before.

        None if the batch is not among the last ones that this process has sent. Under Spark Connect another process sends.
        """
        return self._counts.get(batch_id)

    def details(self, batch_id: int) -> str:
        """What :meth:`sent_in` says, as ``key=value`` for the batch's line; empty where it is not known."""
        sent = self.sent_in(batch_id)
        if sent is None:
            return ""
        atomic = self._options.transaction_mode == ATOMIC
        repeated = f" repeated={sent.repeated}" if sent.repeated or not atomic else ""
        return f"sent={sent.sent}{repeated}{sent.others}"

    def _remember(self, batch_id: int, sent: Sent) -> None:
        self._counts.pop(batch_id, None)
        self._counts[batch_id] = sent
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]

    def __getstate__(self) -> SinkOptions:
        return self._options

    #: Other databases of which some may be down, and messages for them wait. A job sets it, which looks whether they are back.
    databases: RemoteDatabases | None
    #: Whether somebody asks to stop, so that a batch does not wait any longer.
    stopped: Callable[[], bool]
    #: What the last batch was staged for. While it is None, an error counts as the configuration's and is not retried.
    _last_run: Run | None
    _said_untyped: bool

    def __setstate__(self, options: SinkOptions) -> None:
        self._options = options
        self._destinations = Destinations(options)
        self._cleaner = OutboxCleaner(options)
        self._patience = Retry(f"sending by {options.sender or 'a sink'}")
        self._counts: dict[int, Sent] = {}
        self._last_run = None
        self._said_untyped = False
        self.databases = None
        self.stopped = lambda: False

    def __repr__(self) -> str:
        return f"SqlQueueSink({self._options!r})"


def _needed(rows: DataFrame, columns: FrameColumns) -> DataFrame:
    """What the workers need of rows that are outcomes: no column that they do not look at, and ``Failure`` as JSON.

    Spark asks after each row how large its Arrow batch is, and then Arrow looks at each field of each struct. As most messages do not
    fail, these fields took a third of the time of Spark's tasks.
    """
    if "Outgoing" in columns.names:
        rows = rows.drop(*(own for name, own in columns.names.items() if name not in _OF_OUTCOMES))
    own = columns.names.get("Failure", "")
    return rows.withColumn(own, _json(F.col(f"`{own}`"), columns.failure)) if columns.failure else rows


def _json(failure: Column, fields: Mapping[str, str]) -> Column:
    """The column Failure as JSON, with times as microseconds; NULL where nothing failed.

    :param fields: the fields that it has, by their known names.
    """
    told = {name: failure.getField(own) for name, own in fields.items()}
    if (time := told.get("TimeOfFailure")) is not None:
        told["TimeOfFailure"] = F.unix_micros(time.cast("timestamp"))
    if (delay := told.get("RetryAfter")) is not None:
        whole = delay.cast("interval day to second")
        day, hour, minute, second = (
            F.extract(F.lit(part), whole) for part in ("DAY", "HOUR", "MINUTE", "SECOND")
        )
        minutes = (day.cast("bigint") * 24 + hour) * 60 + minute
        told["RetryAfter"] = minutes * 60_000_000 + (second * 1_000_000).cast("bigint")
    struct = F.struct(*(value.alias(name) for name, value in told.items()))
    return F.when(failure.isNotNull(), F.to_json(struct))


def _addresses(rows: DataFrame, columns: Mapping[str, str], options: SinkOptions) -> list[str]:
    """The addresses that the rows of a batch go to, as far as these columns tell."""
    own = [] if options.queue is None else [options.queue]
    column = columns.get("Destination")
    if column is None:
        return own
    named = [row[0] for row in rows.select(column).distinct().collect()]
    return [each for each in named if each] + (own if None in named or "" in named else [])


def _batch_of(df: DataFrame, number: int) -> Batch:
    """What Spark tells of the batch; call it on the thread that runs the batch."""
    context = getattr(df.sparkSession, "sparkContext", None)
    if context is None:
        return Batch(number=number, attempt=_PROCESS)
    query, run = (context.getLocalProperty(name) or "" for name in (_QUERY_ID, _RUN_ID))
    return Batch(query=query, number=number, attempt=run or _PROCESS)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
