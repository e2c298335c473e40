"""The stack trace of a failed message begins with the frame by which ServiceControl groups it."""

import functools
import json
import re
import string
import types

import pytest

from sqlqueue_spark.errors import WrongBody
from sqlqueue_spark.handling import Send
from sqlqueue_spark.handling.stack_trace import package_of, stack_trace
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers
from tests.unit.test_handling import batch, failure_of
from tests.unit.test_handling_child import failure as failure_in_child

#: The frames that ServiceControl finds in a stack trace, as it was observed: a word, blanks, a name with
#: brackets, perhaps a path and a line.
FRAME = re.compile(
    r"^[ \t]*\w+[ \t]+(?P<name>[^ \t]+\.[^ \t]+?[ \t]*\([ \t]*\))([ \t]+\w+[ \t]+(?:[a-z]:|/).+?:\w+[ "
    r"\t]+[0-9]+)?\s*$",
    re.MULTILINE | re.IGNORECASE,
)


def group(trace):
    """The group in which ServiceControl puts a failure with this stack trace."""
    found = FRAME.search(trace)
    return found and found["name"]


class Shop:
    def place(self, message):
        raise ValueError(message.id)

    def __call__(self, message):
        return self.place(message)


def answered_late(_):
    yield Send("Billing")
    raise ValueError


def outer():
    def inner(_):
        raise ValueError

    return inner


@pytest.mark.parametrize(
    "function, name",
    [
        (Shop().place, "Shop.place"),
        (Shop(), "Shop.place"),
        (functools.partial(Shop.place, Shop()), "Shop.place"),
        (outer(), "outer.<locals>.inner"),
        (lambda message: message.no, "<lambda>"),
        (lambda message: json.loads(message.body[1:]), "<lambda>"),
        (lambda message: message.json(), "<lambda>"),
    ],
)
def test_failures_are_grouped_by_the_innermost_frame_of_the_users_code(function, name):
    trace = failure_of(function, batch(1, Body=b"no JSON"))["StackTrace"]
    first, second = trace.splitlines()[:2]
    line = re.fullmatch(
        rf"   at {__name__}\.{re.escape(name)}\(\) in {re.escape(__file__)}:line (\d+)", first
    )
    assert line is not None, first
    assert second == "Traceback (most recent call last):"
    assert group(trace) == f"{__name__}.{name}()"
    assert f'File "{__file__}", line {line[1]}' in trace


def test_a_stack_trace_has_no_frame_of_ours():
    """From the function on: what lies before it is ours alone."""

    def handle(message):
        return message.json()

    trace = failure_of(handle, batch(1, Body=b"no JSON"))["StackTrace"]
    number = handle.__code__.co_firstlineno + 1
    assert trace == (
        f"   at {__name__}.{handle.__qualname__}() in {__file__}:line {number}\n"
        "Traceback (most recent call last):\n"
        f'  File "{__file__}", line {number}, in handle\n'
        "    return message.json()\n"
        f"sqlqueue_spark.errors.WrongBody: {failure_of(handle, batch(1, Body=b'no JSON'))['Message']}\n"
    )


def test_a_child_process_tells_the_same_stack_trace():
    def handle(_):
        raise KeyError("article")

    here, there = failure_of(handle)["StackTrace"], failure_in_child(handle)["StackTrace"]
    assert here == there
    assert here.startswith(f"   at {__name__}.{handle.__qualname__}() in {__file__}:line ")


@pytest.mark.parametrize(
    "function", [{"Another.Type": print}, lambda _: 42], ids=["no handler", "a wrong answer"]
)
def test_a_failure_without_a_frame_of_the_users_has_no_stack_trace(function):
    assert failure_of(function)["StackTrace"] == ""


def test_a_generator_that_fails_is_the_users_code():
    assert group(failure_of(answered_late)["StackTrace"]) == f"{__name__}.answered_late()"


def raising(file, *, name="handle", module="shop.orders", said="ValueError('too late')"):
    """A function of a file and a module of these names, which raises."""
    code = compile(f"def handle(message):\n    raise {said}", file, "exec")
    made = {"__name__": module}
    exec(code, made)  # noqa: S102 -- to have a function of any file and name
    function = made["handle"]
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__module__ = module
    return function


def first_line(function):
    return failure_of(function)["StackTrace"].splitlines()[0]


@pytest.mark.parametrize(
    "file, where",
    [
        ("/jobs/my orders.py", " in /jobs/my orders.py:line 2"),
        ("C:\\jobs\\orders.py", " in C:\\jobs\\orders.py:line 2"),
        ("/jobs/Käse.py", " in /jobs/Käse.py:line 2"),
        ("<stdin>", ""),
        ("orders.py", ""),
        ("/jobs/\n   at evil.frame()", ""),
        ("/jobs/\udc80.py", ""),
        ("/jobs/" + "x" * 2_000, ""),
    ],
)
def test_a_frame_names_only_a_file_that_servicecontrol_can_read(file, where):
    assert first_line(raising(file)) == f"   at shop.orders.handle(){where}"
    assert group(failure_of(raising(file))["StackTrace"]) == "shop.orders.handle()"


@pytest.mark.parametrize(
    "name, module, shown",
    [
        ("a b\n(c)", "shop", "shop.a_b__c_"),
        ("a\0\ud800", "shop", "shop.a__"),
        ("handle", "__main__", "__main__.handle"),
        ("handle", "my job\t", "my_job_.handle"),
        ("handle", "", "_.handle"),
        ("x" * 100_000, "shop", "shop." + "x" * 200),
    ],
)
def test_a_name_cannot_break_the_form_of_the_frame(name, module, shown):
    function = raising("/jobs/orders.py", name=name, module=module)
    assert first_line(function) == f"   at {shown}() in /jobs/orders.py:line 2"
    assert group(failure_of(function)["StackTrace"]) == f"{shown}()"


LIBRARY = "/env/lib/python3.11/site-packages/"


def test_what_is_installed_is_not_the_users_code():
    library = raising(f"{LIBRARY}requests/api.py", module="requests.api")

    def handle(message):
        library(message)

    assert group(failure_of(handle)["StackTrace"]) == f"{__name__}.{handle.__qualname__}()"


@pytest.mark.parametrize("decorated", [False, True])
def test_a_handler_that_is_installed_is_the_users_code(decorated):
    """Also where what decorates it is installed beside it."""
    inner = raising(f"{LIBRARY}shop/stock.py", module="shop.stock", name="take")
    client = raising(f"{LIBRARY}requests/api.py", module="requests.api", said="inner(message)")
    handle = raising(f"{LIBRARY}shop/orders.py", module="shop.orders", said="other(message)")
    around = raising(f"{LIBRARY}tenacity/retry.py", module="tenacity.retry", said="wrapped(message)")
    handle.__globals__["other"], client.__globals__["inner"] = client, inner
    around.__globals__["wrapped"] = handle
    function = functools.wraps(handle)(around) if decorated else handle
    assert group(failure_of(function)["StackTrace"]) == "shop.stock.take()"
    client.__globals__["inner"] = raising(f"{LIBRARY}urllib3/pool.py", module="urllib3.pool")
    assert group(failure_of(function)["StackTrace"]) == "shop.orders.handle()"


def test_a_function_of_a_library_stands_for_the_users():
    assert group(failure_of(string.capwords)["StackTrace"]) == "string.capwords()"


def test_the_package_of_a_function():
    module = types.ModuleType("shop.orders")
    handle = raising("/x.py", module="shop.orders")
    assert {
        package_of(each)
        for each in (handle, functools.partial(handle), functools.wraps(handle)(lambda: None))
    } == {"shop"}
    assert package_of(Shop()) == package_of(Shop().place) == __name__.partition(".")[0]
    assert package_of(module) == ""  # type: ignore[arg-type] # what has no module


def test_a_long_traceback_loses_its_middle():
    function = raising("/jobs/last.py", name="last")
    for number in range(400):
        outer = raising(f"/jobs/{number}/{'x' * 200}.py", said="inner(message)")
        outer.__globals__["inner"] = function
        function = outer
    trace = failure_of(function)["StackTrace"]
    assert len(trace) == 65_536
    assert trace.startswith("   at shop.orders.last() in /jobs/last.py:line 2\n")
    assert trace.endswith('  File "/jobs/last.py", line 2, in last\nValueError: too late\n')
    told = {"exception_type": "X", "stack_trace": trace}
    headers = failed_headers("{}", Failure(**told), queue="orders", endpoint="orders", row_id="1")
    assert json.loads(headers)["NServiceBus.ExceptionInfo.StackTrace"] == trace


def test_an_endless_recursion_is_told_in_few_lines():
    def handle(message):
        handle(message)

    trace = failure_of(handle)["StackTrace"]
    assert group(trace) == f"{__name__}.{handle.__qualname__}()"
    assert len(trace) < 5_000


def test_what_was_never_raised_has_no_stack_trace():
    assert stack_trace(WrongBody("x"), ()) == ""
