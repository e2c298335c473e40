"""Handles messages in a child process, and finds out which message ends or hangs the process.

The child is forked once and kept from task to task: a connection in the handler's module, for example, stays
open. The child may end while it handles a message. Or it hangs, hears no alarm, and is killed. A new child
handles the rest:

- The message at which the child ended is tried once more, alone and first in a new child, whatever the number
  of immediate retries. Another message may have caused the end, by memory that it left or by a thread. If the
  new child ends, too, the message has failed by ``WorkerDied``.
- The message at which the child hung is tried once more in the same way, unless there are no immediate
  retries. A second wait is expensive, but a new child has new connections. If it hangs again, the message has
  failed by ``HandlerTimeout``.
- If ``WorkerDied`` or ``HandlerTimeout`` is an unrecoverable exception, the message is not tried again.
- Outcomes that the child has given away count. It gives them away every 0.05 s. The messages after them are
  handled again: none where each call takes longer than that.
- A child is found again by the bytes of its pickled handler. So a stream that makes ``each_message`` anew for
  each batch has one child, not hundreds.
"""

from __future__ import annotations

import collections
import functools
import itertools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer

from sqlqueue_spark.errors import ConfigurationError, HandlerTimeout, WorkerDied
from sqlqueue_spark.handling.batch_handler import BatchHandler
from sqlqueue_spark.handling.child_process import ChildEnded, ChildProcess, Outcomes
from sqlqueue_spark.handling.handler_calls import Handler, Limits, Seen
from sqlqueue_spark.handling.outcome_columns import failed, outcome_columns, with_outcomes
from sqlqueue_spark.handling.received_message import COLUMNS, received
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.row_set import bounded
from sqlqueue_spark.spark.arrow_batches import plain
from sqlqueue_spark.spark.processes import leave_out_modules

log = logger(__name__)

#: Most messages and bytes that a child is given at once.
_PART_ROWS, _PART_BYTES = 4_000, 4 << 20
#: Most children that a worker keeps when their tasks are done.
_MOST_IDLE = 4
#: How often in a row a child may end before it has begun with a message.
_MOST_UNBEGUN = 3

#: By the pickled handlers. A child that is in use is not among them, so that no other task speaks to it.
_idle: collections.OrderedDict[bytes, ChildProcess] = collections.OrderedDict()


@dataclass(eq=False)
class HandlingTask:
    """What a worker does with its part of a batch, in a child process.

    :param pickled: the handler, which is loaded only in the child.
    :param limits: of the handler; of the exceptions only ``WorkerDied`` and ``HandlerTimeout`` count.
    """

    pickled: bytes
    limits: Limits
    _child: ChildProcess | None = field(default=None, init=False)
    _unbegun: int = field(default=0, init=False)

    @classmethod
    def of(cls, handler: Handler) -> HandlingTask:
        limits = handler.limits
        known = tuple(each for each in (WorkerDied, HandlerTimeout) if issubclass(each, limits.unrecoverable))
        pickled = CloudPickleSerializer().dumps(handler)  # type: ignore[no-untyped-call] # Spark's
        return cls(pickled, replace(limits, unrecoverable=known))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages with their outcomes, in batches, and in their order unless a child ends.

        :raises ConfigurationError: the handler cannot be loaded.
        :raises OSError: no process can be made.
        """
        leave_out_modules()
        self._child = _idle.pop(self.pickled, None)
        self._usable_child()
        try:
            for batch in plain(batches):
                yield from self._handled(batch)
        finally:
            if self._child is not None and self._child.usable:
                _idle[self.pickled] = self._child
            while len(_idle) > _MOST_IDLE:
                _idle.popitem(last=False)[1].end()

    def _handled(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        needed = messages.select([name for name in messages.schema.names if name.lower() in COLUMNS])
        todo = [*_parts(needed)][::-1]
        while todo:
            run = todo.pop()
            done = run.first
            try:
                for outcomes in self._usable_child().outcomes(needed.slice(run.first, run.last - run.first)):
                    self._unbegun = 0
                    yield with_outcomes(messages.slice(done, outcomes.num_rows), outcomes)
                    done += outcomes.num_rows
            except ChildEnded as ended:
                log.warning("handler_ended reason=%r", str(ended))
                blamed = None if ended.position is None else run.first + ended.position
                if blamed is None or blamed < done:
                    if run.last - done > 1:
                        self._count_unbegun(ended)
                        todo.append(_Run(done, run.last, run.alone))
                        continue
                    blamed = done  # a large message is given to a child alone
                todo += [_Run(blamed + 1, run.last), _Run(done, blamed)]
                hung_for_good = isinstance(ended.reason, HandlerTimeout) and not self.limits.immediate_retries
                if run.alone or hung_for_good or self.limits.is_hopeless(ended.reason):
                    one = messages.slice(blamed, 1)
                    outcome = failed(ended.reason, next(received(one)), self.limits)
                    yield with_outcomes(one, outcome_columns([outcome]))
                else:
                    todo.append(_Run(blamed, blamed + 1, alone=True))

    def _usable_child(self) -> ChildProcess:
        while self._child is None or not self._child.usable:
            child = ChildProcess(self._load, timeout=self.limits.timeout)
            try:
                child.wait_until_loaded()
            except ChildEnded as ended:
                self._count_unbegun(ended)
            self._child = child
        return self._child

    def _load(self, seen: Seen) -> Outcomes:
        """In the child: what handles its messages."""
        handler: Handler = pickle.loads(self.pickled)  # noqa: S301 -- Spark brought it
        return BatchHandler(handler, seen).outcomes

    def _count_unbegun(self, ended: ChildEnded) -> None:
        self._unbegun += 1
        if self._unbegun >= _MOST_UNBEGUN:
            raise ConfigurationError(
                f"{ended.reason} That was so {self._unbegun} times before it had begun with a message; "
                "see what its module does when it is loaded, and how much memory there is."
            ) from ended


@dataclass(frozen=True)
class _Run:
    """Messages that a child is to handle, from the position ``first`` up to ``last``, without the last one.

    :param alone: whether this is one message at which a child has ended before.
    """

    first: int
    last: int
    alone: bool = False


def _parts(messages: pa.RecordBatch) -> Iterator[_Run]:
    sizes = [
        pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
        for column in messages.columns
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    ]
    counts = bounded(functools.reduce(pc.add, sizes).to_pylist(), _PART_ROWS, _PART_BYTES)
    for first, last in itertools.pairwise(itertools.accumulate(counts, initial=0)):
        yield _Run(first, last)
