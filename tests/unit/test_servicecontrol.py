"""What ServiceControl makes of a row is told right of each of the rows that it was shown."""

import json
from datetime import UTC, datetime

import pytest

from sqlqueue_spark.messages.message import format_time
from sqlqueue_spark.messages.servicecontrol import Ingestion, Verdict, ingestion, is_wire_time
from tests.support import dotnet

EXCEPTION = "NServiceBus.ExceptionInfo."
#: A complete row, as the first of the forms was.
COMPLETE = {
    "NServiceBus.MessageId": "bcca7cff-3237-482c-b641-60db6367f712",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.ConversationId": "0cad68e7-048b-4522-b3ab-33dceebd6ff6",
    "NServiceBus.CorrelationId": "bcca7cff-3237-482c-b641-60db6367f712",
    "NServiceBus.ReplyToAddress": '"public"."Interop.Source"',
    "NServiceBus.OriginatingMachine": "conn-1",
    "NServiceBus.OriginatingEndpoint": "Interop.Source",
    "$.diagnostics.originating.hostid": "1f6aa3c5b1c94a8eb7e1d7a4a0f0c0de",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.EnclosedMessageTypes": "Interop.FailOrder, Interop",
    "NServiceBus.TimeSent": "2026-11-22 17:07:29:416152 Z",
    "NServiceBus.ProcessingMachine": "conn-1",
    "NServiceBus.ProcessingEndpoint": "Interop.Handler",
    "$.diagnostics.hostid": "2f6aa3c5b1c94a8eb7e1d7a4a0f0c0de",
    "$.diagnostics.hostdisplayname": "conn-1",
    "NServiceBus.FailedQ": '"public"."Interop.Handler"',
    f"{EXCEPTION}ExceptionType": "builtins.ValueError",
    f"{EXCEPTION}Message": "no such order",
    f"{EXCEPTION}Source": "orders",
    f"{EXCEPTION}StackTrace": "Traceback (most recent call last):\n",
    "NServiceBus.TimeOfFailure": "2026-11-22 17:07:30:416152 Z",
}
TEXT = json.dumps(COMPLETE)


def but(*gone, **given):
    """The complete headers without some, and with others: ``NServiceBus.`` stands before the
    names that are given.
    """
    added = {f"NServiceBus.{name.replace('__', '.')}": value for name, value in given.items()}
    kept = {name: value for name, value in COMPLETE.items() if name.removeprefix("NServiceBus.") not in gone}
    return json.dumps({**kept, **added})


def info(*gone):
    return [
        name.removeprefix("NServiceBus.")
        for name in COMPLETE
        if name.startswith(EXCEPTION) and not name.endswith(gone)
    ]


#: The forms whose rows differ from the complete one in what ServiceControl looks at, by the beginning of
#: their names. The row of any other form is the complete one, with other values of headers that are free, or
#: with another body.
ROWS = {
    "a02": but("ProcessingEndpoint"),
    "a05": but("FailedQ"),
    "a06": but("MessageId"),
    "a07": but("TimeOfFailure"),
    "a08": but(TimeOfFailure="2026-11-22T17:07:30.416152Z"),
    "a09": but(TimeOfFailure="2026-11-22 17:07:30.416152+00:00"),
    "a10": but(TimeOfFailure="yesterday"),
    "a11": but(TimeOfFailure="2026-11-22 17:07:30:416 Z"),
    "a12": but(*info()),
    "a13": but(*info("Message")),
    "a14": but(f"{EXCEPTION.removeprefix('NServiceBus.')}StackTrace"),
    "a18": TEXT,
    "a22": but("ContentType"),
    "a23": but("EnclosedMessageTypes"),
    "a24": but(TimeSent="just now"),
    "a25": but("TimeSent"),
    "a26": but(MessageId="order-17"),
    "a29": but("ConversationId", "CorrelationId", "ReplyToAddress"),
    "a30": json.dumps({name: COMPLETE[name] for name in ("NServiceBus.MessageId", "NServiceBus.FailedQ")}),
    "a31": but(FailedQ="Interop.Handler"),
    "a33": but(FailedQ="Interop.Handler@conn-1"),
    "a35": TEXT[:-1] + ', "X": null}',
    "a36": TEXT[:-1] + ', "ServiceControl.Retry.UniqueMessageId": "none"}',
    "a37": but(TimeOfFailure="2020-01-01 00:00:00:000000 Z"),
    "a38": TEXT,
    "a39": but(ExceptionInfo__Message="x" * 100_000),
    "a40": but(ExceptionInfo__StackTrace="x" * 1_000_000),
    "c02": "",
    "c03": "{}",
    "c04": "null",
    "c05": TEXT[:-1] + ', "X": 7}',
    "c06": "[]",
    "d01": but(ExceptionInfo__StackTrace="a\0b"),
    "d02": but(ExceptionInfo__Message="a\0b"),
    "d03": but(ExceptionInfo__Message="a\ud83db"),
    "d04": but(ProcessingEndpoint="x" * 500),
    "d05": but(MessageId="x" * 500),
    "d06": but(ConversationId="x" * 500),
    "d07": but(FailedQ=f'"public"."{"x" * 500}"'),
    "d08": but(ExceptionInfo__ExceptionType="x" * 5_000),
    "d09": but(EnclosedMessageTypes="x" * 5_000),
    "d11": TEXT[:-1] + ', "NServiceBus.MessageIntent": "Publish"}',
    "d12": "\ufeff" + TEXT,
    "d13": but(Note="x" * 3_000_000),
    "d14": but(MessageIntent="Sned"),
    "d15": TEXT[:-1] + ",}",
    "d20 bad": but(ExceptionInfo__Message="a\0b"),
}
OUTCOMES = {
    "accepted": Verdict.TAKEN,
    "refused to failed_error_imports": Verdict.REFUSED,
    "dropped": Verdict.DROPPED,
    "blocks": Verdict.STOPS,
}
#: Two good rows were refused because their batch had a bad one.
RECORDED = [
    each
    for each in dotnet.lines("servicecontrol/outcomes")
    if "bad row of its batch" not in each.get("why", "")
]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: each["variant"])
def test_it_is_told_as_it_was_seen(recorded):
    variant = recorded["variant"]
    text = next((text for begin, text in ROWS.items() if variant.startswith(begin)), TEXT)
    told = ingestion(text, unreadable_body=variant.startswith("a18"), expired=variant.startswith("a38"))
    assert told.verdict is OUTCOMES[recorded["outcome"]]
    assert bool(told.why) is (told.verdict is not Verdict.TAKEN)


def test_no_form_is_made_that_it_was_not_shown():
    shown = [each["variant"] for each in RECORDED]
    assert [begin for begin in ROWS if not any(each.startswith(begin) for each in shown)] == []
    assert {each["outcome"] for each in RECORDED} == OUTCOMES.keys()


def test_a_raw_poison_row_of_a_net_endpoint_stops_it():
    poison, *failed = dotnet.rows("error")
    assert ingestion(poison.headers) == Ingestion(Verdict.STOPS, "its headers are no JSON")
    assert [ingestion(row.headers) for row in failed] == [Ingestion(Verdict.TAKEN)] * 2


@pytest.mark.parametrize("file", ["servicecontrol/acknowledgement", "servicecontrol/failedagain"])
def test_it_takes_what_net_endpoints_write(file):
    assert {ingestion(row.headers).verdict for row in dotnet.rows(file)} == {Verdict.TAKEN}


def test_the_reason_is_said():
    said = {
        "d03": "its headers hold half of an astral character",
        "c04": "its headers are the JSON null",
        "c05": "its headers are not a JSON object of strings",
        "d05": "its message id has more than 200 characters",
        "d07": "its header NServiceBus.FailedQ has more than 450 characters",
        "a06": "it has no header NServiceBus.MessageId",
        "a11": "its header NServiceBus.TimeOfFailure has another form than yyyy-MM-dd HH:mm:ss:ffffff Z",
        "d02": "there is a NUL in the message of its exception",
    }
    assert {name: ingestion(ROWS[name]).why for name in said} == said
    assert ingestion(TEXT, unreadable_body=True).why == "its body is NULL"


@pytest.mark.parametrize(
    "text, right",
    [
        (format_time(datetime(2026, 1, 2, 3, tzinfo=UTC)), True),
        ("2026-11-22 17:07:30:416152 Z", True),
        ("2026-11-22 17:07:30:416 Z", False),
        ("2026-13-22 17:07:30:416152 Z", False),
        ("", False),
    ],
)
def test_a_time_has_one_form(text, right):
    assert is_wire_time(text) is right
