"""Rows of an error queue: what their headers tell, and which of them a user selects."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.error_row import ErrorRow, Selection
from sqlqueue_spark.messages.servicecontrol import Ingestion, Verdict
from tests.support import dotnet
from tests.support.error_rows import EXCEPTION

NOW = datetime(2026, 11, 22, 18, 0, tzinfo=UTC)
POSTGRESQL = Naming(default_schema="public", quoted_addresses=True)
SQLSERVER = Naming(default_schema="dbo")
HEADERS = (
    '{"NServiceBus.MessageId":"m","NServiceBus.FailedQ":"\\"public\\".\\"orders\\"",'
    f'"{EXCEPTION}ExceptionType":"shop.stock.OutOfStock","{EXCEPTION}Message":"nothing left",'
    '"NServiceBus.TimeOfFailure":"2026-11-22 17:00:00:000000 Z"}'
)


def row(headers=HEADERS, *, unreadable_body=False):
    return ErrorRow.of(7, "row id", expired=False, headers=headers, size=4, unreadable_body=unreadable_body)


def test_a_row_is_what_its_headers_tell():
    assert row() == ErrorRow(
        row_version=7,
        kind="failure",
        message_id="m",
        failed_queue='"public"."orders"',
        exception_type="shop.stock.OutOfStock",
        exception_message="nothing left",
        time_of_failure=datetime(2026, 11, 22, 17, 0, tzinfo=UTC),
        bytes=len(HEADERS) + 4,
        ingestion=Ingestion(Verdict.TAKEN),
    )


@pytest.mark.parametrize("text", ["", "no JSON", "null"])
def test_a_row_that_tells_nothing_is_known_by_its_id(text):
    found = row(text, unreadable_body=True)
    assert (
        found.kind,
        found.message_id,
        found.failed_queue,
        found.exception_type,
        found.time_of_failure,
    ) == (
        "failure",
        "row id",
        None,
        None,
        None,
    )
    assert found.stops


def test_of_long_texts_the_beginning_is_kept():
    """All rows that a command lists stand in memory together."""
    names = (
        "NServiceBus.MessageId",
        "NServiceBus.FailedQ",
        f"{EXCEPTION}ExceptionType",
        f"{EXCEPTION}Message",
    )
    found = row(json.dumps({name: letter * 100_000 for name, letter in zip(names, "mqet", strict=True)}))
    assert [found.message_id, found.failed_queue, found.exception_type, found.exception_message] == [
        "m" * 2_000, "q" * 2_000, "e" * 2_000, "t" * 16_384,
    ]  # fmt: skip


def test_acknowledgements_and_control_messages_are_no_failures():
    kinds = [row(each.headers).kind for each in dotnet.rows("servicecontrol/acknowledgement")]
    assert kinds == ["acknowledgement"] * 10
    assert row('{"NServiceBus.ControlMessage":"True"}').kind == "control message"
    assert row('{"NServiceBus.ControlMessage":"True","NServiceBus.FailedQ":"q"}').is_failure


def test_a_failed_message_is_no_acknowledgement_although_servicecontrol_takes_it_for_one():
    found = row(HEADERS[:-1] + ',"ServiceControl.Retry.Successful":"2026-01-01 00:00:00:000000 Z"}')
    assert (found.kind, found.ingestion) == ("failure", Ingestion(Verdict.TAKEN))


@pytest.mark.parametrize(
    "means, fits",
    [
        ({}, True),
        ({"message_ids": frozenset({"n", "m"})}, True),
        ({"message_ids": frozenset({"row id"})}, False),
        ({"exception_type": "shop.stock.OutOfStock"}, True),
        ({"exception_type": "OutOfStock"}, True),
        ({"exception_type": "stock.OutOfStock"}, True),
        ({"exception_type": "Stock"}, False),
        ({"failed_queue": "orders"}, True),
        ({"failed_queue": "orders@[public]@[shop]"}, True),
        ({"failed_queue": "orders@sales"}, False),
        ({"failed_queue": "billing"}, False),
        ({"older_than": timedelta(hours=1)}, True),
        ({"older_than": timedelta(hours=1, seconds=1)}, False),
        ({"newer_than": timedelta(hours=1)}, False),
        ({"newer_than": timedelta(hours=1, seconds=1)}, True),
        ({"stopping": True}, False),
        ({"message_ids": frozenset({"m"}), "exception_type": "Other"}, False),
    ],
)
def test_all_that_is_said_must_fit(means, fits):
    assert Selection(**means).fits(POSTGRESQL, NOW, row()) is fits


def test_what_is_not_told_fits_nothing_that_is_said():
    for means in ({"exception_type": "X"}, {"failed_queue": "orders"}, {"older_than": timedelta(0)}):
        assert not Selection(**means).fits(POSTGRESQL, NOW, row("no JSON"))
    assert Selection(stopping=True).fits(POSTGRESQL, NOW, row("no JSON"))


@pytest.mark.parametrize(
    "naming, one, other, same",
    [
        (POSTGRESQL, '"public"."X.Y"', "X.Y", True),
        (POSTGRESQL, "X.Y", "X.Y@[public]", True),
        (POSTGRESQL, '"a"."X"', '"b"."X"', False),
        (SQLSERVER, "orders@[dbo]@[shop]", "orders", True),
        (SQLSERVER, "orders@[dbo]@[shop]", "orders@dbo@other", False),
        (SQLSERVER, "a@b@c@d", "a@b@c@d", True),
        (SQLSERVER, "a@b@c@d", "a", False),
        (SQLSERVER, None, "a", False),
    ],
)
def test_one_queue_has_many_addresses(naming, one, other, same):
    failed = row("{}" if one is None else json.dumps({"NServiceBus.FailedQ": one}))
    assert Selection(failed_queue=other).fits(naming, NOW, failed) is same
