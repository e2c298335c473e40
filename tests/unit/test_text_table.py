"""Tables for people: on a terminal no wider than it is, elsewhere a line for each row."""

import pytest

from sqlqueue_spark.cli import output, text_table
from sqlqueue_spark.inspection.doctor import Check, State

HEADS = ("number", "id", "exception type", "message", "")
ROW = (
    "7",
    "0a1b2c3d",
    "Company.Of.Many.Names.TimeoutException",
    "The database did not answer within 30 s",
    "",
)
PROBLEM = (
    "8",
    "4e5f6a7b",
    "KeyError",
    "Region",
    "stops ServiceControl: the header TimeOfFailure is no time that it reads",
)


@pytest.fixture
def table(monkeypatch):
    def lines(rows, width, heads=HEADS):
        monkeypatch.setattr(text_table, "terminal_width", lambda: width)
        return list(text_table.TextTable(*heads).lines(rows))

    return lines


def test_off_a_terminal_each_row_is_a_line(table):
    assert table([ROW, PROBLEM], None) == [
        "number  id        exception type                          message",
        "7       0a1b2c3d  Company.Of.Many.Names.TimeoutException  The database did not answer within 30 s",
        f"8       4e5f6a7b  KeyError                                Region{' ' * 35}{PROBLEM[-1]}",
    ]


def test_a_wide_terminal_changes_nothing(table):
    rows = [ROW, PROBLEM]
    assert table(rows, 300) == table(rows, None)


def test_the_last_column_goes_on_below_itself(table):
    assert table([PROBLEM], 80) == [
        "number  id        exception type  message",
        "8       4e5f6a7b  KeyError        Region   stops ServiceControl: the header",
        "                                           TimeOfFailure is no time that it",
        "                                           reads",
    ]


def test_the_last_columns_stand_below_one_another(table):
    """No word is broken, and ids and names stay whole, so that they can be copied."""
    assert table([ROW, PROBLEM], 62) == [
        "number  id        exception type",
        "                  message",
        "7       0a1b2c3d  Company.Of.Many.Names.TimeoutException",
        "                  The database did not answer within 30 s",
        "8       4e5f6a7b  KeyError",
        "                  Region",
        "                  stops ServiceControl: the header",
        "                  TimeOfFailure is no time that it reads",
    ]


def test_what_stands_below_stands_side_by_side_where_it_fits(table):
    """Each column in its own place, as wide as its widest value."""
    heads = ("number", "id", "queue", "type", "message", "")
    rows = [("1", "i" * 36, "注文", "Late", "nothing left", ""), ("2", "i" * 36, "orders", "Lost", "", "odd")]
    assert table(rows, 60, heads) == [
        f"number  id{' ' * 36}queue   type",
        f"{' ' * 46}message",
        f"1       {'i' * 36}  注文    Late",
        f"{' ' * 46}nothing left",
        f"2       {'i' * 36}  orders  Lost",
        f"{' ' * 46}odd",
    ]


def test_only_a_word_that_is_wider_than_the_terminal_is_broken(table):
    """The first column leaves room to the others. A terminal of less than 60 columns gets lines of 60."""
    assert table([("n" * 40, "a-b " * 8 + "x" * 30)], 10, ("name", "text")) == [
        "name                                text",
        f"{'n' * 34}  a-b a-b a-b a-b a-b a-b",
        f"{'n' * 6}{' ' * 30}a-b a-b xxxxxxxxxxxxxxxx",
        f"{' ' * 36}{'x' * 14}",
    ]


def test_no_value_is_read_as_another(table):
    """A table that knows numbers, truth values and separators writes texts as they are."""
    rows = [("007", "False"), ("1e3", "\x01"), ("  x", "")]
    assert table(rows, 60, ("", "")) == ["007  False", "1e3  \\x01", "  x"]


def test_wide_letters_take_two_columns(table):
    assert table([("注文", "x"), ("a", "y")], None, ("q", "")) == ["q", "注文  x", "a     y"]


@pytest.mark.parametrize("width", [None, 80])
def test_a_long_cell_makes_no_line_long(table, width):
    _, *lines = table([("7", "ü" * 1_000_000, "A", "B", ""), ROW], width)
    assert sum(map(len, lines)) < 2_000
    assert "".join(lines).count("ü") == 499
    assert "ü…" in "".join(lines)


def test_what_a_check_says_goes_on_below_itself(monkeypatch, capsys):
    monkeypatch.setattr(text_table, "terminal_width", lambda: 60)
    said = "There is no Java; install one of version 17 or 21, or set JAVA_HOME."
    output.show_check(False, Check(name="java", state=State.WRONG, said=said))
    assert capsys.readouterr().out.splitlines() == [
        "✗ java        There is no Java; install one of version 17 or",
        "              21, or set JAVA_HOME.",
    ]


def test_what_a_check_says_is_whole(capsys):
    """The remedy stands at its end."""
    said = f"A driver says {'much ' * 400}; install another one."
    output.show_check(False, Check(name="driver", state=State.WRONG, said=said))
    assert capsys.readouterr().out.split() == ["✗", "driver", *said.split()]


def test_a_stdout_that_was_closed_is_no_terminal(monkeypatch):
    """As behind `>&-` of a shell."""
    monkeypatch.setattr("sys.stdout", None)
    assert text_table.terminal_width() is None
