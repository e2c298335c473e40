"""Which messages a user selects by types, ids and headers."""

import json

import pytest

from sqlqueue_spark.messages.message_selection import MessageSelection

ROW = "00000000-0000-4000-8000-00000000000a"
ORDER = json.dumps({
    "NServiceBus.MessageId": "m-1",
    "NServiceBus.EnclosedMessageTypes": "Shop.OrderPlaced, Shop, Version=1.0.0.0;Shop.IEvent, Shop",
    "tenant": "north",
    "empty": "",
})  # fmt: skip


def of(**wanted):
    sets = {name: frozenset(wanted[name]) for name in ("types", "ids") if name in wanted}
    return MessageSelection(headers=tuple(wanted.get("headers", ())), **sets)


@pytest.mark.parametrize(
    "wanted,fits",
    [
        ({}, True),
        ({"types": ["Shop.OrderPlaced"]}, True),
        ({"types": ["OrderPlaced"]}, True),
        ({"types": ["Shop.IEvent"]}, True),
        ({"types": ["Placed"]}, False),
        ({"types": ["shop.orderplaced"]}, False),
        ({"types": ["Other", "IEvent"]}, True),
        ({"ids": ["m-1"]}, True),
        ({"ids": [ROW]}, True),
        ({"ids": [ROW.upper()]}, True),
        ({"ids": ["m-2"]}, False),
        ({"headers": [("tenant", None)]}, True),
        ({"headers": [("tenant", "north")]}, True),
        ({"headers": [("tenant", "South")]}, False),
        ({"headers": [("empty", "")]}, True),
        ({"headers": [("missing", None)]}, False),
        ({"headers": [("tenant", "north"), ("missing", None)]}, False),
        ({"types": ["OrderPlaced"], "headers": [("tenant", "south")]}, False),
        ({"types": ["OrderPlaced"], "ids": ["m-1"], "headers": [("tenant", "north")]}, True),
    ],
)
def test_what_is_said_narrows(wanted, fits):
    assert of(**wanted).fits(ROW, ORDER) is fits


@pytest.mark.parametrize("headers", [None, "", "null", "no json", "[1]", '{"a":["nested"]}'])
def test_a_row_whose_headers_tell_nothing_fits_by_its_id_only(headers):
    assert of(ids=[ROW]).fits(ROW, headers)
    assert not of(types=["T"]).fits(ROW, headers)
    assert not of(headers=[("a", None)]).fits(ROW, headers)
    assert not of(ids=["m-1"]).fits(ROW, headers)
