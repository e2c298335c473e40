"""The arguments of ``SqlQueueSink``: names and types as the options are declared,
so that editors and type checkers know them.
"""

import dataclasses
import inspect
from datetime import timedelta
from typing import Any, Literal, Never, get_args, get_origin, get_type_hints
from unittest import mock

import pytest

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.options.fields import camel
from sqlqueue_spark.spark.sink import Duration

ARGUMENTS = {
    name: type_
    for name, type_ in get_type_hints(SqlQueueSink.__init__).items()
    if name not in ("options", "unknown", "return")
}
FIELDS = {camel(each.name): each for each in dataclasses.fields(SinkOptions) if "parse" in each.metadata}
TYPES = get_type_hints(SinkOptions)
NEEDED = {"url": "postgresql://h/d", "endpoint": "Sales"}


@pytest.fixture(autouse=True)
def _no_look():
    """A sink looks when it is made, and here the network would be asked for a host."""
    with mock.patch("sqlqueue_spark.spark.sink.look_before"):
        yield


def words(type_):
    return [word for each in get_args(type_) if get_origin(each) is Literal for word in get_args(each)]


def test_there_is_an_argument_for_each_option():
    """And for no other; one name after another as the options are declared."""
    assert [*ARGUMENTS] == [*FIELDS]


def test_an_argument_has_the_type_of_its_option():
    """Durations may be written, too; what takes one of some words takes those alone."""
    expected = {}
    for name, each in FIELDS.items():
        type_ = TYPES[each.name]
        if timedelta in (type_, *get_args(type_)):
            type_ = Duration
        expected[name] = type_ | None if type_ in (str, bool, int) or type_ == Duration else type_
    plain = {name: str | None if words(type_) else type_ for name, type_ in ARGUMENTS.items()}
    assert plain == expected


def test_the_words_are_those_that_the_option_takes():
    """The error to another one lists them."""
    listed = {}
    for name, each in FIELDS.items():
        if type_words := words(ARGUMENTS[name]):
            with pytest.raises(ValueError, match=" or ") as caught:
                each.metadata["parse"]("?")
            listed[name] = str(caught.value) == " or ".join(type_words)
    assert listed == {"outbox": True, "isolationLevel": True, "transactionMode": True}


def test_nothing_is_given_unless_a_person_gives_it():
    signature = inspect.signature(SqlQueueSink)
    assert {each.default for each in signature.parameters.values()} == {None, inspect.Parameter.empty}
    assert get_type_hints(SqlQueueSink.__init__)["unknown"] is Never


def test_values_are_written_as_options():
    sink = SqlQueueSink(
        url="postgresql://h/d",
        endpoint="Sales",
        publish=True,
        disableCleanup=False,
        outbox="pessimistic",
        lockTimeout=timedelta(minutes=90),
        retryInterval=timedelta(milliseconds=1500),
        giveUpAfter="2d",
        user=None,
        options={"endpoint.Billing*.url": "postgresql://other/d"},
    )
    assert sink.places.home == SinkOptions.parse(
        {
            "url": "postgresql://h/d",
            "endpoint": "Sales",
            "publish": "true",
            "disableCleanup": "false",
            "outbox": "pessimistic",
            "lockTimeout": "90m",
            "retryInterval": "1500ms",
            "giveUpAfter": "2d",
            "endpoint.Billing*.url": "postgresql://other/d",
        }
    )


@pytest.mark.parametrize(
    "named, options",
    [("b", {}), (None, {"QUEUE": "b"}), ("b", {"queue": "a"})],
    ids=["named", "in options", "in both"],
)
def test_an_option_may_stand_in_either_place(named, options):
    """An argument wins."""
    assert SqlQueueSink(queue=named, options={**NEEDED, **options}).places.home.queue == "b"


def test_names_with_dots_may_be_unpacked():
    dotted: dict[str, Any] = {"endpoint.Billing.schema": "billing"}
    sink = SqlQueueSink(options=NEEDED, **dotted)
    assert sink.places.home.endpoint_schemas == {"billing": "billing"}


def test_a_misspelled_argument_is_explained():
    with pytest.raises(ConfigurationError) as caught:
        SqlQueueSink(options=NEEDED, qeue="b")  # type: ignore[arg-type] # mypy says so, too
    assert str(caught.value) == "There is no option 'qeue'; did you mean queue?"
