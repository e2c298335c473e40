"""A handler is called for each message; what it answers becomes messages out,
and what it raises a failure.
"""

import itertools
import json
import signal
import threading
import time
from datetime import timedelta
from functools import partial
from unittest import mock

import pyarrow as pa
import pytest

from sqlqueue_spark.errors import ConfigurationError, HandlerTimeout
from sqlqueue_spark.handling import Publish, ReceivedMessage, Reply, Send, each_message
from sqlqueue_spark.handling.batch_handler import BatchHandler
from sqlqueue_spark.handling.handler_calls import Handler, Limits
from sqlqueue_spark.messages.addresses import Naming
from tests.support import messages
from tests.support.handlers_time import passes
from tests.support.messages import body, message_id, row_id

TYPE = "Shop.Messages.OrderPlaced"


class OutOfStock(Exception):
    pass


def batch(*numbers, **changes):
    rows = [
        {
            "Queue": "orders",
            "Id": str(row_id(number)),
            "RowVersion": number,
            "Headers": messages.headers(number),
            "Body": body(number),
            **changes,
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows)


def outcomes(functions, given, *, retries=0, timeout=30.0, unrecoverable=()):
    """The columns Outgoing and Failure of each message."""
    limits = Limits(immediate_retries=retries, timeout=timeout, unrecoverable=unrecoverable)
    found = [*BatchHandler(Handler(functions=functions, limits=limits)).outcomes(given)]
    told = [each.select(["Outgoing", "Failure"]).to_pylist() for each in found]
    return [(row["Outgoing"], row["Failure"]) for row in itertools.chain.from_iterable(told)]


def failure_of(function, given=None, **more):
    ((sends, failure),) = outcomes(function, batch(1) if given is None else given, **more)
    assert sends is None
    return failure


def test_a_function_sees_the_whole_message():
    seen: list[ReceivedMessage] = []
    outcomes(seen.append, batch(1, ReplyToAddress="Old"))
    (message,) = seen
    assert (message.id, message.row_id, message.row_version, message.queue) == (
        message_id(1),
        str(row_id(1)),
        1,
        "orders",
    )
    assert (message.type, message.types, message.reply_to) == (TYPE, [TYPE], "Shop.Web@[dbo]@[shop]")
    assert (message.headers, message.body) == (json.loads(messages.headers(1)), body(1))
    assert message.json() == json.loads(body(1))


def test_nothing_is_an_answer():
    assert outcomes(lambda _: None, batch(1, 2)) == [([], None)] * 2


def test_a_reply_relates_to_its_message_as_that_of_a_net_endpoint():
    (((sent,), failure),) = outcomes(lambda _: Reply("Shop.Accepted, Shop", {"ok": True}), batch(1))
    assert failure is None
    assert {**sent, "Headers": json.loads(sent["Headers"])} == {
        "Destination": "Shop.Web@[dbo]@[shop]",
        "Headers": {
            "NServiceBus.MessageIntent": "Reply",
            "NServiceBus.RelatedTo": message_id(1),
            "NServiceBus.CorrelationId": message_id(1),
            "NServiceBus.ConversationId": "20000000-0000-4000-8000-000000000001",
            "NServiceBus.EnclosedMessageTypes": "Shop.Accepted, Shop",
        },
        "Body": b'{"ok":true}',
        "MessageId": None,
        "ReplyToAddress": "orders",
        "EventType": None,
    }


SAGA = {
    "NServiceBus.OriginatingSagaId": "9e0d2f01-e903-481a-b272-ac6500e46715",
    "NServiceBus.OriginatingSagaType": "Shop.OrderSaga, Shop, Version=1.0.0.0",
}


@pytest.mark.parametrize(
    "answer, asked, names",
    [
        (Reply(), SAGA, dict(zip(("SagaId", "SagaType"), SAGA.values(), strict=True))),
        (
            Reply(headers={"NServiceBus.SagaId": "mine", "a": "b"}),
            SAGA,
            {"SagaId": "mine", "SagaType": "Shop.OrderSaga, Shop, Version=1.0.0.0"},
        ),
        (
            Reply(),
            {**SAGA, "NServiceBus.OriginatingSagaType": ""},
            {"SagaId": SAGA["NServiceBus.OriginatingSagaId"]},
        ),
        (Reply(), {}, {}),
        (Send("Billing"), SAGA, {}),
        (Publish("Shop.OrderAccepted, Shop"), SAGA, {}),
    ],
)  # fmt: skip
def test_only_a_reply_to_a_saga_names_the_saga_by_which_it_is_found(answer, asked, names):
    given = json.dumps({**json.loads(messages.headers(1)), **asked})
    (((sent,), failure),) = outcomes(lambda _: answer, batch(1, Headers=given))
    assert failure is None
    found = {name: text for name, text in json.loads(sent["Headers"]).items() if "Saga" in name}
    assert found == {f"NServiceBus.{name}": text for name, text in names.items()}


def test_an_event_relates_to_its_message_as_a_reply_does():
    types = "Shop.OrderAccepted, Shop;Shop.IOrderEvent, Shop"
    (((sent,), failure),) = outcomes(lambda _: Publish(types, {"ok": True}, id="m"), batch(1))
    assert failure is None
    assert {**sent, "Headers": json.loads(sent["Headers"])} == {
        "Destination": None,
        "Headers": {
            "NServiceBus.MessageIntent": "Publish",
            "NServiceBus.RelatedTo": message_id(1),
            "NServiceBus.CorrelationId": message_id(1),
            "NServiceBus.ConversationId": "20000000-0000-4000-8000-000000000001",
            "NServiceBus.EnclosedMessageTypes": types,
        },
        "Body": b'{"ok":true}',
        "MessageId": "m",
        "ReplyToAddress": "orders",
        "EventType": types,
    }


@pytest.mark.parametrize("kind", [None, "", " ;, Shop", 7])
def test_an_event_has_a_type(kind):
    failure = failure_of(lambda _: Publish(kind))
    assert (failure["Unrecoverable"], failure["Message"]) == (
        True,
        (
            f"The handler answered a Publish whose type is {kind!r}; give it the full name of a type, by "
            "which others subscribe."
        ),
    )


@pytest.mark.parametrize("to", [None, 7, ""])
def test_a_message_has_a_destination(to):
    failure = failure_of(lambda _: Send(to))
    assert (failure["Unrecoverable"], failure["Message"]) == (
        True,
        f"The handler answered a Send to {to!r}; give it the address of a queue.",
    )


def test_several_messages_go_out_in_their_order():
    def handle(message):
        yield Send("Billing", body="text")
        yield Send("Shipping", "T", b"bytes", headers={"NServiceBus.CorrelationId": "mine"}, id="m")

    (((first, second), _),) = outcomes(handle, batch(1))
    assert [(each["Destination"], each["Body"], each["MessageId"]) for each in (first, second)] == [
        ("Billing", b"text", None),
        ("Shipping", b"bytes", "m"),
    ]
    assert json.loads(second["Headers"])["NServiceBus.CorrelationId"] == "mine"
    assert json.loads(first["Headers"])["NServiceBus.MessageIntent"] == "Send"


@pytest.mark.parametrize("kind", [Send, Reply, Publish])
@pytest.mark.parametrize("type_", [None, "Shop/Ünit \U0001f600, Shop"])
@pytest.mark.parametrize(
    "received",
    [{}, {"NServiceBus.CorrelationId": 'c"/', "NServiceBus.ConversationId": "é\U0001f600"}],
    ids=["bare", "related"],
)
def test_headers_are_the_same_text_with_and_without_further_ones(kind, type_, received):
    """They are written in two ways, because the usual one is written as text at once."""

    def handle(message):
        parts = {"to": "Billing"} if kind is Send else {}
        told = (type_ or "T") if kind is Publish else type_
        return [kind(**parts, type=told), kind(**parts, type=told, headers={"own": "1"})]

    headers = json.dumps({"NServiceBus.MessageId": "m", "NServiceBus.ReplyToAddress": "Sales", **received})
    (((plain, further), _),) = outcomes(handle, batch(1, Headers=headers))
    assert further["Headers"] == plain["Headers"].removesuffix("}") + ',"own":"1"}'


@pytest.mark.parametrize("given", [batch(1), batch(1, Headers="{")], ids=["handled", "poison"])
def test_the_times_are_those_of_the_call(given):
    """Of the last one, not of what lay before it. Poison is not handled."""
    called = []

    def handle(_):
        called.append(time.time())
        if len(called) == 1:
            time.sleep(0.05)
            called.append(time.time())
            raise OutOfStock
        time.sleep(0.01)
        called.append(time.time())

    handler = Handler(functions=handle, limits=Limits(immediate_retries=1, timeout=30.0))
    (found,) = BatchHandler(handler).outcomes(given)
    told = time.time()
    (row,) = found.select(["ProcessingStarted", "ProcessingEnded"]).to_pylist()
    if not called:
        assert row == {"ProcessingStarted": None, "ProcessingEnded": None}
        return
    _, failed, began, ended = called
    assert failed - 1e-6 <= row["ProcessingStarted"].timestamp() <= began + 1e-6
    assert ended - 1e-6 <= row["ProcessingEnded"].timestamp() <= told


def test_what_a_call_changes_in_the_headers_is_as_received_in_the_next():
    seen = []

    def handle(message):
        seen.append(message.headers.pop("NServiceBus.MessageId"))
        raise OutOfStock

    handler = Handler(functions=handle, limits=Limits(immediate_retries=2, timeout=30.0))
    (found,) = BatchHandler(handler).outcomes(batch(1))
    assert seen == [message_id(1)] * 3
    assert found["Failure"][0]["ExceptionType"].as_py().endswith("OutOfStock")


def test_a_failure_has_no_times_of_processing():
    """As with a .NET endpoint: its own time is in Failure."""
    handler = Handler(functions=lambda _: 42, limits=Limits(immediate_retries=0, timeout=30.0))
    (found,) = BatchHandler(handler).outcomes(batch(1))
    assert [found[name].null_count for name in ("ProcessingStarted", "ProcessingEnded")] == [1, 1]


def test_a_failure_tells_all_that_is_known():
    def handle(message):
        try:
            dict[str, int]()["key"]
        except KeyError as error:
            raise OutOfStock("nothing left") from error

    failure = failure_of(handle)
    assert failure.pop("TimeOfFailure").tzinfo is not None
    stack = failure.pop("StackTrace")
    assert stack.startswith(f"   at {__name__}.{handle.__qualname__}() in {__file__}:line ")
    assert stack.splitlines()[-1].endswith("OutOfStock: nothing left")
    assert failure == {
        "ExceptionType": f"{OutOfStock.__module__}.OutOfStock",
        "InnerExceptionType": "KeyError",
        "Message": "nothing left",
        "Data": [("Message type", TYPE), ("Message ID", message_id(1))],
        "Unrecoverable": False,
    }


def test_a_function_that_fails_is_called_again_at_once():
    calls = []

    def handle(message):
        calls.append(message.id)
        if len(calls) < 3:
            raise OutOfStock
        return Send("Billing")

    (((sent,), failure),) = outcomes(handle, batch(1), retries=5)
    assert (len(calls), sent["Destination"], failure) == (3, "Billing", None)


def test_a_function_that_always_fails_is_called_as_often_as_was_said():
    calls = []

    def handle(message):
        calls.append(1)
        raise OutOfStock

    failure_of(handle, retries=5)
    assert len(calls) == 6


@pytest.mark.parametrize(
    "answer, kind",
    [
        (lambda m: m.json(), "sqlqueue_spark.errors.WrongBody"),
        (lambda _: 42, "sqlqueue_spark.errors.WrongAnswer"),
        (lambda _: "text", "sqlqueue_spark.errors.WrongAnswer"),
        (lambda _: {"Send": 1}, "sqlqueue_spark.errors.WrongAnswer"),
        (lambda _: [Send("Billing"), 42], "sqlqueue_spark.errors.WrongAnswer"),
        (lambda _: Reply(), "sqlqueue_spark.errors.NoReplyAddress"),
    ],
)
def test_what_is_hopeless_is_not_tried_again(answer, kind):
    calls = []

    def handle(message):
        calls.append(1)
        return answer(message)

    failure = failure_of(handle, batch(1, Body=b"no JSON", Headers="{}"), retries=5)
    assert (failure["ExceptionType"], failure["Unrecoverable"], len(calls)) == (kind, True, 1)


def test_an_unrecoverable_error_is_not_tried_again():
    calls = []

    def handle(message):
        calls.append(1)
        raise OutOfStock

    failure = failure_of(handle, retries=5, unrecoverable=(OutOfStock,))
    assert (failure["Unrecoverable"], len(calls)) == (True, 1)


def test_one_message_that_fails_leaves_the_others_alone():
    def handle(message):
        if message.row_version == 2:
            raise OutOfStock
        return Send("Billing")

    told = outcomes(handle, batch(1, 2, 3))
    assert [(sends is None, failure is None) for sends, failure in told] == [
        (False, True),
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("error", [SystemExit, RecursionError, MemoryError])
def test_a_function_that_wants_to_end_its_worker_fails(error):
    def handle(message):
        raise error

    assert failure_of(handle)["ExceptionType"] == error.__name__


@pytest.mark.usefixtures("standing_time")
def test_a_function_that_hangs_ends_after_its_time():
    """And the next message gets its own time."""

    def handle(message):
        if message.row_version == 1:
            passes(0.3)
            time.sleep(60)
        return Send("Billing")

    (first, second) = outcomes(handle, batch(1, 2), timeout=0.2)
    assert first[1]["ExceptionType"] == "sqlqueue_spark.errors.HandlerTimeout"
    assert first[1]["Message"] == "The handler took longer than handlerTimeout."
    assert second[1] is None


def test_no_alarm_is_set_on_another_thread():
    """It would end the process: no handler of signals is there, and none reaches another thread."""
    told = []

    def handle(message):
        time.sleep(0.1)
        return Send("Billing")

    thread = threading.Thread(target=lambda: told.append(outcomes(handle, batch(1), timeout=0.01)))
    thread.start()
    thread.join()
    (((sent,), failure),) = told[0]
    assert (sent["Destination"], failure) == ("Billing", None)


def test_one_alarm_serves_many_calls():
    """To set an alarm takes longer than a quick handler."""
    with mock.patch("signal.setitimer", wraps=signal.setitimer) as setting:
        found = outcomes(lambda _: None, batch(*range(1000)))
    assert found == [([], None)] * 1000
    assert setting.call_count < 200  # one for each part, of which a slow machine has more


@pytest.mark.usefixtures("standing_time")
def test_a_function_that_swallows_the_alarm_hears_it_again():
    heard: list[object] = []

    def handle(message):
        try:
            passes(0.3)
            time.sleep(60)
        except Exception as error:  # noqa: BLE001 -- what careless handlers do
            heard.append(type(error))
            time.sleep(60)
        heard.append("no alarm")

    failure = failure_of(handle, timeout=0.2)
    assert (failure["ExceptionType"], heard) == (
        "sqlqueue_spark.errors.HandlerTimeout",
        [HandlerTimeout],
    )


def test_an_error_with_a_text_of_20_mb_is_cut():
    def handle(message):
        raise OutOfStock("x" * 20_000_000)

    failure = failure_of(handle)
    assert len(failure["Message"]) == 16_384
    assert len(failure["StackTrace"]) < 10_000


def test_an_error_without_a_text_says_so():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    def handle(message):
        raise Silent

    assert failure_of(handle)["Message"] == "(its text cannot be had: RuntimeError)"


def test_functions_by_type_are_found_by_any_enclosed_type():
    """The most derived first."""
    text = json.dumps({"NServiceBus.EnclosedMessageTypes": "A.Derived, A, Version=1;A.Base, A"})
    functions = {"A.Base": lambda _: Send("base"), "A.Derived": lambda _: Send("derived")}
    (((sent,), _),) = outcomes(functions, batch(1, Headers=text))
    assert sent["Destination"] == "derived"
    (((sent,), _),) = outcomes({"A.Base": functions["A.Base"]}, batch(1, Headers=text))
    assert sent["Destination"] == "base"


def test_a_type_without_a_function_fails():
    failure = failure_of({"A.B": lambda _: None}, retries=5)
    assert failure["Message"] == f"There is no handler for the type '{TYPE}'; there are handlers for A.B."
    assert failure["Unrecoverable"]


def test_a_control_message_needs_no_type():
    text = json.dumps({"NServiceBus.ControlMessage": "True"})
    assert outcomes({"A.B": lambda _: Send("x")}, batch(1, Headers=text, Body=None)) == [([], None)]


@pytest.mark.parametrize(
    "text, called",
    [
        ("no JSON", False),
        ('{"NServiceBus.SqlServer.ForwardDestination":"Elsewhere"}', False),
        ('{"NServiceBus.SqlServer.ForwardDestination":"\\"public\\".\\"orders\\""}', True),
        ('{"NServiceBus.SqlServer.ForwardDestination":"Elsewhere","NServiceBus.FailedQ":"x"}', True),
    ],
)
def test_a_message_that_is_not_for_us_is_not_handled(text, called):
    """It cannot be read, or it is on its way to another queue: the sink lets it fail."""
    calls: list[ReceivedMessage] = []
    told = outcomes(calls.append, batch(1, Headers=text))
    assert (bool(calls), told) == (called, [([], None) if called else (None, None)])


@pytest.mark.parametrize("knows, called", [(True, False), (False, True)])
def test_a_handler_that_knows_how_addresses_are_read_tells_schemas_apart(knows, called):
    """One that does not know it is called, and the sink has the last word."""
    naming = {"naming": Naming(default_schema="public", quoted_addresses=True)} if knows else {}
    calls: list[ReceivedMessage] = []
    limits = Limits(immediate_retries=0, timeout=1.0)
    text = '{"NServiceBus.SqlServer.ForwardDestination":"\\"sales\\".\\"orders\\""}'
    handler = BatchHandler(Handler(functions=calls.append, limits=limits, **naming))
    (found,) = handler.outcomes(batch(1, Headers=text))
    assert (bool(calls), found["Outgoing"].is_null().to_pylist()) == (called, [not called])


class Place:
    """A handler of each kind that cannot be called."""

    async def __call__(self, message): ...

    @staticmethod
    def nothing(): ...

    @staticmethod
    def two(message, number): ...

    @staticmethod
    async def later(message): ...


@pytest.mark.parametrize(
    "function, said",
    [
        ("x", " is no function, but str; give a function, or functions by type."),
        ({"A": print, "B": 1}, " for 'B' is no function, but int; give a function, or functions by type."),
        (Place, " is a class; give a function, or an object that can be called."),
        (
            Place.nothing,
            " cannot be called with one argument (too many positional arguments); give a function that can.",
        ),
        (
            {"A": Place.two},
            (" for 'A' cannot be called with one argument (missing a required argument: 'number'); give a "
            "function that can."),
        ),
        (Place.later, " is async, and no loop runs it; give a function without async."),
        (Place(), " is async, and no loop runs it; give a function without async."),
        (partial(Place.later), " is async, and no loop runs it; give a function without async."),
    ],
)  # fmt: skip
def test_what_can_handle_no_message_is_refused(function, said):
    with pytest.raises(ConfigurationError) as caught:
        each_message(function)
    assert str(caught.value) == f"The function of each_message{said}"


@pytest.mark.parametrize("function", [min, print, partial(Place.two, number=1), mock.Mock(), {}])
def test_a_function_that_may_take_a_message_is_taken(function):
    """The signature of min cannot be read."""
    each_message(function)


@pytest.mark.parametrize(
    "named",
    [
        {"immediateRetries": -1},
        {"immediateRetries": "5"},
        {"handlerTimeout": "soon"},
        {"handlerTimeout": timedelta(0)},
        {"unrecoverable": ValueError},
        {"unrecoverable": ("ValueError",)},
    ],
)
def test_wrong_options_are_refused(named):
    with pytest.raises(ConfigurationError, match=next(iter(named))):
        each_message(print, **named)
