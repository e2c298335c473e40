"""A message that ServiceControl had put back is acknowledged once it is handled,
and a copy of what was processed is audited.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.compose import chunk
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.send.sent import Sent
from tests.support import dotnet
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import (
    failed_in,
    failure,
    frame,
    options,
    outcome,
    outgoing,
    sent_to,
    settle,
    settled_all,
    stage_all,
)
from tests.support.sending import PLAIN, composed, send, sent_all
from tests.support.stages import settled

pytestmark = pytest.mark.needs("reads_json_as_documented")

SUCCESSFUL, RETRY_ID, SENT = (
    f"ServiceControl.Retry.{name}" for name in ("Successful", "UniqueMessageId", "AcknowledgementSent")
)
TIMES = ("NServiceBus.TimeSent", SUCCESSFUL, "NServiceBus.ProcessingStarted", "NServiceBus.ProcessingEnded")
HOST = ("$.diagnostics.hostid", "$.diagnostics.hostdisplayname", "NServiceBus.ProcessingMachine")


@pytest.fixture
def tables(engine, queue):
    """The queues error, audit and billing, and the outbox of the endpoint Sales."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return {name: engine.create_queue(name) for name in ("error", "audit", "billing")}


@pytest.fixture(params=["optimistic", "pessimistic"])
def given(request, engine, tables):
    return options(engine, outbox=request.param, auditQueue="audit")


def put_back(engine, number, id_="31ec6466-6a86-9984-a9d7-1fd6c50fdea8", to="error"):
    """The headers of a message that ServiceControl has put back."""
    address = f'"public"."{to}"' if engine.name == "postgresql" else f"{to}@[dbo]"
    return json.dumps(
        {
            "NServiceBus.MessageId": message_id(number),
            "ServiceControl.Retry.AcknowledgementQueue": address,
            RETRY_ID: id_,
        }
    )


def test_what_was_put_back_is_acknowledged_when_it_succeeds(engine, given, tables):
    rows = [
        outcome(1, outgoing("billing", 10), Headers=put_back(engine, 1)),
        outcome(2, fails=failure(), Headers=put_back(engine, 2)),
        outcome(3),
    ]
    assert settled_all(given, frame(rows)) == Sent(sent=1, handled=2, failed=1, audited=2, acknowledged=1)
    ours, failed = sorted(failed_in(tables["error"]), key=lambda each: SUCCESSFUL not in each)
    assert set(ours) == {SUCCESSFUL, RETRY_ID, "NServiceBus.ControlMessage", "NServiceBus.TimeSent"}
    assert (ours[RETRY_ID], ours["NServiceBus.ControlMessage"]) == (
        "31ec6466-6a86-9984-a9d7-1fd6c50fdea8",
        "True",
    )
    assert failed.items() >= json.loads(put_back(engine, 2)).items()
    (row,) = [row for row in tables["error"].rows() if SUCCESSFUL in row.headers]
    assert (row.body, row.expires) == (b"", None)
    audited = {each["NServiceBus.MessageId"]: each for each in failed_in(tables["audit"])}
    assert {number: audited[message_id(number)].get(SENT) for number in (1, 3)} == {1: "true", 3: None}
    assert settled_all(given, frame(rows)) == Sent(repeated=3)
    assert (tables["error"].count(), tables["audit"].count()) == (2, 2)


def test_a_message_that_was_handled_as_another_row_owes_its_acknowledgement(engine, given, tables):
    settle(given, outcome(1, outgoing("billing", 10)))
    again = outcome(1, outgoing("billing", 11), RowVersion=9, Id=str(row_id(9)), Headers=put_back(engine, 1))
    assert settled_all(given, frame([again])) == Sent(repeated=1, acknowledged=1)
    assert settled_all(given, frame([again])) == Sent(repeated=1)
    assert [each[RETRY_ID] for each in failed_in(tables["error"])] == ["31ec6466-6a86-9984-a9d7-1fd6c50fdea8"]
    assert tables["billing"].count() == 1


def test_an_acknowledgement_queue_that_is_missing_is_a_warning(engine, given, tables, caplog):
    row = outcome(1, outgoing("billing", 10), Headers=put_back(engine, 1, to="gone"))
    assert settled_all(given, frame([row])) == Sent(sent=1, handled=1, audited=1)
    assert "unreachable destination=" in caplog.text
    assert SENT not in failed_in(tables["audit"])[0]


def test_an_atomic_batch_acknowledges_and_audits_when_it_is_settled(engine, tables):
    given = options(engine, transactionMode="sendsAtomicWithReceive", stream="Sales", auditQueue="audit")
    rows = [outcome(1, outgoing("billing", 10), Headers=put_back(engine, 1)), outcome(2)]
    with settled(engine, "Sales"):
        assert stage_all(given, frame(rows)) == (4, 0)
        assert [each.count() for each in tables.values()] == [0, 0, 0]
    assert [each.count() for each in tables.values()] == [1, 2, 1]


def test_an_audit_queue_may_be_a_destination_too(engine, given, tables):
    given = options(engine, outbox=given.outbox, auditQueue="billing")
    rows = [outcome(number, outgoing("billing", number + 10)) for number in (1, 2)]
    for times in (1, 0):
        done = settled_all(given, frame(rows))
        assert done == Sent(sent=2 * times, handled=2 * times, audited=2 * times, repeated=2 - 2 * times)
    assert sorted(sent_to(tables["billing"])) == [1, 2, 11, 12]


def test_an_audit_queue_that_is_missing_ends_the_batch(engine, tables):
    with pytest.raises(QueueError, match="There is no queue table nowhere"):
        settle(options(engine, auditQueue="nowhere"), outcome(1, outgoing("billing", 10)))
    assert tables["billing"].count() == 0


def test_only_outcomes_can_be_audited(engine, tables):
    with pytest.raises(ConfigurationError, match="auditQueue is for outcomes"):
        FrameColumns.of(
            [("Body", "binary"), ("MessageId", "string")],
            options(engine, auditQueue="audit", queue="billing"),
        )


def test_recorded_messages_are_acknowledged_as_recorded(postgresql, tables):
    """Each retried row of a real ServiceControl goes through;
    what we write is what the real endpoint wrote.
    """
    given = options(postgresql)
    retried = dotnet.rows("servicecontrol/retried")
    theirs = {
        headers[RETRY_ID]: headers
        for row in dotnet.rows("servicecontrol/acknowledgement")
        for headers in [json.loads(row.headers)]
    }
    rows = [
        outcome(
            row.row_version, RowVersion=row.row_version, Id=str(row.id), Headers=row.headers, Body=row.body
        )
        for row in retried
    ]
    settled_all(given, frame(rows))
    ours = {each[RETRY_ID]: each for each in failed_in(tables["error"])}
    assert set(ours) == {json.loads(row.headers)[RETRY_ID] for row in retried}
    compared = set(ours) & set(theirs)
    assert len(compared) >= 5
    for id_ in compared:
        wanted = {name: text for name, text in theirs[id_].items() if name != "NServiceBus.Version"}
        assert {name: "" if name in TIMES else text for name, text in ours[id_].items()} == {
            name: "" if name in TIMES else text for name, text in wanted.items()
        }
        assert all(len(ours[id_][name]) == len(wanted[name]) for name in TIMES if name in wanted)


def test_an_audit_is_as_a_recorded_one(postgresql, tables):
    """The commands of the recorded endpoint are processed again: the same copies,
    but for the times and the machine.
    """
    subscriber = postgresql.create_queue("Interop.Subscriber")
    given = options(postgresql, auditQueue="audit")
    recorded = {}
    for row in dotnet.rows("audit"):
        headers = json.loads(row.headers)
        if headers["NServiceBus.ProcessingEndpoint"] == subscriber.name:
            recorded[headers["NServiceBus.MessageId"]] = (row, headers)
    added = {*TIMES[2:], *HOST, "NServiceBus.ProcessingEndpoint"}
    rows = []
    for number, (row, headers) in enumerate(recorded.values(), 1):
        text = json.dumps({name: value for name, value in headers.items() if name not in added})
        rows.append(outcome(number, Queue=subscriber.name, Headers=text, Body=row.body))
    settled_all(given, frame(rows))
    assert rows
    copies = {json.loads(row.headers)["NServiceBus.MessageId"]: row for row in tables["audit"].rows()}
    assert set(copies) == set(recorded)
    for id_, (row, headers) in recorded.items():
        ours = json.loads(copies[id_].headers)
        assert (copies[id_].body, copies[id_].expires, list(ours)) == (row.body, None, list(headers))
        varying = {*TIMES[2:], *HOST}
        assert {name: ours[name] for name in ours if name not in varying} == {
            name: headers[name] for name in headers if name not in varying
        }


def test_the_copy_says_when_the_handler_was_called(engine, given, tables):
    """Where the frame tells it in a way that Python can; else when the outcome was written."""
    began = datetime(2026, 11, 26, 8, 0, 0, 5, tzinfo=UTC)
    ended = began + timedelta(seconds=2.5)
    far = 250_000 * 365 * 86_400 * 1_000_000
    before = datetime.now(UTC)
    settle(
        given,
        outcome(1, ProcessingStarted=began, ProcessingEnded=ended),
        outcome(2),
        outcome(3, ProcessingStarted=far, ProcessingEnded=far),
    )
    first, *others = [
        [datetime.strptime(copy[name], "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC) for name in TIMES[2:]]
        for copy in failed_in(tables["audit"])
    ]
    assert first == [began, ended]
    assert all(before <= moment <= datetime.now(UTC) for copy in others for moment in copy)


def test_the_copy_of_a_message_without_an_id_or_with_a_time_to_live(engine, given, tables):
    settle(
        given,
        outcome(1, Headers=None),
        outcome(
            2, Headers=json.dumps({"NServiceBus.MessageId": "a", "NServiceBus.TimeToBeReceived": "00:00:01"})
        ),
    )
    first, second = failed_in(tables["audit"])
    assert first["NServiceBus.MessageId"] == str(row_id(1))
    assert (second["NServiceBus.MessageId"], "NServiceBus.TimeToBeReceived" in second) == ("a", False)
    assert [row.body for row in tables["audit"].rows()] == [body(1), body(2)]


# -- messages that are passed on ------------------------------------------------------------------


def passed_on(engine, *numbers, to="error", destination="billing"):
    """Received rows that are sent on as they are."""
    return pa.RecordBatch.from_pydict(
        {
            "Queue": ["orders"] * len(numbers),
            "RowVersion": list(numbers),
            "Id": [str(row_id(number)) for number in numbers],
            "Headers": [put_back(engine, number, to=to) for number in numbers],
            "Body": [body(number) for number in numbers],
            "Destination": [destination] * len(numbers),
        }
    )


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic", "none"])
def test_a_message_that_is_passed_on_is_acknowledged(engine, tables, outbox):
    """The headers that ask for it end there."""
    given = options(engine, outbox=outbox)
    assert send(given, passed_on(engine, 1, 2)) == (2, 0)
    assert [each[RETRY_ID] for each in failed_in(tables["error"])] == [
        "31ec6466-6a86-9984-a9d7-1fd6c50fdea8"
    ] * 2
    assert [json.loads(row.headers).get(RETRY_ID) for row in tables["billing"].rows()] == [None, None]
    if outbox != "none":
        assert send(given, passed_on(engine, 1, 2)) == (0, 2)
        assert (tables["error"].count(), tables["billing"].count()) == (2, 2)


def test_a_message_that_cannot_be_passed_on_is_not_acknowledged(engine, tables):
    given = options(engine)
    send(given, passed_on(engine, 1, destination="gone"))
    (failed,) = failed_in(tables["error"])
    assert failed.items() >= json.loads(put_back(engine, 1)).items()


@pytest.mark.parametrize("error_queue", ["error", None])
def test_where_no_sender_can_be_told_the_headers_go_on(engine, tables, error_queue):
    """The endpoint that handles the message may tell."""
    send(options(engine, errorQueue=error_queue), passed_on(engine, 1, to="nowhere"))
    (row,) = tables["billing"].rows()
    assert json.loads(row.headers)[RETRY_ID] == "31ec6466-6a86-9984-a9d7-1fd6c50fdea8"
    assert tables["error"].count() == 0


def test_a_message_that_is_passed_on_atomically_is_acknowledged_when_it_is_settled(engine, tables):
    given = options(engine, transactionMode="sendsAtomicWithReceive", stream="Sales")
    with settled(engine, "Sales"):
        destinations = Destinations(given)
        run = prepare(destinations, PLAIN, ["billing"])
        rows = composed(given, passed_on(engine, 1), destinations=destinations)
        seal(given, [stage(destinations, rows)], run)
    assert [tables[name].count() for name in ("billing", "error")] == [1, 1]
    assert SUCCESSFUL in failed_in(tables["error"])[0]


def test_an_acknowledgement_does_not_stop_copies_of_its_row_in_another_task(engine, tables):
    given = options(engine)
    tasks = [passed_on(engine, 1, destination=to) for to in ("billing", "audit")]
    assert [sent_all(given, each) for each in tasks] == [
        Sent(sent=1, acknowledged=1),
        Sent(sent=1),
    ]
    assert [sent_all(given, each) for each in tasks] == [Sent(repeated=1)] * 2
    assert {name: each.count() for name, each in tables.items()} == {"billing": 1, "audit": 1, "error": 1}


def test_an_acknowledgement_does_not_stop_copies_of_its_row_in_another_chunk(engine, tables, monkeypatch):
    monkeypatch.setattr(chunk, "CHUNK", 1)
    given = options(engine)
    copies = [passed_on(engine, 1, destination=to) for to in ("billing", "audit")]
    rows = pa.Table.from_batches(copies).combine_chunks().to_batches()
    assert sent_all(given, *rows) == Sent(sent=2, acknowledged=1)
    assert sent_all(given, *rows) == Sent(repeated=2)
    assert {name: each.count() for name, each in tables.items()} == {"billing": 1, "audit": 1, "error": 1}


def test_an_acknowledgement_queue_that_refuses_rows_does_not_end_the_batch(engine, tables, caplog):
    """A message has named it. What is passed on and what is handled is done all the same."""
    particular = engine.create_queue("particular")
    particular.execute("ALTER TABLE {table} ADD CHECK (Headers NOT LIKE '%ControlMessage%')")
    passed = sent_all(options(engine), passed_on(engine, 1, 2, to="particular"))
    rows = [
        outcome(3, outgoing("billing", 3), Headers=put_back(engine, 3, to="particular")),
        outcome(4, outgoing("billing", 4)),
    ]
    handled = settled_all(options(engine), frame(rows))
    done = [replace(each, acknowledged=0) for each in (passed, handled)]
    assert done == [Sent(sent=2), Sent(sent=2, handled=2)]
    said = [each.getMessage().partition("@")[0] for each in caplog.records]
    assert said == ["not_acknowledged queue=particular"] * 2
    assert (sent_to(tables["billing"]), particular.count(), tables["error"].count()) == ([1, 2, 3, 4], 0, 0)
