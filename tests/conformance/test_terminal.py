"""The command on a terminal and off it: a password is asked for, Ctrl-C says what was done, bars are for people only."""

import json
import os
import re

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from tests.conftest import GUARDED_PASSWORD
from tests.support.messages import row_id
from tests.support.terminal import CTRL_C, terminal
from tests.support.waiting import eventually


@pytest.fixture
def without_password(postgresql, guarded_url):
    """The url of a login that needs a password, without it."""
    postgresql.create_queue().insert(2)
    postgresql.execute("GRANT SELECT ON orders TO guarded")
    return re.sub(r"guarded:[^@]*@", "guarded@", guarded_url)


def test_on_a_terminal_a_password_is_asked_for(without_password):
    """It is not echoed."""
    with terminal("length", "orders", "--json", "--user", "guarded", "--url", without_password) as shown:
        shown.until(": ")
        shown.type(f"{GUARDED_PASSWORD}\n")
        assert shown.end() == 0
    question, answer = shown.shown.split(": ", 1)
    assert re.fullmatch(r"Password of guarded at 127\.0\.0\.1:\d+", question)
    assert json.loads(answer)["rows"] == 2
    assert GUARDED_PASSWORD not in shown.shown


def test_off_a_terminal_the_remedy_is_said(without_password):
    result = CliRunner().invoke(main, ["length", "orders", "--url", without_password])
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(
        r"Error: The database at \S+ refused the login of user 'guarded', for whom no password is given; put it into the environment "
        r"\(SQLQUEUE_PASSWORD, and this url as SQLQUEUE_URL\), or give it as option password\.\n",
        result.stderr,
    )


def test_the_password_of_the_environment_wins(without_password):
    """Nobody is asked."""
    environment = {"SQLQUEUE_PASSWORD": GUARDED_PASSWORD}
    with terminal("length", "orders", "--json", "--url", without_password, environment=environment) as shown:
        assert shown.end() == 0
    assert json.loads(shown.shown)["rows"] == 2


def test_ctrl_c_says_how_many_lines_are_sent(postgresql, tmp_path):
    """It waits for the portion under way, and the rest can be sent."""
    queue = postgresql.create_queue()
    count = 40_000
    file = tmp_path / "lines.jsonl"
    with file.open("w") as out:
        for number in range(count):
            out.write(f'{{"id": "{row_id(number)}", "headers": {{}}, "body": ""}}\n')
    with terminal("send", "orders", "--from", str(file), "--url", postgresql.url) as shown:
        eventually(lambda: queue.count() > 0)
        shown.type(CTRL_C)
        assert shown.end() == 130
    assert "Ends after the portion under way; Ctrl-C again ends at once." in shown.shown
    said = re.search(r"sent before: ([\d,]+) messages; send the rest with --skip (\d+)\r\n", shown.shown)
    assert said
    assert (int(said[1].replace(",", "")), int(said[2])) == (queue.count(), queue.count())
    assert 0 < queue.count() < count
    assert "lines [" in shown.shown  # the bar of those that were checked
    rest = CliRunner().invoke(
        main, ["send", "orders", "--from", str(file), "--skip", said[2], "--url", postgresql.url]
    )
    assert (queue.count(), rest.exit_code, rest.stderr) == (count, 0, "")  # off a terminal there is no bar


def test_ctrl_c_ends_a_watch_cleanly(postgresql):
    queue = postgresql.create_queue()
    queue.insert(1)
    with terminal("peek", "orders", "--follow", "--url", postgresql.url) as shown:
        shown.until("watching orders; Ctrl-C ends it")
        queue.insert(1, start=1)
        shown.until("OrderPlaced")
        shown.type(CTRL_C)
        assert shown.end() == 0
    assert "Traceback" not in shown.shown
    assert len(re.findall(r"^2 ", shown.shown, re.MULTILINE)) == 1


def test_a_watch_ends_with_its_count(postgresql):
    """And as JSON it goes through a pipe message by message."""
    queue = postgresql.create_queue()
    reader, writer = os.pipe()
    command = ("peek", "orders", "--follow", "--json", "--count", "2", "--url", postgresql.url)
    with os.fdopen(reader, "rb") as lines, terminal(*command, stdout=writer) as shown:
        os.close(writer)
        shown.until("watching orders; Ctrl-C ends it")
        for number in range(2):
            queue.insert(1, start=number)
            assert json.loads(lines.readline())["rowVersion"] == number + 1
        assert (shown.end(), lines.read()) == (0, b"")


def test_ctrl_c_in_a_look_is_exit_code_130(postgresql):
    """A look changes nothing, so it ends at once."""
    queue = postgresql.create_queue()
    queue.insert(1)
    with queue.session() as session:
        session.lock(1)
        postgresql.execute("SELECT 1")
        reader, writer = os.pipe()
        queue.insert(30_000, start=1, size=1_000)
        with terminal("peek", "orders", "--all", "--json", "--url", postgresql.url, stdout=writer) as shown:
            shown.until("rows [")  # the pipe is full, and a bar says how far it came
            shown.type(CTRL_C)
            assert shown.end() == 130
        os.close(reader)
        os.close(writer)
    assert "Traceback" not in shown.shown


def test_a_terminal_has_lines_as_wide_as_itself(postgresql):
    queue = postgresql.create_queue()
    queue.insert(1, size=500)
    with terminal("peek", "orders", "--bodies", "--url", postgresql.url, columns=120) as shown:
        assert shown.end() == 0
    lines = shown.shown.splitlines()
    assert (len(lines[2]), lines[2][-1]) == (120, "…")
    piped = CliRunner().invoke(main, ["peek", "orders", "--bodies", "--url", postgresql.url])
    assert len(piped.stdout.splitlines()[2]) == 502


def test_a_purge_that_is_interrupted_says_how_much_it_deleted(postgresql):
    queue = postgresql.create_queue()
    queue.insert(40_000)
    with terminal("purge", "orders", "--yes", "--url", postgresql.url) as shown:
        eventually(lambda: queue.count() < 40_000)
        shown.type(CTRL_C)
        assert shown.end() == 130
    said = re.search(r"deleted before: ([\d,]+) messages\r\n", shown.shown)
    assert said
    assert int(said[1].replace(",", "")) == 40_000 - queue.count() > 0
