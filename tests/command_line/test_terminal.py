"""The command on a terminal and off it: a password is asked for, Ctrl-C says what was done,
bars are for people only.
"""

import contextlib
import json
import os
import re
import select

import psycopg
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL
from tests.conftest import GUARDED_PASSWORD
from tests.support.error_rows import fail, full
from tests.support.messages import message_id, row_id
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
        r"Error: The database at \S+ refused the login of user 'guarded', for whom no password is given; put "
        r"it into the environment \(SQLQUEUE_PASSWORD, and this url as SQLQUEUE_URL\), or give it as "
        r"option password\.\n",
        result.stderr,
    )


def test_the_password_of_the_environment_wins(without_password):
    """The user is not asked."""
    environment = {"SQLQUEUE_PASSWORD": GUARDED_PASSWORD}
    with terminal("length", "orders", "--json", "--url", without_password, environment=environment) as shown:
        assert shown.end() == 0
    assert json.loads(shown.shown)["rows"] == 2


@contextlib.contextmanager
def held_at_the_second_portion(postgresql, event):
    """Within the block the second statement of this kind on the queue waits; gives what waits until it does,
    and what lets it go.
    """
    postgresql.execute(
        "CREATE SEQUENCE portions; "
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF nextval('portions') = 2 THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NULL; "
        f"END $$; CREATE TRIGGER hold AFTER {event} ON orders FOR EACH STATEMENT EXECUTE FUNCTION hold()"
    )
    with psycopg.connect(postgresql.url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(7)")

        def waits():
            eventually(
                lambda: postgresql.fetch("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            )

        yield waits, lambda: holder.execute("SELECT pg_advisory_unlock(7)")


def test_ctrl_c_says_how_many_lines_are_sent(postgresql, tmp_path):
    """It waits for the portion under way, and the rest can be sent."""
    queue = postgresql.create_queue()
    file = tmp_path / "lines.jsonl"
    file.write_text(
        "".join(f'{{"id": "{row_id(number)}", "headers": {{}}, "body": ""}}\n' for number in range(9_000))
    )
    with (
        held_at_the_second_portion(postgresql, "INSERT") as (waits, go_on),
        terminal("send", "orders", "--from", str(file), "--url", postgresql.url) as shown,
    ):
        waits()
        shown.type(CTRL_C)
        shown.until("Ends after the portion under way; Ctrl-C again ends at once.")
        go_on()
        assert shown.end() == 130
    assert "sent before: 8,000 messages; send the rest with --skip 8000\r\n" in shown.shown
    assert "lines [" in shown.shown  # the bar of those that were checked
    assert queue.count() == 8_000
    rest = CliRunner().invoke(
        main, ["send", "orders", "--from", str(file), "--skip", "8000", "--url", postgresql.url]
    )
    assert (queue.count(), rest.exit_code, rest.stderr) == (9_000, 0, "")  # off a terminal there is no bar


def test_a_purge_that_is_interrupted_says_how_much_it_deleted(postgresql):
    """A second Ctrl-C does not wait; what was not committed is still there."""
    portion = POSTGRESQL.written
    queue = postgresql.create_queue()
    queue.insert(3 * portion)
    with (
        held_at_the_second_portion(postgresql, "DELETE") as (waits, _),
        terminal("purge", "orders", "--yes", "--url", postgresql.url) as shown,
    ):
        waits()
        shown.type(CTRL_C)
        shown.until("Ctrl-C again ends at once.")
        shown.type(CTRL_C)
        assert shown.end() == 130
    said = f"deleted before: {portion:,} messages; the portion under way may be deleted too\r\n"
    assert said in shown.shown
    assert queue.count() == 2 * portion


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


def test_a_watch_says_at_its_end_how_many_rows_fit(postgresql):
    queue = postgresql.create_queue()
    chosen = ("--count", "1", "--header", "tenant=north", "--url", postgresql.url)
    with terminal("peek", "orders", "--follow", *chosen) as shown:
        shown.until("watching orders; Ctrl-C ends it")
        for number, tenant in enumerate(["south", "north"]):
            queue.insert_row(id=row_id(number), headers=json.dumps({"tenant": tenant}), body=b"")
        assert shown.end() == 0
    assert "looked at 2 rows of orders, of which 1 fits" in shown.shown


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
            shown.until("rows [")  # a bar says how far it came
            eventually(lambda: not select.select([], [writer], [], 0)[1])  # the pipe is full
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


def test_tables_are_no_wider_than_the_terminal(postgresql):
    """The last columns stand below; no word is broken. A pipe has each row in one line."""
    error = postgresql.create_queue("error")
    fail(
        error,
        range(1),
        full(postgresql),
        kind="Company.Of.Many.Names.That.Nobody.Can.Remember.OutOfStockException",
    )
    error.insert_row(id=row_id(1), headers="no JSON", body=b"x")
    lines = CliRunner().invoke(main, ["errors", "list", "--url", postgresql.url]).stdout.splitlines()
    assert max(map(len, lines)) > 190
    with terminal("errors", "list", "--url", postgresql.url, columns=80) as shown:
        assert shown.end() == 0
    # The bar before them is written over.
    narrow = [line.rsplit("\r", 1)[-1] for line in shown.shown.split("\r\n")]
    assert [re.sub(r"20\d\d-\S+ \S+Z", "TIME", line) for line in narrow[:13]] == [
        "number  failed                message id",
        "        failed queue",
        "        exception type",
        "        message",
        f"1       TIME  {message_id(0)}",
        '        "public"."orders"',
        "        Company.Of.Many.Names.That.Nobody.Can.Remember.OutOfStockException",
        "        nothing left",
        f"2                             {row_id(1)}",
        "        -",
        "        -",
        f"{' ' * 22}stops ServiceControl: its headers are no JSON",
        "",
    ]


@pytest.mark.parametrize("command", [("retry",), ("discard", "--to-file", "rows.jsonl")])
def test_a_plan_that_takes_long_shows_how_many_rows_it_has_looked_at(
    postgresql, tmp_path, monkeypatch, command
):
    """Then it asks; where the answer is another one, nothing is done."""
    monkeypatch.chdir(tmp_path)
    postgresql.create_queue("orders")
    error = postgresql.create_queue("error")
    fail(error, range(3), full(postgresql))
    with terminal("errors", *command, "--url", postgresql.url) as shown:
        shown.until("to go on, type the queue's name")
        shown.type("no\n")
        assert shown.end() == 1
    assert " rows [" in shown.shown
    assert (error.count(), list(tmp_path.iterdir())) == (3, [])


def test_a_count_that_waits_shows_a_clock(postgresql):
    queue = postgresql.create_queue()
    queue.insert(1)
    with psycopg.connect(postgresql.url) as holder:
        holder.execute('LOCK TABLE "orders"')
        with terminal("length", "orders", "--url", postgresql.url) as shown:
            shown.until(re.compile("counting orders: 00:0[1-9]"))  # a busy machine may leave a second out
            holder.rollback()
            assert shown.end() == 0
    assert re.search(r"rows +1\r\n", shown.shown)
