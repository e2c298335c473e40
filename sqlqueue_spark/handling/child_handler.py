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
- If ``WorkerDied`` or ``HandlerTimeout`` is among the unrecoverable exceptions, the message is not tried
  again.
- Outcomes that the child has given away count. It gives them away every 0.05 s. The messages after them are
  handled again: none where each call takes longer than that.
- A child is found again by the bytes of its pickled handler. So a stream that makes ``each_message`` anew for
  each batch has one child, not hundreds.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import itertools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from sqlqueue_spark.errors import ConfigurationError, HandlerTimeout
from sqlqueue_spark.handling.batch_handler import BatchHandler
from sqlqueue_spark.handling.child_process import ChildEnded, ChildProcess, Outcomes
from sqlqueue_spark.handling.handler_timeout import Seen
from sqlqueue_spark.handling.immediate_retries import Limits
from sqlqueue_spark.handling.outcome_columns import failed, outcome_columns, with_outcomes
from sqlqueue_spark.handling.received_message import COLUMNS, received
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.row_set import bounded

log = logger(__name__)

#: Most messages and bytes that a child is given at once.
_PART_ROWS, _PART_BYTES = 4_000, 4 << 20
#: Most children that a worker keeps when their tasks are done.
_MOST_IDLE = 4
#: How often in a row a child may end before it has begun with a message.
_MOST_UNBEGUN = 3

_idle: collections.OrderedDict[bytes, ChildProcess] = collections.OrderedDict()


class ChildHandler:
    """Does in a child process what :class:`BatchHandler` does here, in a block ``with child_handler:``."""

    def __init__(self, pickled: bytes, limits: Limits) -> None:
        """:param pickled: the handler, which is loaded in the child alone.
        :param limits: of the handler; of the exceptions only ``WorkerDied`` and ``HandlerTimeout`` count.
        """
        self._pickled = pickled
        self._limits = limits
        self._key = hashlib.sha256(pickled).digest()
        self._child: ChildProcess | None = None
        self._unbegun = 0

    def __enter__(self) -> Self:
        """:raises OSError: no process can be made."""
        # Taken out while it is used, so that no other task speaks to it.
        self._child = _idle.pop(self._key, None)
        self._usable_child()
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None and self._child.usable:
            _idle[self._key] = self._child
        while len(_idle) > _MOST_IDLE:
            _idle.popitem(last=False)[1].end()

    def handle(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The messages with their outcomes, in batches, and in their order unless a child ends.

        :raises ConfigurationError: the handler cannot be loaded.
        """
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
                    self._count_unbegun(ended)
                    todo.append(_Run(done, run.last, run.alone))
                    continue
                todo += [_Run(blamed + 1, run.last), _Run(done, blamed)]
                if run.alone or not self._tries_again(ended.reason):
                    one = messages.slice(blamed, 1)
                    outcome = failed(ended.reason, next(received(one)), self._limits)
                    yield with_outcomes(one, outcome_columns([outcome]))
                else:
                    todo.append(_Run(blamed, blamed + 1, alone=True))

    def _tries_again(self, reason: Exception) -> bool:
        if self._limits.is_hopeless(reason):
            return False
        return not isinstance(reason, HandlerTimeout) or self._limits.immediate_retries > 0

    def _usable_child(self) -> ChildProcess:
        while self._child is None or not self._child.usable:
            child = ChildProcess(self._load, timeout=self._limits.timeout)
            try:
                child.wait_until_loaded()
            except ChildEnded as ended:
                self._count_unbegun(ended)
            self._child = child
        return self._child

    def _load(self, seen: Seen) -> Outcomes:
        """In the child: what handles its messages."""
        handler = pickle.loads(self._pickled)  # noqa: S301 -- Spark brought it, as it brings every function
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
    """Cut messages into parts that a child is given at once."""
    sizes = [
        pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
        for column in messages.columns
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    ]
    counts = bounded(functools.reduce(pc.add, sizes).to_pylist(), _PART_ROWS, _PART_BYTES)
    for first, last in itertools.pairwise(itertools.accumulate(counts, initial=0)):
        yield _Run(first, last)
