"""Spark's micro-batch protocol without Spark: its logs, its calls in its order, an idempotent sink,
and crashes.

Spark logs an offset before it plans the batch, reads every slice in a worker, writes the batch, logs it as
done, and only then asks the stream's reader for more. It calls ``commit`` late (when the next batch has data)
or never. A new process goes by the logs: if a batch was logged but is not done, it plans that batch again and
calls nothing before.
"""

import contextlib
import itertools
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from unittest import mock
from uuid import UUID

import pytest

from sqlqueue_spark.engines import open_connection as connecting
from sqlqueue_spark.engines.open_connection import Connection, Target
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import (
    Receiver,
    SliceReader,
)
from sqlqueue_spark.receive.offset import INITIAL, Offset, to_json
from tests.support import death_steps, tampering
from tests.support.engines import Engine
from tests.support.waiting import eventually

Message = dict[str, Any]

#: Steps of Spark's own, between those of the code under test.
OFFSET_NOT_LOGGED = "offset not logged"
BATCH_WRITTEN = "batch written but not logged"
STEPS = (*death_steps.STEPS, OFFSET_NOT_LOGGED, BATCH_WRITTEN)
#: For what a source does alike whether it claims rows or its workers take them.
each_mode = pytest.mark.parametrize(
    "mode",
    [
        "receiveOnly",
        pytest.param("none", marks=[pytest.mark.tier("all"), pytest.mark.needs("deletes_through_cte")]),
    ],
)


class Crash(BaseException):
    """The process is gone: no code handles this error, and nothing is closed in good order."""


_at_step: Callable[[str], None] | None = None
_numbers = itertools.count(1)


def reached(step: str) -> None:
    """The function that ``SQLQUEUE_AT_STEP`` names while a stream runs in this process."""
    if _at_step is not None:
        _at_step(step)


@contextlib.contextmanager
def at_step(step: str, action: Callable[[], object], *, on: Collection[int] = (1,)) -> Iterator[list[int]]:
    """Within the block do something at a named step. Yields the times at which it was done,
    in a list that grows.

    :param on: at which times to do it: 1 is the first time that the step is reached.
    """
    global _at_step  # noqa: PLW0603 -- the code under test knows a function by its name only
    times, done = itertools.count(1), list[int]()

    def act(name: str) -> None:
        if name == step and (time_ := next(times)) in on:
            done.append(time_)
            action()

    assert _at_step is None, "one watcher at a time"
    _at_step = act
    try:
        yield done
    finally:
        _at_step = None


@contextlib.contextmanager
def at_each_step(
    steps: Collection[str], action: Callable[[], object], *, when: Callable[[], bool]
) -> Iterator[list[str]]:
    """Within the block do something the first time that each of these steps is reached.
    Yields the steps at which it was done.

    :param when: whether a step counts now.
    """
    global _at_step  # noqa: PLW0603 -- see at_step
    done = list[str]()

    def act(name: str) -> None:
        if name in steps and name not in done and when():
            done.append(name)
            action()

    assert _at_step is None, "one watcher at a time"
    _at_step = act
    try:
        yield done
    finally:
        _at_step = None


def crash() -> None:
    raise Crash


def told(path: Path, end: dict[str, Any]) -> None:
    """The program says in its done file that Spark has logged a batch."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps([{"of": "another source"}, end]))
    new.replace(path)


class Reader:
    """The source of a stream, called with offsets as they stand in Spark's logs."""

    def __init__(self, source: Receiver) -> None:
        self.source = source
        self.stop_at_present_end, self.waiting, self.close = (
            source.stop_at_present_end,
            source.waiting,
            source.close,
        )

    def latest(self, start: dict[str, Any], max_rows: int | None, *, sure: bool = True) -> dict[str, Any]:
        return to_json(self.source.latest(Offset.from_json(start), max_rows, sure=sure))

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        return self.source.plan(Offset.from_json(start), Offset.from_json(end))

    def finish(self, start: dict[str, Any], *, rows: bool) -> None:
        self.source.finish(Offset.from_json(start), rows=rows)

    def settle(self, end: dict[str, Any]) -> None:
        self.source.settle(Offset.from_json(end))


class Read(Protocol):
    """What a stream reads: a queue table, or several."""

    @property
    def address(self) -> str: ...

    def count(self) -> int: ...


class Stream:
    """A streaming query on one queue, or several: its checkpoint, its sink,
    and its process, which may die.
    """

    def __init__(self, engine: Engine, queue: Read, /, *, commit: bool = True, **options: str) -> None:
        self.name = f"stream {next(_numbers)}"
        self.engine = engine
        self.table: Any = queue
        named = {"url": _named(engine, self.name), "pollInterval": "20ms"}
        if not {"queues", "queuePattern"} & options.keys():
            named["queue"] = queue.address
        self.options = SourceOptions.parse({**named, **options})
        self.offsets: list[str] = []
        self.done = 0
        self.sink: dict[int, list[Message]] = {}
        self.crashes = 0
        #: The clock and the sleep of its receivers, where a test has a time of its own.
        self.time: dict[str, Any] = {}
        self._commit = commit
        self._receiver: Reader | None = None
        self._connections: list[Connection] = []

    @property
    def receiver(self) -> Reader:
        """The reader of the process that runs now."""
        if self._receiver is None:
            self._receiver = Reader(Receiver(self.options, **self.time))
            if self.time:
                self._receiver.source._scanner._watch.close()  # it looks by the real clock
        return self._receiver

    def trigger(self) -> bool:
        """Run one micro-batch; False when there is nothing new."""
        return self.construct() and self.run()

    def construct(self) -> bool:
        """Find out what the next batch is, and log it; False when there is nothing new."""
        if self.done < len(self.offsets):
            return True
        start = self.end(self.done)
        end = self.receiver.latest(start, self.options.most_rows)
        reached(OFFSET_NOT_LOGGED)
        if end == start:
            return False
        self.offsets.append(json.dumps(end))
        if self._commit and self.done > 0:
            self.receiver.settle(start)
        return True

    def run(self) -> bool:
        """Plan, read, write and log the batch that was constructed."""
        self.write(self.read(self.plan()))
        reached(BATCH_WRITTEN)
        self.done += 1
        return True

    def plan(self) -> list[Any]:
        """The slices of the batch that was constructed, of all its tasks."""
        return [part for task in self.tasks() for part in task]

    def tasks(self) -> list[Any]:
        planned = self.receiver.plan(self.end(self.done), self.end(self.done + 1))
        return [pickle.loads(pickle.dumps(each)) for each in planned]  # noqa: S301 -- as Spark sends them

    def read(self, slices: list[Any]) -> list[Message]:
        reader = SliceReader(Target.of(self.options))
        return [message for batch in reader.rows(tuple(slices)) for message in batch.to_pylist()]

    def write(self, messages: list[Message]) -> None:
        """Write as an idempotent sink does, which knows by its number a batch that it already has."""
        self.sink.setdefault(self.done, messages)

    def end(self, batch: int) -> dict[str, Any]:
        """The offset at which this batch begins and the one before it ends."""
        return json.loads(self.offsets[batch - 1]) if batch else dict(INITIAL)

    def drain(self, *, left: int = 0, survives: type[BaseException] = Crash) -> None:
        """Run until this number of rows is left, and start again after each crash.

        Fail after a minute in which nothing moves.
        """
        deadline = time.monotonic() + 60
        while True:
            try:
                busy = self.trigger()
            except survives:
                self.crash(noticed=False)
                busy = True
            if busy:  # a slow trigger counts too, because a server may be far away
                deadline = time.monotonic() + 60
                continue
            if self.table.count() <= left:
                return
            assert time.monotonic() < deadline, f"{self.table.count()} rows are left in the queue."

    def crash(self, *, noticed: bool = True) -> None:
        """Let the process die: cut its sockets, and forget all but the logs.

        :param noticed: whether to wait until the server has noticed. That takes a while,
            and meanwhile it holds the rows.
        """
        self.crashes += 1
        if self._receiver is not None:
            self._receiver.source._scanner._watch.close()  # a process that is gone has no threads
        self._receiver = None
        self.cut()
        if noticed:
            eventually(lambda: not tampering.holds_a_transaction(self.engine, self.name))

    def stop(self) -> None:
        """End the process in good order."""
        if self._receiver is not None:
            self._receiver.close()
        self._receiver = None
        self.cut()

    def messages(self) -> list[Message]:
        """What the sink holds, batch after batch."""
        return [message for batch in sorted(self.sink) for message in self.sink[batch]]

    def ids(self) -> list[UUID]:
        return [UUID(message["Id"]) for message in self.messages()]

    def batches(self) -> list[list[int]]:
        """The row versions of each batch in the sink."""
        return [[message["RowVersion"] for message in self.sink[batch]] for batch in sorted(self.sink)]

    def opened(self, target: Target, connection: Connection) -> None:
        """Remember a connection if it is this stream's; this is called for the connections of all streams."""
        if target.url == self.options.url:
            self._connections.append(connection)

    def cut(self) -> None:
        """Break the driver's connections, and wait until nothing works on them any more."""
        while self._connections:
            broken, self._connections = self._connections, []
            for connection in broken:
                _cut(connection)
            for thread in threading.enumerate():
                # To close a connection on which this thread works would crash the driver's C code. Another
                # stream's thread may not have begun.
                if thread.name == "sqlqueue-claim-ahead" and thread.is_alive():
                    thread.join()
            for connection in broken:
                connection.close()


@contextlib.contextmanager
def streaming(engine: Engine, queue: Read, /, *, commit: bool = True, **options: str) -> Iterator[Stream]:
    """A stream that has not begun yet; it ends with the block.

    :param commit: whether Spark ever calls ``commit``.
    """
    stream = Stream(engine, queue, commit=commit, **options)
    with watched_connections(stream.opened):
        try:
            yield stream
        finally:
            stream.stop()


@contextlib.contextmanager
def watched_connections(opened: Callable[[Target, Connection], None]) -> Iterator[None]:
    """Within the block call ``opened`` for every connection that the driver opens,
    and :func:`reached` at every step.
    """
    # It is private, and the one place that sees each connection as it is opened:
    # callers have names of their own for connect.
    module = connecting._module

    def driver(target: Target, name: str) -> Any:
        found = module(target, name)

        def connect_and_tell(target: Target) -> Connection:
            connection: Connection = found.connect(target)
            opened(target, connection)
            return connection

        return mock.Mock(connect=connect_and_tell, open_reader=found.open_reader)

    with (
        mock.patch.object(connecting, "_module", driver),
        mock.patch.dict(os.environ, SQLQUEUE_AT_STEP=f"{__name__}:{reached.__name__}"),
    ):
        yield


def _named(engine: Engine, program: str) -> str:
    """A URL with the stream's name in it, so that its sessions can be told from those of other streams."""
    if engine.name == "postgresql":
        return f"{engine.url}?application_name={program.replace(' ', '%20')}"
    return f"{engine.url.rstrip(';')};APP={program}"


def _cut(connection: Connection) -> None:
    """End a connection as the death of its process does: without a word to the server."""
    with contextlib.suppress(Exception):  # one that is closed already has no socket
        # Nothing public leads to the socket: the package only ever closes a connection in good order.
        number = connection._raw.fileno()
        with socket.socket(fileno=os.dup(number)) as copy:
            copy.shutdown(socket.SHUT_RDWR)
