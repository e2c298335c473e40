"""Headers of messages that are put back: without those of their failure, and else byte for byte."""

import json

import pytest

from sqlqueue_spark.messages.failure_headers import Failure, failed_headers, poison, put_back_headers
from tests.support import dotnet, messages

OWN = '{ "NServiceBus.MessageId":"1" ,"Greek": "\\u03b1\\/" , "ServiceControl.Retry.UniqueMessageId":"u"}'
ADDED = (
    '"NServiceBus.FailedQ":"q","NServiceBus.TimeOfFailure":"t","NServiceBus.ExceptionInfo.Message":"m",'
    '"NServiceBus.Retries":"3","NServiceBus.Retries.Timestamp":"t","ServiceControl.EditOf":"e"'
)


def as_failed(text, failure=None):
    failure = failure or Failure(exception_type="X")
    return failed_headers(text, failure, queue='"public"."orders"', endpoint="orders", row_id="row id")


def test_why_and_when_it_failed_is_taken_off_and_nothing_else():
    assert put_back_headers(OWN[:-1] + "," + ADDED + "}") == OWN
    assert put_back_headers(OWN) == OWN
    kept = (
        '{"NServiceBus.ExceptionInfoX":"kept","NServiceBus.ProcessingEndpoint":"e",'
        '"NServiceBus.DeliverAt":"d","NServiceBus.ProcessingMachine":"m",'
        '"$.diagnostics.hostid":"h","$.diagnostics.hostdisplayname":"m"}'
    )
    assert put_back_headers(kept) == kept


def test_a_message_that_was_given_up_waits_anew_also_where_its_headers_were_kept_aside():
    """An id this long goes to no error queue as it is, so the headers stand there as they were."""
    text = json.dumps(
        {"NServiceBus.MessageId": "x" * 300, "sqlqueue.GiveUpAt": "2020-01-01 00:00:00:000000 Z"}
    )
    assert json.loads(put_back_headers(as_failed(text))) == {"NServiceBus.MessageId": "x" * 300}


def test_what_servicecontrol_has_put_on_since_stays_where_headers_were_kept_aside():
    """It waits for the acknowledgement of its retry, which these name."""
    own = {"NServiceBus.MessageId": "x" * 300}
    retried = {"ServiceControl.Retry.UniqueMessageId": "31ec6466-6a86-9984-a9d7-1fd6c50fdea8"}
    sent_back = json.loads(as_failed(json.dumps(own))) | retried | {"ServiceControl.EditOf": "e"}
    assert json.loads(put_back_headers(as_failed(json.dumps(sent_back)))) == own | retried
    assert put_back_headers(as_failed("no JSON")) == "no JSON"


def test_servicecontrol_takes_off_the_same():
    """Beside them it puts on the two headers of its acknowledgement."""
    (failed, *_) = (json.loads(row.headers) for row in dotnet.rows("servicecontrol/failedagain"))
    (back,) = (
        json.loads(row.headers)
        for row in dotnet.rows("servicecontrol/retried")
        if json.loads(row.headers).get("Interop.Variant") == failed["Interop.Variant"]
    )
    mine = json.loads(put_back_headers(json.dumps(failed)))
    changed = {
        "NServiceBus.Version",
        "NServiceBus.FLRetries",
    }  # by the endpoint in which it failed again, after that retry
    assert mine.keys() - changed == back.keys() - changed


def test_a_message_of_ours_comes_back_byte_for_byte_but_for_where_it_was():
    back = json.loads(put_back_headers(as_failed(messages.headers(1))))
    names = ("NServiceBus.ProcessingMachine", "$.diagnostics.hostdisplayname", "$.diagnostics.hostid")
    machine, shown, host = map(back.pop, names)
    assert (shown, len(host)) == (machine, 32)
    assert back == {**json.loads(messages.headers(1)), "NServiceBus.ProcessingEndpoint": "orders"}


@pytest.mark.parametrize("text", ["no JSON", '{"a":{"b":1}}', '{"a":"\\ud83d"}', "\ufeff{,}"])
def test_poison_comes_back_as_it_was(text):
    assert put_back_headers(as_failed(text, poison(text))) == text
    assert put_back_headers(text) == text


def test_raw_headers_come_back_without_those_of_a_failure():
    own = '{"NServiceBus.MessageId":"%s", "NServiceBus.Retries":"2", "NServiceBus.TimeSent":"now"}' % (
        "x" * 300
    )
    raw = as_failed(own)
    assert json.loads(raw)["sqlqueue.RawHeaders"] == own
    assert put_back_headers(raw) == own.replace(' "NServiceBus.Retries":"2",', "")


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "null"])
def test_no_headers_stay_none(text):
    assert put_back_headers(text) == (text or "")
