"""Moves delayed messages that are due to their queues, each once, beside other movers and .NET endpoints.

A .NET endpoint moves what is due into its own queue, and forwards it from there. We send it straight to its
destination. A portion is one transaction: it locks the next due rows, inserts their messages, and deletes
them. So a message is in one place, whatever dies.
"""

import contextlib
import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlqueue_spark import errors, fail_points
from sqlqueue_spark.engines.database_retry import Retry
from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import ConfigurationError, LockTimeout, SqlQueueError, TryAgain
from sqlqueue_spark.messages.addresses import Naming, Table
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from sqlqueue_spark.messages.header_json import TEXT, ascii_json, parse_headers, without_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import delayed, queue_table, table_code
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations
from sqlqueue_spark.tables.delayed import DelayedTable, Due, Forwarded
from sqlqueue_spark.tables.insert import in_code_page
from sqlqueue_spark.tables.queue_table import QueueTable
from sqlqueue_spark.tables.refused_messages import Why, refused

log = logger(__name__)

#: Most messages that are moved in one transaction, and by how many more that is again after a smaller one.
_PORTION, _MORE = 4_000, 100
#: After this time a portion tries no further destination: the next one does.
_TOGETHER_SECONDS = 5.0
#: How long a portion waits for a lock at a destination; its messages are then moved later. And for how long
#: it is remembered that it was locked.
_LOCKED_MS, _LOCKED_SECONDS = 500, 30.0
#: The pause between looks where nothing is due, at most, and the one behind a portion that was not full.
_QUIET_SECONDS, _BUSY_SECONDS = 1.0, 0.1
#: The header that says where a message goes, with the comma before it. Within a value a quotation mark is
#: escaped, so only a member can stand so.
_MEMBER = re.compile(rf',\s*+"{re.escape(FORWARD_DESTINATION)}"\s*+:\s*+({TEXT})')
#: Stands for the address of messages whose headers name one that cannot be read.
_UNREADABLE = ConfigurationError(
    f"The header {FORWARD_DESTINATION} of a delayed message is no JSON that can be read; correct it, and put "
    "the message back."
)
#: Where a message goes, or why it goes nowhere; None where its headers do not say it.
_To = str | ConfigurationError | None


@dataclass
class DelayedMover:
    """Moves what is due in the table of delayed messages of one queue or endpoint.

    :param owner: the queue of that name; its messages without a header that says where they go are delivered
        there.
    :param error_queue: where a message goes that cannot be delivered.
    :param chosen: the queues that an option names: they are used as they are, and their owners are trusted.
    """

    options: ConnectionOptions
    owner: Table
    error_queue: str
    chosen: Collection[Table]
    _table: DelayedTable | None = None
    _reached: bool = False
    _found: QueueTable = field(init=False)
    _allowed: AllowedDestinations = field(init=False)
    #: The most messages of a portion, since one was more than the server has locks or memory for.
    _bearable: int = _PORTION
    #: Behind which message the next portion looks: behind a full one of which most wait for a lock.
    _since: Due | None = None
    #: The addresses that were locked when they were last tried, and when that was: all others come first.
    _locked: dict[_To, float] = field(default_factory=dict)

    def run(self, pause: Callable[[float], bool], moved: Callable[[Sent], object] = lambda _: None) -> Sent:
        """Move what is due, until ``pause``, which waits for a number of seconds, returns True.

        :param moved: is told what each portion has moved: messages that were sent to their queues, and those
            that went to the error queue instead.
        :raises QueueError: the table or the error queue is not there.
        """
        total, wait = Sent(), 0.0
        retry = Retry(f"moving from {delayed.table_of(self.owner)}")
        try:
            while not pause(wait):
                wait, done = retry.retried(self._look, on_failure=self._failed)
                if done != Sent():
                    total += done
                    moved(done)
        except errors.QueueError:
            self.close()
            self._opened()  # tells more, where another table has the name or none
            raise
        finally:
            self.close()
        return total

    def move_due(self, moved: Callable[[Sent], object] = lambda _: None) -> Sent:
        """Move all that is due now. Arguments and errors as :meth:`run`."""
        total, wait = Sent(), 0.0
        while not wait:
            wait, done = self._portion()
            total += done
            moved(done)
        return total

    def close(self) -> None:
        if self._table is not None:
            self._table.connection.close()
        self._table = None

    def _look(self) -> tuple[float, Sent]:
        """Move a portion if something is due. Returns how long to wait before the next look."""
        table = self._opened()
        with table.connection.transaction():
            self._guard(table)
            seconds = table.first_due_in()
        if seconds is None or seconds > 0:
            return min(_QUIET_SECONDS, seconds or _QUIET_SECONDS), Sent()
        return self._portion()

    def _portion(self) -> tuple[float, Sent]:
        """Move the next messages that are due.

        :returns: how long to wait before the next look, not at all after a full portion; and what was moved.
        """
        table = self._opened()
        since, self._since = self._since, None
        most = min(_PORTION, self._bearable, table.connection.dialect.chunk)
        if since is None:
            latest = time.monotonic() - _LOCKED_SECONDS
            self._locked = {address: at for address, at in self._locked.items() if at > latest}
        try:
            with table.connection.hasty(_LOCKED_MS):
                self._guard(table)
                if not (due := table.lock_due(most, since)):
                    return _QUIET_SECONDS, Sent()
                fail_points.step(fail_points.DUE_LOCKED)
                done, all_tried = self._sent(table, due, behind=since is not None)
                fail_points.step(fail_points.DUE_SENT)
        except errors.RowsHeld as error:
            log.warning("moving_waits table=%s: %s", table.table, error)
            return _QUIET_SECONDS, Sent()
        except errors.TooMuch as error:
            self._failed(error)
            self._bearable = max(1, most // 2)
            log.warning("portion_too_large table=%s next=%d: %s", table.table, self._bearable, error)
            if most == 1:
                raise
            return 0.0, Sent()
        fail_points.step(fail_points.DUE_MOVED)
        self._bearable += _MORE
        if done != Sent():
            log.info("delivered table=%s sent=%d failed=%d", table.table, done.sent, done.failed)
        if not all_tried:
            return 0.0, done
        if len(due) < most:
            return _BUSY_SECONDS, done
        if 2 * (done.sent + done.failed) < most:
            # The rows of one due had no order so far.
            self._since = due[-1] if since else due[-1]._replace(row="")
        return 0.0, done

    def _guard(self, table: DelayedTable) -> None:
        """Refuse, and keep out, code of strangers in a table that no option names, for a transaction."""
        if self.owner not in self.chosen:
            AllowedDestinations(self.options).check(table.connection, self._found, table_code.DELETE)

    def _sent(self, table: DelayedTable, due: Sequence[Due], *, behind: bool) -> tuple[Sent, bool]:
        """What became of them, and whether there was time for all destinations that were not locked lately.

        :param behind: whether earlier messages wait for a lock: those for the same destination wait too.
        """
        done, until, tried = Sent(), time.monotonic() + _TOGETHER_SECONDS, 0
        there = [queue_table.find(table.connection, each) for each in self.chosen]  # they may be made anew
        self._allowed = AllowedDestinations(self.options, tuple(filter(None, there)))
        found = self._by_destination(due, self.options.naming(table.connection.dialect))
        for address, its in sorted(found.items(), key=lambda pair: self._locked.get(pair[0], 0.0)):
            if behind and address in self._locked:
                break
            if tried and time.monotonic() >= until:
                return done, address in self._locked
            tried += 1
            try:
                refusals = self._delivered(table, address, its)
            except LockTimeout as error:  # the destination is locked: these wait where they are
                log.warning("moving_waits table=%s destination=%s: %s", table.table, address, error)
                self._locked[address] = time.monotonic()
                continue
            self._locked.pop(address, None)
            done += Sent(sent=len(its) - sum(len(part) for part, _ in refusals))
            for part, why in refusals:
                done += self._failed_part(table, address, [each.due for each in part], why)
        return done, True

    def _failed_part(
        self, table: DelayedTable, address: _To, due: Sequence[Due], error: SqlQueueError
    ) -> Sent:
        """Send messages to the error queue that cannot be delivered. While that is locked they wait.

        A retry sends them to the queue that they could not reach.
        """
        connection = table.connection
        if isinstance(address, str):
            failed_for = self.options.naming(connection.dialect).written(address)
        else:
            own = replace(self.owner, catalog=self._found.database)
            failed_for = own.full_address(quoted=connection.dialect.quoted_addresses), own.table
        known, failure = table.headers(due), Failure.of(error)
        messages = []
        for each in due:
            row_id, text = known[each.row]
            headers = failed_headers(text, failure, *failed_for, row_id=row_id or str(uuid.uuid4()))
            messages.append(Forwarded(each, 0, headers))
        try:
            with connection.attempt(), self._into(table, self.error_queue) as to:
                _move(table, to, messages, anew=True)
        except LockTimeout as held:
            log.warning("moving_waits table=%s error_queue=%s: %s", table.table, self.error_queue, held)
            self._locked[address] = time.monotonic()
            return Sent()
        log.warning("not_delivered table=%s rows=%d error_queue=%s: %s",
                    table.table, len(due), self.error_queue, error)  # fmt: skip
        return Sent(failed=len(due))

    def _by_destination(self, due: Sequence[Due], naming: Naming) -> dict[_To, list[Forwarded]]:
        """Messages by the address that they go to; None for their own queue.

        What means one table has one address, as the first one of them spells it.
        """
        found: dict[_To, list[Forwarded]] = {}
        spelled, first = dict[str, str](), dict[str, str | None]()
        for each in due:
            address, rest = _read(each)
            if isinstance(address, str):
                if address not in first:
                    away = naming.way(address, self.owner, self._found.database) == "away"
                    first[address] = None if away else spelled.setdefault(naming.written(address)[0], address)
                if (address := first[address]) is None:
                    rest = each.rest  # its queue's job passes it on
            found.setdefault(address, []).append(Forwarded(each, each.before, rest))
        return found

    def _delivered(
        self, table: DelayedTable, address: _To, messages: Sequence[Forwarded]
    ) -> Sequence[Why[Forwarded]]:
        """Send messages to one destination; gives those that it refuses, and why."""
        if isinstance(address, ConfigurationError):
            return [(messages, address)]
        try:
            with table.connection.attempt(), self._into(table, address) as to:
                return refused(table.connection, partial(_send, table, to), messages)
        except TryAgain:
            raise
        except SqlQueueError as error:
            return [(messages, error)]

    @contextlib.contextmanager
    def _into(self, table: DelayedTable, address: str | None) -> Iterator[QueueTable]:
        """A block of an attempt that inserts into the queue at an address, which leads only where it may."""
        to = self._destination(table.connection, address)
        chosen = any(each.address == to.address for each in self._allowed.trusted)
        with contextlib.nullcontext() if chosen else self._allowed.into(table.connection, to):
            yield to

    def _destination(self, connection: Connection, address: str | None) -> QueueTable:
        """The queue at an address, which must be there; that of the owner where there is none."""
        wanted = self.owner if address is None else self.options.naming(connection.dialect).table(address)
        if (found := queue_table.find_queue(connection, wanted)) is None:
            raise queue_table.missing(connection, wanted, "to deliver to", "the address")
        return found

    def _opened(self) -> DelayedTable:
        if self._table is None:
            connection = connect(Target.of(self.options), again=self._reached)
            try:
                with connection.transaction():
                    self._found = delayed.get(connection, self.owner)
                    self._destination(connection, self.error_queue)
            except BaseException:
                connection.close()
                raise
            self._table, self._reached = DelayedTable(connection, self._found.table), True
        return self._table

    def _failed(self, error: TryAgain) -> None:
        if isinstance(error, errors.ConnectionLost):
            self.close()


def _send(table: DelayedTable, to: QueueTable, messages: Sequence[Forwarded]) -> None:
    try:
        with table.connection.attempt():
            _move(table, to, messages)
    except errors.Duplicate:  # a row has the Id already that a message would keep
        _move(table, to, messages, anew=True)


def _move(table: DelayedTable, to: QueueTable, messages: Sequence[Forwarded], *, anew: bool = False) -> None:
    """Move messages into a queue; ``anew`` as for :meth:`DelayedTable.send`."""
    if in_code_page(to):
        known = table.headers([each.due for each in messages])
        units = {row: text.encode("utf-16-le") for row, (_, text) in known.items()}  # the server counts these
        messages = [
            Forwarded(due, 0, ascii_json(units[due.row][: 2 * kept].decode("utf-16-le") + rest))
            for due, kept, rest in messages
        ]
    table.send(to, messages, anew=anew)


def _read(due: Due) -> tuple[_To, str]:
    """The address that a message goes to, and the rest of its headers without the one that says so."""
    if due.before and (member := _MEMBER.match(due.rest)) is not None:
        try:
            return json.loads(member[1], strict=False) or None, due.rest[member.end() :]
        except ValueError:  # an escape of JSON that is none
            return _UNREADABLE, due.rest
    address = None if due.before else (parse_headers(due.rest) or {}).get(FORWARD_DESTINATION)
    return (address, without_headers(due.rest, {FORWARD_DESTINATION})) if address else (None, due.rest)
