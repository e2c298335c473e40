"""What people see of messages: a table that grows, and bodies beneath it."""

import json
from dataclasses import replace

import pytest

from sqlqueue_spark.cli import message_output, text_table
from sqlqueue_spark.cli.message_output import Bodies, MessageTable, beginning, body_line, whole_body
from sqlqueue_spark.tables.queue_admin import Message


def message(number, message_type="Shop.OrderPlaced, Shop", body: bytes | None = b"{}", **more):
    headers = {
        "NServiceBus.MessageId": f"id-{number}",
        "NServiceBus.EnclosedMessageTypes": message_type,
        "NServiceBus.TimeSent": "2025-11-20 08:15:30:123456 Z",
    }
    return Message(
        id="00000000-0000-4000-8000-00000000000a",
        correlation_id=None,
        reply_to_address=None,
        recoverable=None,
        expires=None,
        headers=json.dumps(headers),
        body=body,
        row_version=number,
        **{"expired": False, **more},
    )


def test_a_table_grows_while_messages_come():
    """Its heads stand there once, and its columns become no narrower."""
    table = MessageTable()
    assert [*table.lines([message(1), message(2, expired=True, body=None)])] == [
        "number  sent                  message id  type              body",
        "1       2025-11-20 08:15:30Z  id-1        Shop.OrderPlaced  2 B",
        "2       2025-11-20 08:15:30Z  id-2        Shop.OrderPlaced  none  expired",
    ]
    assert [*table.lines([message(3, "T")])] == [
        "3       2025-11-20 08:15:30Z  id-3        T                 2 B"
    ]


def test_a_time_of_another_form_is_shown_as_it_is():
    odd = replace(message(1), headers=json.dumps({"NServiceBus.TimeSent": "yesterday"}))
    assert [*MessageTable().lines([odd])][1] == f"1       yesterday  {odd.id}        2 B"


@pytest.fixture
def terminal(monkeypatch):
    def wide(columns):
        for module in (message_output, text_table):
            monkeypatch.setattr(module, "terminal_width", lambda: columns)

    return wide


def test_a_narrow_terminal_has_the_last_columns_below(terminal):
    """All values stay whole, so that they can be copied.

    Messages that come later stand in the same columns.
    """
    terminal(80)
    table = MessageTable()
    assert [*table.lines([message(1, f"{'Company.Of.Many.Names.' * 2}OrderPlaced, Shop")])] == [
        "number  sent                  message id",
        f"        type{' ' * 53}body",
        "1       2025-11-20 08:15:30Z  id-1",
        "        Company.Of.Many.Names.Company.Of.Many.Names.OrderPlaced  2 B",
    ]
    assert [*table.lines([message(2, expired=True)])] == [
        "2       2025-11-20 08:15:30Z  id-2",
        f"        Shop.OrderPlaced{' ' * 41}2 B   expired",
    ]


def test_a_message_of_usual_values_has_two_lines_on_a_terminal_of_80_columns(terminal):
    terminal(80)
    usual = replace(message(41_200), headers=json.dumps({
        "NServiceBus.MessageId": "698acc65-6517-42d5-a09e-78ebd981a74e",
        "NServiceBus.EnclosedMessageTypes": "Shop.Orders.OrderPlaced, Shop",
        "NServiceBus.TimeSent": "2025-11-20 08:15:30:123456 Z",
    }))  # fmt: skip
    assert [*MessageTable().lines([usual])] == [
        "number  sent                  message id",
        "                              type                     body",
        "41200   2025-11-20 08:15:30Z  698acc65-6517-42d5-a09e-78ebd981a74e",
        "                              Shop.Orders.OrderPlaced  2 B",
    ]


@pytest.mark.parametrize(
    "body,width,shown",
    [
        (None, None, "(no body: NULL)"),
        (b"", None, "(empty)"),
        (b'{"a":1}', None, '{"a":1}'),
        (b"\xef\xbb\xbf<a>\r\n  <b/>\t</a>\n", None, "<a> <b/> </a>"),
        ("größe \U0001f4e6".encode(), None, "größe \U0001f4e6"),
        (b"\xff\x00\x1b", None, "hex ff001b"),
        (b"a\x1b[31mb", None, "hex 611b5b33316d62"),
        ("a\u202eb\u009bc".encode(), None, r"a\u202eb\x9bc"),
        (b"0123456789", 10, "0123456789"),
        (b"0123456789a", 10, "012345678…"),
        (b"\xff" * 9, 10, "hex fffff…"),
        (b"x" * 3_000, None, "x" * 1_999 + "…"),
        (b"\xff" * 3_000, None, "hex " + "f" * 1_995 + "…"),
        (b" " * 20_000, 10, "…"),
        ("ä".encode() * 5_000, 10, "äääääääää…"),
        (b"x" + "ä".encode() * 5_000, 10, "xääääääää…"),
    ],
)
def test_the_beginning_of_a_body_is_one_harmless_line(body, width, shown):
    assert beginning(body, width) == shown


@pytest.mark.parametrize(
    "body,lines",
    [
        (None, ["(no body: NULL)"]),
        (b"", ["(empty)"]),
        (b"one\n\ttwo\r\n", ["one", "        two"]),
        (b"x" * 5_000, ["x" * 5_000]),
        (bytes(range(40)), ["hex " + bytes(range(32)).hex(), "hex " + bytes(range(32, 40)).hex()]),
    ],
)
def test_a_whole_body_has_its_lines(body, lines):
    assert [*whole_body(body)] == lines


def test_a_body_alone_is_as_it_is_but_on_a_terminal(terminal):
    """There it steers nothing."""
    steering = [b"\x1b[31m", "a\u202eb\n\u009bc".encode(), None]
    assert [*map(body_line, steering)] == [b"\x1b[31m\n", "a\u202eb\n\u009bc\n".encode(), b"\n"]
    terminal(80)
    shown = [b"hex 1b5b33316d\n", rb"a\u202eb" + b"\n" + rb"\x9bc" + b"\n", b"(no body: NULL)\n"]
    assert [*map(body_line, steering)] == shown


def test_bodies_stand_beneath_their_messages(terminal):
    two = [message(1, body=b'{"a": "long enough"}'), message(2, body=b"a\nb")]
    rows = ["1       2025-11-20 08:15:30Z  id-1        Shop.OrderPlaced  20 B",
            "2       2025-11-20 08:15:30Z  id-2        Shop.OrderPlaced  3 B"]  # fmt: skip
    _, *whole = MessageTable(Bodies.WHOLE).lines(two)
    assert whole == [rows[0], '  {"a": "long enough"}', rows[1], "  a", "  b"]
    terminal(14)
    said = [*MessageTable(Bodies.BEGINNING).lines(two)]
    assert [line for line in said if line.startswith("  ") and line[2] != " "] == ['  {"a": "long…', "  a b"]
