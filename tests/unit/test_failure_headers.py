"""Headers of failed messages: what a .NET endpoint writes,
and nothing that stops ServiceControl's reading of an error queue.

The rules are those that ServiceControl 6.19 showed: strings only, no lone surrogate, an id that fits, times
in the wire's form, no NUL in the exception's message.
"""

import importlib
import inspect
import json
import pkgutil
import re
import socket
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

import sqlqueue_spark
from sqlqueue_spark import errors, handling
from sqlqueue_spark.errors import WrongBody, type_name
from sqlqueue_spark.messages.failure_headers import RAW_HEADERS, Failure, failed_headers, poison
from sqlqueue_spark.send.deliver.tables_of_chunk import DatabaseDown
from tests.support import dotnet, messages
from tests.support.pages import page

EXCEPTION = "NServiceBus.ExceptionInfo."
ROW_ID = "00000000-0000-4000-8000-000000000001"
NOON = datetime(2026, 11, 22, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=5, minutes=30)))
#: The names that operators see and group by. They do not change.
PUBLIC = {
    "ClaimLost", "ConfigurationError", "ConnectionLost", "DatabaseReadOnly", "DatabaseTakesNothing",
    "Duplicate", "GaveUp", "HandlerTimeout", "LockTimeout", "NoHandler", "NoPassword", "NoReplyAddress",
    "NoRight", "NotReady", "QueueError", "RowsHeld", "SessionTooMuch", "SqlQueueError", "StatementTimeout",
    "TooMuch", "TryAgain", "UnreadableHeaders", "Unsendable", "WorkerDied", "WrongAnswer", "WrongBody",
}  # fmt: skip
#: What modules raise for themselves, where no message is handled or sent.
NEVER_FAIL_A_MESSAGE = {
    "sqlqueue_spark.administration.message_lines.NoMessage",
    "sqlqueue_spark.engines.connection._RehearsedError",
    "sqlqueue_spark.handling.child_process.ChildEnded",
    "sqlqueue_spark.inspection.doctor.checks.Open",
    "sqlqueue_spark.receive.claiming.set_aside.QueueFails",
    "sqlqueue_spark.send.deliver.original_rows.TooLarge",
}
#: The headers that every failed message gets.
ADDED = {
    "$.diagnostics.hostid": uuid.uuid5(uuid.NAMESPACE_DNS, f"orders@{socket.gethostname()}").hex,
    "$.diagnostics.hostdisplayname": socket.gethostname(),
    "NServiceBus.ProcessingMachine": socket.gethostname(),
    "NServiceBus.ProcessingEndpoint": "orders",
    "NServiceBus.FailedQ": '"public"."orders"',
    f"{EXCEPTION}ExceptionType": "shop.OutOfStock",
    f"{EXCEPTION}Message": "nothing left",
    f"{EXCEPTION}StackTrace": "",
    "NServiceBus.TimeOfFailure": "2026-11-22 06:30:00:000005 Z",
}


def text_of(headers, *, endpoint="orders", **more):
    told = {"exception_type": "shop.OutOfStock", "message": "nothing left", "time": NOON, **more}
    failure = Failure(**told)
    return failed_headers(headers, failure, queue='"public"."orders"', endpoint=endpoint, row_id=ROW_ID)


def failed(headers, **more):
    """The headers as ServiceControl reads them."""
    read = json.loads(text_of(headers, **more))
    assert all(isinstance(value, str) for value in read.values())
    assert not re.search("[\ud800-\udfff]", "".join([*read, *read.values()]))
    assert "\0" not in "".join([*read, *read.values()]).replace(read.get(RAW_HEADERS, ""), "")
    assert 0 < len(read["NServiceBus.MessageId"]) <= 200
    return read


def test_the_headers_of_the_message_stay_byte_for_byte():
    own = messages.headers(1)
    assert text_of(own).startswith(own[:-1] + ",")
    assert failed(own) == {**json.loads(own), **ADDED}


def test_failure_headers_of_before_are_replaced():
    before = failed(messages.headers(1), message="before", data={"article": "4711"}, inner_exception_type="X")
    assert failed(json.dumps(before)) == {**json.loads(messages.headers(1)), **ADDED}


@pytest.mark.parametrize(
    "name",
    [
        "NServiceBus.TimeToBeReceived",
        "NServiceBus.Retries",
        "NServiceBus.SqlServer.ForwardDestination",
        "ServiceControl.Retry.Successful",
    ],
)
def test_what_would_make_the_message_vanish_is_taken_out(name):
    own = messages.headers(1)[:-1] + f',"{name}":"1"}}'
    assert failed(own) == {**json.loads(messages.headers(1)), **ADDED}


def test_the_host_is_ours_and_not_that_of_an_earlier_endpoint():
    """Or ServicePulse shows the failure under a host that has nothing to do with it."""
    earlier = {"$.diagnostics.hostid": "0" * 32, "$.diagnostics.hostdisplayname": "far"}
    own = messages.headers(1)[:-1] + "," + json.dumps(earlier)[1:]
    assert failed(own) == {**json.loads(messages.headers(1)), **ADDED}


@pytest.mark.parametrize(
    "name",
    [
        "NServiceBus.Retries.Timestamp",
        "NServiceBus.DeliverAt",
        "ServiceControl.Retry.AcknowledgementQueue",
        "$.store-and-forward.destination",
    ],
)
def test_what_tells_of_earlier_tries_stays(name):
    own = messages.headers(1)[:-1] + f',"{name}":"1"}}'
    assert failed(own) == {**json.loads(own), **ADDED}


@pytest.mark.parametrize("headers", [None, "", "{}", "null", "[]", '{"NServiceBus.MessageId":""}'])
def test_a_message_without_an_id_is_known_by_its_row(headers):
    assert failed(headers) == {"NServiceBus.MessageId": ROW_ID, **ADDED}


@pytest.mark.parametrize(
    "headers, read",
    [
        ('{"a":1}', {"a": "1"}),
        ('{"a":true,"b":null}', {"a": "true"}),
        ('\ufeff{"a":"x"}', {"a": "x"}),
        (' {"a" : "x"} ', {"a": "x"}),
    ],
)
def test_what_a_net_endpoint_reads_leniently_is_written_as_texts(headers, read):
    assert failed(headers) == {**read, "NServiceBus.MessageId": ROW_ID, **ADDED}


@pytest.mark.parametrize(
    "wrong, right",
    [
        ({"NServiceBus.MessageId": "x" * 500}, {"NServiceBus.MessageId": ROW_ID}),
        ({"NServiceBus.MessageId": "\0\0"}, {"NServiceBus.MessageId": ROW_ID}),
        ({"NServiceBus.TimeSent": "2026-11-22T12:00:00Z"}, {}),
        ({"NServiceBus.TimeSent": "2026-11-22 12:00:00:123 Z"}, {}),
        ({"NServiceBus.ConversationId": "x" * 451}, {}),
        ({"ServiceControl.Retry.UniqueMessageId": "no guid"}, {}),
        ({"Note": "a\0b"}, {"Note": "ab"}),
        ({"No\0te": "ab"}, {"Note": "ab"}),
    ],
)
def test_what_servicecontrol_cannot_take_is_kept_as_it_was(wrong, right):
    """All headers, in one of them: a retry restores them."""
    own = json.dumps({"NServiceBus.MessageId": "m", "Greek": "α", **wrong})
    expected = {"NServiceBus.MessageId": "m", "Greek": "α", **right}
    assert failed(own) == {**expected, **ADDED, RAW_HEADERS: own}


@pytest.mark.parametrize("headers", ["no JSON", '{"a":', "[1]", '{"a":{}}', r'{"a":"\ud800"}', "a\0b"])
def test_poison_is_kept_as_it_was(headers):
    assert failed(headers) == {"NServiceBus.MessageId": ROW_ID, **ADDED, RAW_HEADERS: headers}


def test_long_texts_are_cut():
    """The message at its end, the stack trace at its beginning; each astral character counts as two."""
    told = failed(
        "{}", message="😀" * 20_000, stack_trace="x" * 70_000 + "the end", data={"all": "y" * 70_000}
    )
    assert told[f"{EXCEPTION}Message"] == "😀" * 8_192
    assert told[f"{EXCEPTION}StackTrace"] == "x" * 65_529 + "the end"
    assert told[f"{EXCEPTION}Data.all"] == "y" * 65_536


def test_the_frame_by_which_failures_are_grouped_is_not_cut_off():
    """The first line, unless it is no line at all."""
    frame = "   at shop.orders.place() in /jobs/orders.py:line 7\n"
    told = failed("{}", stack_trace=frame + "x" * 70_000 + "the end")
    assert told[f"{EXCEPTION}StackTrace"] == frame + "x" * (65_536 - len(frame) - 7) + "the end"
    told = failed("{}", stack_trace="   at " + "x" * 70_000)
    assert told[f"{EXCEPTION}StackTrace"] == "   at " + "x" * (65_536 // 2 - 6)


def test_a_message_of_20_mb_is_cut():
    assert len(failed("{}", message="x" * 20_000_000)[f"{EXCEPTION}Message"]) == 16_384


def test_hostile_texts_are_cleaned():
    told = failed(
        "{}", message="a\0b\ud800c", exception_type="X\0", data={"na\0me": "\udfff!"}, endpoint="e" * 500
    )
    assert (told[f"{EXCEPTION}Message"], told[f"{EXCEPTION}ExceptionType"]) == ("abc", "X")
    assert (told[f"{EXCEPTION}Data.name"], told["NServiceBus.ProcessingEndpoint"]) == ("!", "e" * 450)


def test_an_exception_tells_its_full_name_and_its_cause():
    """A stack trace is a handler's matter."""

    def fail():
        try:
            int("x")
        except ValueError as error:
            raise LookupError("no such order") from error

    with pytest.raises(LookupError) as caught:
        fail()
    told = Failure.of(caught.value)
    assert told == Failure(
        exception_type="LookupError", inner_exception_type="ValueError", message="no such order"
    )


def package_errors():
    """All exceptions of the package, whatever module they stand in."""
    names = [each.name for each in pkgutil.walk_packages(sqlqueue_spark.__path__, "sqlqueue_spark.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    found = {each for module in modules for each in vars(module).values() if inspect.isclass(each)}
    return {each for each in found if issubclass(each, BaseException) and each.__module__ in names}


def test_the_names_by_which_our_failures_are_grouped_are_public():
    """Each in docs/failures.md. A new class of sqlqueue_spark.errors is explained there."""
    names = {type_name(kind.__new__(kind)) for kind in package_errors()}
    assert names - NEVER_FAIL_A_MESSAGE == {f"sqlqueue_spark.errors.{name}" for name in PUBLIC}
    section = page("docs/failures.md").text.partition("## Exception types")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    let_through = re.findall(r"`(\w+)`", section.rpartition("let these through")[2])
    assert sorted(listed + let_through) == sorted(PUBLIC)


def test_an_error_of_a_user_has_its_own_name():
    """Also one that is derived from one of ours."""

    class Own(WrongBody):
        pass

    assert type_name(Own()) == f"{__name__}.{Own.__qualname__}"
    assert type_name(KeyError("x")) == "KeyError"


def test_an_error_of_an_inner_module_has_the_name_of_its_public_base():
    error = DatabaseDown("It is gone.")
    assert Failure.of(error).exception_type == "sqlqueue_spark.errors.ConnectionLost"


def test_the_classes_of_handlers_are_those_of_the_errors():
    names = ("HandlerTimeout", "NoHandler", "NoReplyAddress", "WorkerDied", "WrongAnswer", "WrongBody")
    assert [getattr(handling, name) for name in names] == [getattr(errors, name) for name in names]


def test_poison_shows_only_its_beginning():
    assert poison("x" * 1_000).message.endswith(f"{'x' * 80!r}.")


def test_a_recorded_failed_message_fails_again_with_the_same_headers():
    """But for those that say why, where and when."""
    for row in dotnet.rows("error")[1:]:
        recorded = json.loads(row.headers)
        again = failed(row.headers)
        added = {name for name in recorded if name.startswith(EXCEPTION)} | ADDED.keys()
        assert {name: again[name] for name in again.keys() - ADDED.keys()} == {
            name: value for name, value in recorded.items() if name not in added
        }
        assert added >= ADDED.keys()


def test_the_time_of_a_failure_without_one_is_now():
    before = datetime.now(UTC)
    told = failed(messages.headers(1), time=None)["NServiceBus.TimeOfFailure"]
    at = datetime.strptime(told, "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC)
    assert before <= at <= datetime.now(UTC)
    assert len(told) == 28
