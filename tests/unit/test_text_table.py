"""Tables for people: on a terminal no wider than it is, elsewhere as wide as they come."""

import pytest

from sqlqueue_spark.cli import text_table

HEADS = ("number", "id", "exception type", "message", "")
ROW = (
    "7",
    "0a1b2c3d",
    "Company.Of.Many.Names.TimeoutException",
    "The database did not answer within 30 s",
    "",
)
PROBLEM = ("8", "4e5f6a7b", "KeyError", "Region", "stops ServiceControl: the header TimeOfFailure is no time that it reads")  # fmt: skip


@pytest.fixture
def table(monkeypatch):
    def lines(rows, width, **more):
        monkeypatch.setattr(text_table, "terminal_width", lambda: width)
        return list(text_table.table(HEADS, rows, names=(2,), texts=(3,), **more))

    return lines


def test_off_a_terminal_lines_are_as_long_as_they_come(table):
    _, line = table([ROW], None)
    assert (
        line
        == "7       0a1b2c3d  Company.Of.Many.Names.TimeoutException  The database did not answer within 30 s"
    )


def test_a_wide_terminal_changes_nothing(table):
    rows = [ROW, PROBLEM]
    assert table(rows, 300) == table(rows, None)


def test_names_lose_their_beginnings_and_texts_their_ends(table):
    """Ids stay whole, so that they can be copied."""
    heads, line = table([ROW], 62)
    assert heads == "number  id        exception type         message"
    assert line == "7       0a1b2c3d  …mes.TimeoutException  The database did not…"
    assert len(line) <= 62


def test_no_column_becomes_too_narrow_to_be_read(table):
    assert table([ROW], 20) == [
        "number  id        exception type    message",
        "7       0a1b2c3d  …imeoutException  The database di…",
    ]


def test_the_last_column_goes_on_below_itself(table):
    assert table([PROBLEM], 80) == [
        "number  id        exception type  message",
        "8       4e5f6a7b  KeyError        Region   stops ServiceControl: the header",
        "                                           TimeOfFailure is no time that it",
        "                                           reads",
    ]


def test_what_people_copy_stays_whole(table):
    assert table([ROW, PROBLEM], 20, whole=True) == table([ROW, PROBLEM], None)


@pytest.mark.parametrize("width", [None, 80])
def test_a_long_cell_makes_no_other_line_long(table, width):
    _, long, short = table([("7", "x" * 100_000, "A", "B", ""), ROW], width)
    assert (len(long) > 100_000, len(short) < 1_000) == (True, True)
