"""What others write into tables and messages steers no terminal, and JSON keeps each letter of it."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

import sqlqueue_spark.cli
from sqlqueue_spark.cli import main
from tests.support.error_rows import fail, failed, failure
from tests.support.messages import body, row_id
from tests.support.subscriptions import SubscriptionRows

#: The title of a terminal, a carriage return, a bidirectional control, an 8-bit one.
STEERING = "\x1b]0;x\x07\r\u202e\x9b"
NAME = f"q{STEERING}"
#: They run Spark, servers or shells, or print what is run and not read.
ELSEWHERE = {
    *("drain", "forward", "handle", "archive", "store-and-forward", "demo", "options", "completion"),
    *("server start", "server stop", "server status", "server url", "server remove"),
    *("script", "outbox script", "delayed script"),
}
#: What each command is called with, the first one first.
CALLS = (
    ("create",),
    ("outbox create",),
    ("delayed create",),
    ("subscribe", "Shop.Placed"),
    ("subscribe", f"Shop.Placed{STEERING}", "--endpoint", f"e{STEERING}"),
    ("subscriptions",),
    ("subscriptions", "--json"),
    ("send", "--type", f"t{STEERING}"),
    ("list",),
    ("list", "--json"),
    ("list", "--exact"),
    ("inspect",),
    ("inspect", "--json"),
    ("doctor",),
    ("doctor", "--json"),
    ("length",),
    ("length", "--json"),
    ("length", "--max-rows", "0"),
    ("length", "--max-age", "1s", "--json"),
    ("peek",),
    ("peek", "--bodies"),
    ("peek", "--whole"),
    ("peek", "--json"),
    ("peek", "--type", f"t{STEERING}"),
    ("outbox report",),
    ("outbox report", "--json"),
    ("outbox cleanup", "--yes"),
    ("delayed length",),
    ("delayed length", "--json"),
    ("delayed run", "--once"),
    ("errors list",),
    ("errors list", "--json"),
    ("errors show", "--row-version", "1"),
    ("errors show", "--row-version", "1", "--json"),
    ("errors show", "--row-version", "2"),
    ("errors retry", "--dry-run"),
    ("errors retry", "--yes"),
    ("errors retry",),
    ("errors discard", "--yes", "--to-file"),
    ("errors discard", "--to-file"),
    ("unsubscribe", "Shop.Placed"),
    ("unsubscribe", f"Shop.Placed{STEERING}", "--endpoint", f"e{STEERING}"),
    ("purge",),
    ("purge", "--yes"),
    ("length", "--default-schema", f"gone{STEERING}"),
)


def commands(group, before=""):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} ")
        else:
            yield f"{before}{name}"


def test_each_command_is_run_or_prints_nothing_of_others():
    assert {call[0] for call in CALLS} == set(commands(main)) - ELSEWHERE
    assert len({call[0] for call in CALLS}) == 21


def test_only_one_module_writes_for_the_commands():
    written = {
        file.name
        for file in Path(sqlqueue_spark.cli.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho", "print")
    }
    assert written == {"output.py"}


@pytest.fixture
def steering(postgresql):
    """A database in which each kind of text steers, also in its error queue."""
    SubscriptionRows(postgresql).create()
    postgresql.create_queue("error")
    queue = postgresql.create_queue(NAME)
    headers = {"NServiceBus.MessageId": NAME, "NServiceBus.EnclosedMessageTypes": NAME, NAME: NAME}
    text = STEERING.replace("\x1b", "").replace("\x07", "")  # else it is shown as hexadecimal digits
    queue.insert_row(id=row_id(1), headers=json.dumps(headers), body=f"{text}\n{text}".encode())
    errors = postgresql.queue("error")
    told = {**failure(NAME, kind=f"shop.{NAME}"), "NServiceBus.ExceptionInfo.Message": STEERING}
    told |= {"NServiceBus.MessageId": NAME, "NServiceBus.ExceptionInfo.StackTrace": f"at {NAME}\n{NAME}"}
    errors.insert_row(id=row_id(1), headers=failed(1, told), body=body(1))
    errors.insert_row(id=row_id(2), headers=f"no JSON {STEERING}", body=None)
    fail(errors, range(3, 4), f'"public"."{NAME}"')
    statement = sql.SQL(
        "CREATE DOMAIN {type} AS int; ALTER TABLE {table} ADD COLUMN {column} {type}; "
        "CREATE INDEX {index} ON {table} ({column}) WHERE {column} > 0"
    )
    names = {"table": NAME, "type": f"t{STEERING}", "column": f"x{STEERING}", "index": f"n{STEERING}"}
    with psycopg.connect(postgresql.url) as connection:
        connection.execute(statement.format(**{name: sql.Identifier(each) for name, each in names.items()}))
    return postgresql


def arguments(call, tmp_path):
    name, *more = call
    queue = [] if name in ("list", "subscriptions") else ["error" if name.startswith("errors") else NAME]
    if more[-1:] == ["--to-file"]:
        more.append(str(tmp_path / "file"))
    return [*name.split(), *queue, *more]


def test_no_text_of_others_steers_the_terminal(steering, tmp_path):
    shown = []
    for call in CALLS:
        given = arguments(call, tmp_path)
        done = CliRunner(env={"SQLQUEUE_URL": steering.url}).invoke(main, given, input="no\n")
        assert done.exception is None or isinstance(done.exception, SystemExit), (call, done.exception)
        assert done.exit_code != 2, (call, done.stderr)
        for text in (done.stdout, done.stderr):
            assert text.replace("\n", "").isprintable(), (call, text)
        shown.append(done.stdout + done.stderr)
    assert r"\x1b]0;x\x07\r\u202e\x9b" in "".join(shown)


@pytest.mark.parametrize(
    "given",
    [["length", NAME, "--max-age", STEERING], [NAME], ["doctor", NAME, NAME], ["create", NAME, f"--{NAME}"]],
)
def test_what_click_itself_refuses_steers_no_terminal(given):
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 2
    assert done.stderr.replace("\n", "").isprintable()


def test_no_trace_steers_the_terminal(postgresql):
    """The server's words repeat what a table says: of --debug, and of an error that is none of ours."""
    queue = postgresql.create_queue(NAME)
    queue.execute("ALTER TABLE {table} ADD CONSTRAINT shut CHECK (false)")
    command = [sys.executable, "-m", "sqlqueue_spark", "send", NAME, "--type", "X", "--debug"]
    environment = {**os.environ, "SQLQUEUE_URL": postgresql.url}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr.startswith("Traceback (most recent call last):\n")) == (1, True)
    assert r"\x1b]0;x\x07" in done.stderr
    assert done.stderr.replace("\n", "").isprintable()


def test_json_keeps_each_character_on_its_way_out_and_in(steering):
    env = {"SQLQUEUE_URL": steering.url}
    lines = CliRunner(env=env).invoke(main, ["peek", NAME, "--json", "--all"]).stdout
    assert lines.replace("\n", "").isprintable()
    steering.create_queue("copy")
    sent = CliRunner(env=env).invoke(main, ["send", "copy", "--from", "-"], input=lines)
    assert (sent.exit_code, sent.stdout) == (0, "sent 1 message to copy\n")
    copied, original = (
        [(row.id, row.headers, row.body) for row in steering.queue(name).rows()] for name in ("copy", NAME)
    )
    assert copied == original
