"""``SqlQueueSink`` and the writers of ``format("sqlqueue")``: translate between Spark and the sender; decide nothing."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sqlqueue_spark.engines.retry import Retry
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send import (
    Destinations,
    FrameColumns,
    MessageBuilder,
    Sender,
    Sent,
    Staged,
    prepare,
    seal,
    stage,
)
from sqlqueue_spark.tables.outbox_cleanup import OutboxCleaner
from sqlqueue_spark.tables.stage import Run
from sqlqueue_spark.tables.stage_mark import Batch

log = logger(__name__)

#: How long a batch job waits at its end for a cleanup of the outbox. What remains is left to the next cleanup.
_CLEANUP_SECONDS = 10.0

#: The sink remembers of so many batches how many messages it sent.
_REMEMBERED = 100
#: The properties in which Spark keeps a query's id and the id of its run, on the thread that runs the query's batches.
_QUERY_ID, _RUN_ID = "sql.streaming.queryId", "spark.jobGroup.id"
#: Stands for the run's id where Spark does not tell it (Spark Connect).
_PROCESS = str(uuid.uuid4())

_SENT = pa.schema([("sent", pa.int64()), ("repeated", pa.int64()), ("untyped", pa.int64())])
_STAGED = pa.schema(
    [
        ("task", pa.string()),
        ("destinations", pa.list_(pa.string())),
        ("rows", pa.int64()),
        ("repeated", pa.int64()),
        ("untyped", pa.int64()),
    ]
)
_SENT_COLUMNS = "sent long, repeated long, untyped long"
_STAGED_COLUMNS = "task string, destinations array<string>, rows long, repeated long, untyped long"


class SqlQueueSink:
    """Sends the rows of each micro-batch to queue tables: ``df.writeStream.foreachBatch(SqlQueueSink(…)).start()``.

    Its arguments are the options, by their names. Options whose names have dots go into ``options``::

        SqlQueueSink(url="postgresql://…", queue="Billing", endpoint="Sales.Spark", outbox="pessimistic",
                     options={"endpoint.Shipping*.url": "postgresql://…"})

    With an outbox a batch that is tried again sends only what is missing. A frame must have the column ``Body`` (binary or
    string). It may have ``Headers`` (JSON or map), ``MessageId``, ``Destination``, ``Id``, ``CorrelationId``,
    ``ReplyToAddress``, and ``TimeToBeReceived`` (interval) or ``Expires``. Where it has ``RowVersion``, its rows were
    received: then ``Id`` (and ``Queue``) tell which row that was, and are not written.

    The sink logs one line a batch, as a warning where messages had been sent before: ``sent batch=7 sent=90 repeated=10``.

    :raises ConfigurationError: an option is unknown, missing or malformed; or, when the sink is called, a column is.
    """

    def __init__(self, *, options: Mapping[str, str] | None = None, **named: object) -> None:
        given = {name: _text(value) for name, value in named.items() if value is not None}
        self.__setstate__(SinkOptions.parse({**(options or {}), **given}))

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Send a batch; Spark calls this. The sink sends nothing before it has checked columns, destinations and outbox."""
        columns = FrameColumns.of(df.dtypes, self._options)
        rows = df.persist() if "Destination" in columns.names else df
        try:
            addresses = _addresses(rows, columns, self._options)
            batch = _batch_of(df, batch_id)
            last = self._last_run
            sent_before = last is not None
            run = self._patience.retried(
                lambda: prepare(
                    self._options, self._destinations, addresses, again=sent_before, batch=batch, last=last
                ),
                lambda _: sent_before,
            )
            self._last_run = run
            task = _Task.of(columns, self._options, self._destinations)
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
            if rows is not df:
                rows.unpersist()

    def _send(self, rows: DataFrame, task: _Task, batch_id: int) -> None:
        done = rows.mapInArrow(task.send, _SENT_COLUMNS).collect()
        sent = _together(Sent(sent=each.sent, repeated=each.repeated) for each in done)
        self._remember(batch_id, sent)
        _log_sent(f"batch={batch_id} ", sent)
        self._say_untyped(sum(each.untyped for each in done))

    def _stage(self, rows: DataFrame, task: _Task, run: Run, *, own_ids: bool) -> None:
        done = rows.mapInArrow(task.stage, _STAGED_COLUMNS).collect()
        staged = [Staged(task=t, destinations=tuple(d), rows=n, repeated=old) for t, d, n, old, _ in done]
        seal(self._options, staged, run, own_ids=own_ids)
        sent = _together(Sent(sent=each.rows, repeated=each.repeated) for each in staged)
        self._remember(run.batch.number, sent)
        level = logging.WARNING if sent.repeated else logging.INFO
        log.log(level, "staged batch=%s staged=%d repeated=%d", run.batch.number, sent.sent, sent.repeated)
        self._say_untyped(sum(each.untyped for each in done))

    def _say_untyped(self, count: int) -> None:
        """Say once that messages have no type."""
        if count and not self._said_untyped:
            self._said_untyped = True
            _log_untyped(count)

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
        return f"sent={sent.sent}{repeated}"

    def _remember(self, batch_id: int, sent: Sent) -> None:
        self._counts.pop(batch_id, None)
        self._counts[batch_id] = sent
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]

    def __getstate__(self) -> SinkOptions:
        return self._options

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

    def __repr__(self) -> str:
        return f"SqlQueueSink({self._options!r})"


@dataclass(frozen=True)
class _Task:
    """What a worker does with its part of a batch."""

    composer: MessageBuilder
    destinations: Destinations

    @classmethod
    def of(cls, columns: FrameColumns, options: SinkOptions, destinations: Destinations) -> Self:
        builder = MessageBuilder(columns=columns, options=options, destinations=destinations)
        return cls(builder, destinations)

    def send(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent = self.sent(batches)
        yield pa.RecordBatch.from_pylist([{**asdict(sent), "untyped": self.composer.untyped.number}], _SENT)

    def sent(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        with Sender(self.composer.options, self.destinations) as sender:
            return sender.send(self.composer.compose(batches))

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged = stage(self.composer.options, self.destinations, self.composer.compose(batches))
        yield pa.RecordBatch.from_pylist(
            [{**asdict(staged), "untyped": self.composer.untyped.number}], _STAGED
        )


@dataclass
class _Committed(WriterCommitMessage):
    sent: Sent
    untyped: int


class SqlQueueWriter(DataSourceArrowWriter):
    """``df.write.format("sqlqueue").mode("append")``: sends as the sink does, in a batch job."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "A queue cannot be overwritten: receivers own its rows; write with mode append, and empty it with: "
                "sqlqueue purge QUEUE."
            )
        parsed = SinkOptions.parse(options)
        if parsed.transaction_mode == ATOMIC:
            raise ConfigurationError(
                "The option transactionMode is sendsAtomicWithReceive, which only a stream can have; leave it out of a batch "
                "job, where an outbox keeps a repeated write from sending twice."
            )
        columns = FrameColumns.of([(each.name, each.dataType.simpleString()) for each in schema], parsed)
        destinations = Destinations(parsed)
        prepare(parsed, destinations, () if parsed.queue is None else (parsed.queue,))
        self._options = parsed
        self._task = _Task.of(columns, parsed, destinations)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Committed(self._task.sent(iterator), self._task.composer.untyped.number)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        cleaner = OutboxCleaner(self._options)
        cleaner.clean_when_due(self._task.destinations.having_outboxes())
        sent = [each.sent for each in messages if isinstance(each, _Committed)]
        _log_sent("", _together(sent))
        if untyped := sum(each.untyped for each in messages if isinstance(each, _Committed)):
            _log_untyped(untyped)
        cleaner.wait(_CLEANUP_SECONDS)  # the cleanup's process ends with the job

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: an outbox knows what was sent, and when the job writes again, it sends the rest."""


def _together(sent: Iterable[Sent]) -> Sent:
    found = list(sent)
    return Sent(sent=sum(each.sent for each in found), repeated=sum(each.repeated for each in found))


def _log_sent(which: str, sent: Sent) -> None:
    """Log one line a batch, as a warning where messages were repeated.

    After a failure repeats are right. Else they are a sign that ids are not as unique as they should be.
    """
    level = logging.WARNING if sent.repeated else logging.INFO
    log.log(level, "sent %ssent=%d repeated=%d", which, sent.sent, sent.repeated)


def _log_untyped(count: int) -> None:
    log.warning(
        "without_type messages=%d: a .NET endpoint cannot handle a message without a type, and moves it to its error queue; set the "
        "option messageType, or give the header %s",
        count,
        ENCLOSED_MESSAGE_TYPES,
    )


def _addresses(rows: DataFrame, columns: FrameColumns, options: SinkOptions) -> list[str]:
    """The addresses that the rows of a batch go to."""
    own = [] if options.queue is None else [options.queue]
    column = columns.names.get("Destination")
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
