"""What a SQL Server had to do during the tests is told from what a test expects.

The XML is written after the manual.
"""

from datetime import UTC, datetime

import pytest

from tests.support.extended_events import KINDS, Event, Span, created, events, unexpected

ACTIONS = (
    '<action name="client_app_name" package="sqlserver"><type name="unicode_string" package="package0"/>'
    '<value>sqlqueue_spark</value></action><action name="database_name" package="sqlserver">'
    '<type name="unicode_string" package="package0"/><value>sqlqueue_test_7</value></action>'
    '<action name="sql_text" package="sqlserver"><type name="unicode_string" package="package0"/>'
    "<value>SELECT RowVersion\nFROM q WHERE RowVersion &gt; @P1</value></action>"
)
DATA = {
    "lock_escalation": '<data name="mode"><type name="lock_mode" '
    'package="sqlserver"/><value>5</value><text>X</text></data><data name="escalated_lock_count"><type '
    'name="uint32" package="package0"/><value>6249</value></data>',
    "lock_deadlock": (
        '<data name="deadlock_id"><type name="uint64" package="package0"/><value>81</value></data>'
    ),
    "attention": '<data name="request_id"><type name="uint32" package="package0"/><value>0</value></data>',
    "error_reported": (
        '<data name="error_number"><type name="int32" package="package0"/><value>1222</value></data>'
    ),
}


def event(name, second, data=None):
    stamp = f"2026-01-02T03:04:{second:02}.500Z"
    given = DATA[name] if data is None else data
    return f'<event name="{name}" package="sqlserver" timestamp="{stamp}">{given}{ACTIONS}</event>'


def ring_buffer(*found, truncated=0, dropped=0):
    head = (
        f'truncated="{truncated}" processingTime="0" totalEventsProcessed="9" eventCount="9" '
        f'droppedCount="{dropped}"'
    )
    return f'<RingBufferTarget {head} memoryUsed="512">{"".join(found)}</RingBufferTarget>'


def span(test, began, ended, *provokes):
    times = (datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC) for second in (began, ended))
    return Span(test=test, began=next(times), ended=next(times), provokes=frozenset(provokes))


@pytest.mark.parametrize("name", KINDS)
def test_an_event_is_read(name):
    assert events(ring_buffer(event(name, 5))) == [
        Event(
            kind=KINDS[name],
            at=datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC),
            program="sqlqueue_spark",
            statement="SELECT RowVersion\nFROM q WHERE RowVersion > @P1",
        )
    ]


def test_what_a_test_provokes_is_expected():
    found = ring_buffer(event("attention", 5), event("error_reported", 6))
    assert unexpected(found, [span("test_a", 4, 8, "attention", "lock timeout")]) == []


def test_what_no_test_provokes_is_told_with_its_test():
    found = ring_buffer(event("lock_escalation", 5), event("attention", 9), event("lock_deadlock", 20))
    spans = [span("test_a", 4, 8, "attention"), span("test_b", 9, 12)]
    said = "in sqlqueue_spark: SELECT RowVersion FROM q WHERE RowVersion > @P1"
    assert unexpected(found, spans) == [
        f"test_a: table lock at 03:04:05.500000 {said}",
        f"test_b: attention at 03:04:09.500000 {said}",
        f"between tests: deadlock at 03:04:20.500000 {said}",
    ]


@pytest.mark.parametrize("lost", [{"truncated": 1}, {"dropped": 12}])
def test_lost_events_are_told(lost):
    (said,) = unexpected(ring_buffer(**lost), [])
    assert said.startswith("The server did not keep all events")


def test_nothing_happened():
    assert unexpected(ring_buffer(), []) == []
    assert unexpected("<RingBufferTarget/>", []) == []


def test_the_session_collects_each_kind_of_one_database():
    text = created("sqlqueue_test_7_events", "SERVER", "sqlqueue_test_7")
    assert [
        line for line in text.splitlines() if "ADD EVENT" in line and "N'sqlqueue_test_7'" not in line
    ] == []
    assert text.count("ADD EVENT") == len(KINDS)
    assert "N'sqlqueue_test_7' AND error_number = 1222)" in text
