"""What the command prints of names from outside: its remedies run as they stand,
and nothing steers the terminal.
"""

import json
import re
import subprocess

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from tests.support.sending import PLAIN

HOSTILE = ["x'$(touch forged)", "a\n$(touch forged)", "\u202e`touch f`\x1b[3m", "--yes"]


def run(engine, *arguments):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, [*arguments])


def obeyed(engine, tmp_path, message):
    """What pasting the remedy of a message into a shell does: the arguments of the command,
    which is then run on them.
    """
    assert message.isprintable()
    (remedy,) = re.findall(r"with: (sqlqueue .*?)(?:, or .*|\.)$", message)
    program = f'sqlqueue() {{ printf "%s\\0" "$@"; }}; {remedy}'
    done = subprocess.run(
        ["bash", "-c", program], check=True, capture_output=True, cwd=tmp_path, env={"LC_ALL": "C.UTF-8"}
    )
    assert list(tmp_path.iterdir()) == []
    arguments = done.stdout.decode().split("\0")[:-1]
    assert run(engine, *arguments).exit_code == 0
    return arguments[-1]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_remedy_for_a_missing_queue_creates_that_queue(postgresql, tmp_path, name):
    refused = run(postgresql, "length", "--", name)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert obeyed(postgresql, tmp_path, refused.stderr.removesuffix("\n")) == name
    shown = run(postgresql, "length", "--", name)
    assert (shown.exit_code, shown.stdout.replace("\n", "").isprintable()) == (0, True)
    assert "\x1b" not in run(postgresql, "create", "--", name).stdout


@pytest.mark.parametrize("name", HOSTILE)
def test_the_remedy_for_a_missing_destination_creates_it(postgresql, tmp_path, name):
    options = SinkOptions(url=postgresql.url, outbox="none")
    with pytest.raises(QueueError) as error:
        prepare(Destinations(options), PLAIN, [name])
    message = str(error.value).removesuffix(" Nothing of this batch was sent.")
    assert obeyed(postgresql, tmp_path, message) == name
    prepare(Destinations(options), PLAIN, [name])


@pytest.mark.parametrize("endpoint", HOSTILE)
def test_the_remedies_for_a_missing_outbox_create_it(postgresql, tmp_path, endpoint):
    options = SinkOptions(url=postgresql.url, queue="orders", endpoint=endpoint)
    postgresql.create_queue()
    with pytest.raises(QueueError) as error:
        prepare(Destinations(options), PLAIN, ["orders"])
    remedy = str(error.value)
    with pytest.raises(QueueError) as error:
        outbox_tables.report(ConnectionOptions(url=postgresql.url), endpoint)
    assert obeyed(postgresql, tmp_path, str(error.value)) == endpoint
    assert obeyed(postgresql, tmp_path, remedy) == endpoint
    prepare(Destinations(options), PLAIN, ["orders"])


def test_the_doctors_remedies_run_as_they_stand(postgresql, tmp_path):
    role, name = "me'$(touch forged)", "x'$(touch forged)"
    postgresql.create_queue(name)
    identifier = sql.Identifier(role)
    with psycopg.connect(postgresql.url) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'open sesame'").format(identifier))
    try:
        login = ("--user", role, "--password", "open sesame")
        (line,) = (
            each for each in run(postgresql, "doctor", name, *login).stdout.splitlines() if "rights" in each
        )
        (command,) = re.findall(r"what this prints: (sqlqueue .*) \(or sender\)", line)
        program = f'sqlqueue() {{ printf "%s\\0" "$@"; }}; {command}'
        said = subprocess.run(["bash", "-c", program], check=True, capture_output=True, cwd=tmp_path)
        arguments = said.stdout.decode().split("\0")[:-1]
        wanted = ["script", "--engine", "postgresql", "--grants", role, "--role", "receiver"]
        assert arguments == [*wanted, f"{name}@[public]"]
        assert list(tmp_path.iterdir()) == []
    finally:
        with psycopg.connect(postgresql.url) as connection:
            connection.execute(sql.SQL("DROP ROLE {}").format(identifier))


def test_inspect_shows_names_that_steer_no_terminal(postgresql):
    """Columns, their types, indexes, and the statements that it advises."""
    queue = postgresql.create_queue("a\x1b[31m\u202eb")
    type_ = sql.Identifier("t\x9by")
    with psycopg.connect(postgresql.url) as connection:
        connection.execute(sql.SQL("CREATE DOMAIN {} AS int").format(type_))
        connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN odd {}").format(queue.table, type_))
        connection.execute(
            sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(
                queue.table, sql.Identifier(f"{queue.name}_seq_key")
            )
        )
    found = run(postgresql, "inspect", queue.name)
    assert "CREATE" in found.stdout
    assert found.stdout.replace("\n", "").isprintable()
    as_json = run(postgresql, "inspect", queue.name, "--json").stdout
    assert as_json.removesuffix("\n").isprintable()
    assert json.loads(as_json)["queue"].count(queue.name) == 1


def test_peek_escapes_what_a_message_says_in_json(postgresql):
    postgresql.create_queue()
    with psycopg.connect(postgresql.url) as connection:
        connection.execute(
            "INSERT INTO orders (id, headers, body) VALUES (gen_random_uuid(), %s, %s)",
            ['{"a":"\x9b31m\u202e"}', "\x7f\u2066".encode()],
        )
    shown = run(postgresql, "peek", "orders", "--json").stdout.removesuffix("\n")
    assert shown.isprintable()
    message = json.loads(shown)
    assert (message["headers"], message["body"]) == ({"a": "\x9b31m\u202e"}, "\x7f\u2066")


def test_an_error_of_the_database_is_one_line(postgresql):
    with connect(Target(url=postgresql.url)) as connection, pytest.raises(QueueError) as error:
        connection.execute('SELECT 1 FROM "a\x1b[31m\u202eb"', doing="looking at a\nb")
    assert str(error.value).isprintable()
