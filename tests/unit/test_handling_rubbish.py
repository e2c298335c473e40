"""Whatever a handler answers, raises or leaves behind: each message has one outcome,
and the messages beside it theirs.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import time

import pytest

from sqlqueue_spark.handling import Reply, Send
from tests.support.handlers_time import passes
from tests.unit.test_handling import OutOfStock, batch
from tests.unit.test_handling_child import SENT, no_child_is_left, outcomes, task  # noqa: F401 -- a fixture for every test

HALF = "\ud83d"


def at_second(answer):
    """A function that sends, but answers this to the second message."""

    def handle(message):
        return answer(message) if message.row_version == 2 else Send("Billing")

    return handle


def raising(error):
    def handle(_):
        raise error

    return handle


def second(answer, **more):
    """The failure of the second of three messages, of which the others are sent."""
    rows = [
        row for each in task(at_second(answer), **more)(iter([batch(1, 2, 3)])) for row in each.to_pylist()
    ]
    assert [(row["RowVersion"], row["Failure"] is None) for row in rows] == [(1, True), (2, False), (3, True)]
    assert [row["Outgoing"] is None for row in rows] == [False, True, False]
    return rows[1]["Failure"]


async def coroutine():
    pass


def endless():
    passes(0.3)
    while True:
        yield Send("Billing", body=b"x" * 1000)
        time.sleep(0.01)


def late():
    yield Send("Billing")
    raise OutOfStock("after the first")


class Odd:
    """Nothing about it works."""

    def __getattribute__(self, name):
        raise OutOfStock(name)

    def __iter__(self):
        raise OutOfStock


WRONG_ANSWERS = {
    "a number": lambda _: 42,
    "a truth": lambda _: True,
    "a text": lambda _: "text",
    "bytes": lambda _: b"bytes",
    "a mapping": lambda _: {"to": "Billing"},
    "a class": lambda _: Send,
    "a list of lists": lambda _: [[Send("Billing")]],
    "a list with nothing": lambda _: [None],
    "an object": lambda _: object(),
    "nowhere": lambda _: Send(None),  # type: ignore[arg-type]
    "bytes as address": lambda _: Send(b"Billing"),  # type: ignore[arg-type]
    "a number as type": lambda _: Send("Billing", 42),  # type: ignore[arg-type]
    "a number as id": lambda _: Send("Billing", id=42),  # type: ignore[arg-type]
    "no headers": lambda _: Send("Billing", headers=None),  # type: ignore[arg-type]
    "a list of headers": lambda _: Send("Billing", headers=[("a", "b")]),  # type: ignore[arg-type]
    "numbers in headers": lambda _: Send("Billing", headers={"a": 1}),  # type: ignore[dict-item]
    "numbers as headers": lambda _: Reply(headers={1: "a"}),  # type: ignore[dict-item]
    "an object as body": lambda _: Send("Billing", body=object()),
    "no number in a body": lambda _: Send("Billing", body=float("nan")),
    "half a character in a body": lambda _: Send("Billing", body=HALF),
    "half a character in an address": lambda _: Send(HALF),
    "half a character in a header": lambda _: Send("Billing", headers={"a": HALF}),
    "half a character in an id": lambda _: Send("Billing", id=HALF),
}


@pytest.mark.parametrize("answer", WRONG_ANSWERS)
def test_what_is_no_answer_fails_its_message(answer):
    told = second(WRONG_ANSWERS[answer])
    assert (told["ExceptionType"], told["Unrecoverable"]) == (
        "sqlqueue_spark.errors.WrongAnswer",
        True,
    )
    assert told["Message"].startswith("The handler answered ")
    assert told["Message"].endswith(".")


def test_a_body_that_contains_itself_fails_its_message():
    itself: list[object] = []
    itself.append(itself)
    assert second(lambda _: Send("Billing", body=itself))["ExceptionType"].endswith("WrongAnswer")


@pytest.mark.usefixtures("standing_time")
@pytest.mark.parametrize(
    "answer, kind",
    [
        (lambda _: late(), "tests.unit.test_handling.OutOfStock"),
        (lambda _: Odd(), "tests.unit.test_handling.OutOfStock"),
        (lambda _: endless(), "sqlqueue_spark.errors.HandlerTimeout"),
    ],
)
def test_an_answer_that_fails_while_it_is_read_fails_its_message(answer, kind):
    assert second(answer, timeout=0.2)["ExceptionType"] == kind


def test_a_coroutine_is_no_answer():
    def handle(message):
        return coroutine() if message.row_version == 2 else Send("Billing")

    assert outcomes(handle, batch(1, 2, 3)) == [SENT, "WrongAnswer", SENT]


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt,
        SystemExit,
        SystemExit(3),
        GeneratorExit,
        StopIteration,
        MemoryError,
        RecursionError,
        asyncio.CancelledError,
        BrokenPipeError,
        EOFError,
        BaseExceptionGroup("several", [KeyboardInterrupt()]),
    ],
)
def test_whatever_is_raised_fails_its_message(error):
    name = (error if isinstance(error, type) else type(error)).__qualname__
    told = second(raising(error), retries=1)
    assert told["ExceptionType"].rpartition(".")[2] == name
    assert told["Unrecoverable"] is False


def test_a_recursion_without_end_fails_its_message():
    def deeper(message):
        return deeper(message)

    assert second(deeper)["ExceptionType"] == "RecursionError"


class Untellable(Exception):
    def __str__(self):
        raise SystemExit("no")

    __repr__ = __str__


class Liar(type):
    @property
    def __module__(cls):  # type: ignore[override]
        raise OutOfStock


class Nameless(Exception, metaclass=Liar):
    pass


def raise_nameless(_):
    """Pickled by its name, because the class cannot be pickled."""
    raise Nameless


class TextOfBytes(Exception):
    def __str__(self):
        return b"bytes"  # noqa: PLE0307 -- rubbish


@pytest.mark.parametrize(
    "handle, kind, said",
    [
        (raising(Untellable()), "Untellable", "(it cannot be told: SystemExit)"),
        (raise_nameless, "Nameless", "(it cannot be told: OutOfStock)"),
        (
            raising(TextOfBytes()),
            "tests.unit.test_handling_rubbish.TextOfBytes",
            "(its text cannot be had: TypeError)",
        ),
        (
            raising(OutOfStock(f"half {HALF}, nothing \0")),
            "tests.unit.test_handling.OutOfStock",
            "half ?, nothing \0",
        ),
    ],
)
def test_an_exception_that_cannot_be_told_fails_its_message(handle, kind, said):
    told = second(handle)
    assert (told["ExceptionType"], told["Message"]) == (kind, said)


def test_an_exception_with_20_mb_of_text_is_cut():
    told = second(raising(OutOfStock("x" * 20_000_000)))
    assert (len(told["Message"]), len(told["StackTrace"]) < 10_000) == (16_384, True)


# -- what is left behind --------------------------------------------------------------------------


@pytest.mark.usefixtures("standing_time")
def test_signal_handlers_that_are_changed_do_not_matter():
    """An alarm that is ignored is set again, for a handler that hangs later."""

    def handle(message):
        if message.row_version == 1:
            for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            time.sleep(0.06)
        if message.row_version == 2:
            passes(0.3)
            time.sleep(600)
        return Send("Billing", body=[os.getpid()])

    assert outcomes(handle, batch(1, 2, 3), timeout=0.2) == [SENT, "HandlerTimeout", SENT]


@pytest.mark.usefixtures("standing_time")
def test_an_alarm_of_the_handler_itself_does_not_matter():
    def handle(message):
        if message.row_version == 1:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if message.row_version == 2:
            passes(0.3)
            time.sleep(600)
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3), timeout=0.2) == [SENT, "HandlerTimeout", SENT]


@pytest.mark.usefixtures("standing_time")
def test_signals_that_are_blocked_do_not_matter():
    def handle(message):
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        if message.row_version == 2:
            passes(60)  # no alarm is heard
            time.sleep(600)
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3), timeout=0.2) == [SENT, "HandlerTimeout", SENT]


@pytest.mark.parametrize(
    "close",
    [
        lambda: sys.stdout.close(),  # noqa: PLW0108 -- the child's, not pytest's
        lambda: os.close(1),
        lambda: os.closerange(0, 3),
    ],
)
def test_a_stdout_that_is_closed_does_not_matter(close):
    def handle(message):
        if message.row_version == 1:
            close()
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3)) == [SENT] * 3


def test_threads_that_stay_do_not_matter():
    def handle(_):
        threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
        return Send("Billing")

    assert outcomes(handle, batch(1, 2), batch(3)) == [SENT] * 3


def test_a_thread_that_raises_does_not_matter():
    def handle(_):
        thread = threading.Thread(target=raising(OutOfStock), args=(1,))
        thread.start()
        thread.join()
        return Send("Billing")

    assert outcomes(handle, batch(1, 2)) == [SENT] * 2


def test_interpreter_settings_that_are_changed_do_not_matter():
    def handle(message):
        if message.row_version == 1:
            gc.disable()
            sys.setrecursionlimit(200)
            sys.settrace(lambda *_: None)
            os.chdir("/")
            os.environ.clear()
        return Send("Billing")

    assert outcomes(handle, batch(1, 2, 3)) == [SENT] * 3


def test_a_message_that_is_changed_stays_what_was_received():
    """Only the handler's own copy changes: the row goes to the sink as it came."""
    given = batch(1)

    def handle(message):
        message.headers.clear()
        message.body = b""
        return Send("Billing")

    (found,) = task(handle)(iter([given]))
    assert found.select(given.schema.names) == given
