"""What comes from outside steers no terminal, forges no line of a log, and is one word of a shell."""

import ast
import copy
import json
import logging
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import sqlqueue_spark
from sqlqueue_spark import plain_text
from sqlqueue_spark.cli import output
from sqlqueue_spark.errors import QueueError, why
from sqlqueue_spark.plain_text import for_shell, logger, plain, shell_word

#: A line feed, a carriage return, an escape sequence, an 8-bit one, a bidirectional control, a line
#: separator, a byte that is no UTF-8.
STEERING = "a\nb\rc\x1b[31md\x9b31me\u202ef\u2028g\udcffh"
SHOWN = r"a\nb\rc\x1b[31md\x9b31me\u202ef\u2028g\udcffh"
PLAIN_WORDS = [
    "plain",
    "it's",
    '"s"."t"',
    "a b",
    "$HOME",
    "`x`",
    "back\\slash",
    "x'$(touch forged)",
    "naïve 日本",
]
ODD_WORDS = ["a\nb", "it's\t\\n", "\x1b[31m", "\x9bA", "\u202e'$(touch forged)", "-dashed", "--url=x"]


def test_what_shows_nothing_by_itself_is_shown_as_its_escape():
    assert plain(STEERING) == SHOWN
    assert plain("naïve 日本 'x' \\n") == "naïve 日本 'x' \\n"


def test_an_errors_text_is_one_line_whatever_names_are_in_it():
    error = QueueError(f"There is no queue table {STEERING}; create it.")
    assert str(error) == f"There is no queue table {SHOWN}; create it."
    assert str(copy.copy(error)) == str(error)


def test_the_sentence_of_an_error_of_others_steers_no_terminal():
    assert why(ValueError("no column \x1b[31m\u202ex")) == r"no column \x1b[31m\u202ex"


def test_json_escapes_what_could_steer_a_terminal_and_means_the_same():
    value = {"queue": STEERING, "body": "naïve \U0001f600 \U000e0041"}
    shown = output.as_json(value).decode()
    assert json.loads(shown) == value
    assert shown.isprintable()
    assert "naïve \U0001f600 \\udb40\\udc41" in shown


@pytest.mark.parametrize("name", PLAIN_WORDS + ODD_WORDS)
def test_a_name_in_a_remedy_reaches_the_command_as_it_is(name, tmp_path):
    """And nothing else happens."""
    command = f'sqlqueue() {{ printf "%s\\0" "$@"; }}; sqlqueue create {for_shell(name)}'
    assert command.isprintable()
    done = subprocess.run(
        ["bash", "-c", command], check=True, capture_output=True, cwd=tmp_path, env={"LC_ALL": "C.UTF-8"}
    )
    dashes = ["--"] if name.startswith("-") else []
    assert done.stdout.decode().split("\0") == ["create", *dashes, name, ""]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PLAIN_WORDS)
def test_a_word_of_a_shell_is_always_quoted(name):
    assert shell_word(name)[0] == "'"


def test_a_name_forges_no_line_of_a_log(caplog):
    log = logger("sqlqueue_spark.of_a_test")
    with caplog.at_level(logging.INFO):
        log.warning("not_rehearsed destination=%s", "Billing\nINFO sent=7\x1b[31m")
        log.info("sent=%d", 7)
    assert caplog.messages == [r"not_rehearsed destination=Billing\nINFO sent=7\x1b[31m", "sent=7"]


def test_a_line_of_a_log_is_no_longer_than_people_read(caplog):
    logger("sqlqueue_spark.of_a_test").warning("unreachable destination=%s", "\n" * 100_000)
    assert caplog.messages == ["unreachable destination=" + r"\n" * (8_000 - 24) + "…"]


def test_of_many_warnings_of_one_kind_the_first_of_each_minute_are_written(caplog, monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(plain_text, "time", SimpleNamespace(monotonic=lambda: now[0]))
    log = logger("sqlqueue_spark.of_a_sender")
    for number in range(1_000):
        log.warning("unreachable destination=%s", f"gone{number}")
    log.warning("not_delivered rows=%d", 1)
    assert caplog.messages == [
        *(f"unreachable destination=gone{number}" for number in range(59)),
        "unreachable destination=gone59 (More of this kind are left out until the minute is over.)",
        "not_delivered rows=1",
    ]
    now[0] += 60.0
    log.warning("unreachable destination=%s", "later")
    assert caplog.messages[-1] == "unreachable destination=later"


def test_of_other_lines_each_one_is_written(caplog):
    with caplog.at_level(logging.INFO):
        for number in range(1_000):
            logger("sqlqueue_spark.of_a_batch").info("sent=%d", number)
    assert len(caplog.messages) == 1_000


def test_every_module_logs_through_it():
    package = Path(sqlqueue_spark.__file__).parent
    for file in package.rglob("*.py"):
        if file.name == "plain_text.py":
            continue
        calls = [
            ast.unparse(node) for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
        ]
        assert "logging.getLogger(__name__)" not in calls, file
