"""Watches a SQL Server for what no test expects: table locks, deadlocks, cancelled statements, lock timeouts.

An extended-events session collects them while the tests run; a test says with ``@pytest.mark.provokes`` which
of them are meant. This has never run on a server: the events are those of the manual,
https://learn.microsoft.com/sql/relational-databases/extended-events/extended-events
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

from tests.support.sqlserver import connected, quoted

#: The words of ``@pytest.mark.provokes``, by the names of the events.
KINDS = {
    "lock_escalation": "table lock",
    "lock_deadlock": "deadlock",
    "attention": "attention",
    "error_reported": "lock timeout",
}
_ACTIONS = (
    "ACTION (sqlserver.client_app_name, sqlserver.database_name, sqlserver.sql_text) "
    "WHERE (sqlserver.database_name = N'{database}'{more})"
)
_CREATE = (
    "CREATE EVENT SESSION {name} ON {scope}\n{events}\nADD TARGET package0.ring_buffer\nWITH "
    "(MAX_DISPATCH_LATENCY = 1 SECONDS)"
)
#: Azure SQL Database keeps event sessions in the database, others in the server: scope and the views' prefix.
_SCOPES = {True: ("DATABASE", "sys.dm_xe_database_session"), False: ("SERVER", "sys.dm_xe_session")}
_READ = (
    "SELECT CAST(t.target_data AS nvarchar(max)) FROM {views}s AS s "
    "JOIN {views}_targets AS t ON t.event_session_address = s.address WHERE s.name = N'{name}'"
)
#: The server passes events on after a second; their times are those at which they happened.
_DISPATCH = "WAITFOR DELAY '00:00:03'"
#: The clock of events and that of the query for the time may differ by the server's tick.
_SLACK = timedelta(milliseconds=100)


@dataclass(frozen=True, kw_only=True)
class Event:
    kind: str
    at: datetime
    program: str = ""
    statement: str = ""

    def __str__(self) -> str:
        said = " ".join(self.statement.split())[:200]
        return (
            f"{self.kind} at {self.at:%H:%M:%S.%f} in {self.program or 'an unnamed program'}: "
            f"{said or 'unknown statement'}"
        )


@dataclass(frozen=True, kw_only=True)
class Span:
    """When a test ran, by the server's clock, and what it may provoke."""

    test: str
    began: datetime
    ended: datetime
    provokes: frozenset[str] = frozenset()

    def covers(self, event: Event) -> bool:
        return self.began - _SLACK <= event.at <= self.ended + _SLACK


class NotExpected(AssertionError):
    """The server had to do what no test expects."""


@dataclass
class Watch:
    """The event session of one database."""

    url: str
    database: str
    azure: bool
    _spans: list[Span] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """:raises NotExpected: at the end of the block, when anything came that no test of the block
        has said to provoke.
        """
        name = f"{self.database}_events"
        scope, views = _SCOPES[self.azure]
        self._execute(created(name, scope, self.database))
        try:
            self._execute(f"ALTER EVENT SESSION {quoted(name)} ON {scope} STATE = START")
            yield
            # No connection stays open meanwhile: tests end the other sessions of their database.
            found = self._execute(_DISPATCH, _READ.format(views=views, name=name))
        finally:
            self._execute(f"DROP EVENT SESSION {quoted(name)} ON {scope}")
        if complaints := unexpected(str(found), self._spans):
            raise NotExpected("\n".join(complaints))

    @contextmanager
    def test(self, name: str, provokes: Iterable[str]) -> Iterator[None]:
        """What happens in the block belongs to this test."""
        began = self._now()
        try:
            yield
        finally:
            span = Span(test=name, began=began, ended=self._now(), provokes=frozenset(provokes))
            self._spans.append(span)

    def _now(self) -> datetime:
        now = self._execute("SELECT SYSUTCDATETIME()")
        assert isinstance(now, datetime)
        return now.replace(tzinfo=UTC)

    def _execute(self, *statements: str) -> object:
        """The first value that the last statement answers with."""
        *before, last = statements
        with connected(self.url, autocommit=True) as connection:
            for statement in before:
                connection.execute(statement)
            cursor = connection.execute(last)
            return cursor.fetchval() if cursor.description else None


def watch(url: str) -> Watch:
    """The watch of the database that a URL leads to."""
    with connected(url, autocommit=True) as connection:
        database, edition = connection.execute(
            "SELECT DB_NAME(), CAST(SERVERPROPERTY('EngineEdition') AS int)"
        ).fetchone()
    return Watch(url, str(database), azure=edition == 5)


def created(name: str, scope: str, database: str) -> str:
    """The statement that creates the event session."""
    more = {"error_reported": " AND error_number = 1222"}
    events = (
        f"ADD EVENT sqlserver.{event} ({_ACTIONS.format(database=database, more=more.get(event, ''))})"
        for event in KINDS
    )
    return _CREATE.format(name=quoted(name), scope=scope, events=",\n".join(events))


def events(ring_buffer: str) -> list[Event]:
    """The events of a ring buffer, as the server shows them."""
    return [
        Event(
            kind=KINDS[each.get("name", "")],
            at=datetime.fromisoformat(each.get("timestamp", "")),
            program=_value(each, "client_app_name"),
            statement=_value(each, "sql_text"),
        )
        for each in ET.fromstring(ring_buffer).iterfind("event")  # noqa: S314 -- our own server wrote it
    ]


def unexpected(ring_buffer: str, spans: Sequence[Span]) -> list[str]:
    """A sentence for each event that no test has said to provoke, and one if events were lost."""
    found = [
        f"{_test_of(event, spans)}: {event}"
        for event in events(ring_buffer)
        if not any(span.covers(event) and event.kind in span.provokes for span in spans)
    ]
    lost = [word for word in ("truncated", "droppedCount") if re.search(rf'\b{word}="[1-9]', ring_buffer)]
    return [*found, *(f"The server did not keep all events ({word})." for word in lost)]


def _test_of(event: Event, spans: Sequence[Span]) -> str:
    return ", ".join(span.test for span in spans if span.covers(event)) or "between tests"


def _value(event: ET.Element, action: str) -> str:
    return event.findtext(f"action[@name='{action}']/value") or ""
