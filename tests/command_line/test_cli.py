"""The command on a real queue: what it prints, what it returns, and what it never prints."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from tests.conftest import GUARDED_PASSWORD
from tests.support.messages import headers, message_id, row_id
from tests.support.terminal import COMMAND
from tests.support.waiting import eventually


def run(engine, *arguments, **more):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, [*arguments], **more)


def said(engine, *arguments, **more):
    result = run(engine, *arguments, **more)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_a_queue_lives_its_whole_life_by_command(engine, tmp_path):
    name = said(engine, "length", "--json", *created(engine))
    queue = json.loads(name)["queue"]
    assert said(engine, "create", "orders") == f"{queue} was there already\n"
    (tmp_path / "body").write_bytes(b"\xff\x00")
    message = ("--type", "Shop.OrderPlaced, Shop", "--header", "a=b=c", "--ttl", "10m")
    sent = said(engine, "send", "orders", *message, "--body", f"@{tmp_path / 'body'}")
    found = re.fullmatch(r"sent (\S{36}) to orders\n", sent)
    assert found
    (line,) = said(engine, "peek", "orders", "--json").splitlines()
    peeked = json.loads(line)
    assert peeked["headers"]["NServiceBus.MessageId"] == found[1]
    assert (peeked["headers"]["a"], peeked["bodyBase64"], peeked["rowVersion"]) == ("b=c", "/wA=", 1)
    assert peeked["expires"].endswith("Z")
    assert re.fullmatch(
        r"number +sent +message id +type +body\n"
        rf"1 +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ +{found[1]} +Shop\.OrderPlaced +2 B\n",
        said(engine, "peek", "orders"),
    )
    assert "sent 5,000 messages to orders in " in said(engine, "send", "orders", "--count", "5000")
    length = json.loads(said(engine, "length", "orders", "--json"))
    assert (length["rows"], length["expired"]) == (5_001, 0)
    assert re.match(
        rf"{re.escape(queue)}\n  rows     5,001\n  expired  0\n", said(engine, "length", "orders")
    )
    assert said(engine, "purge", "orders", "--expired", "--yes") == "deleted 0 expired messages from orders\n"
    assert said(engine, "purge", "orders", "--yes") == "deleted 5,001 messages from orders\n"
    assert said(engine, "peek", "orders") == "orders is empty\n"


def created(engine):
    said(engine, "create", "orders")
    return ("orders",)


def test_create_makes_callback_queues_and_companions(postgresql):
    made = said(postgresql, "create", "Sales", "Billing", "--instance", "A", "--with", "error, audit")
    names = [line.removeprefix("created ").partition("@")[0] for line in made.splitlines()]
    assert names == ["Sales", "Billing", "Sales.A", "Billing.A", "error", "audit"]


def test_a_purge_asks_for_the_queues_name(postgresql):
    """It says which queue of which database that is, and how many messages are at stake."""
    queue = postgresql.create_queue()
    queue.insert(3)
    place = urlsplit(postgresql.url)
    where = f"orders@[public]@[{place.path[1:]}] at 127.0.0.1:{place.port}"
    refused = run(postgresql, "purge", "orders", input="order\n")
    assert (refused.exit_code, queue.count()) == (1, 3)
    assert refused.stderr == (
        f"3 messages of the queue {where} will be deleted; to go on, type the queue's name: order\n"
        "Error: That is not 'orders', so nothing was deleted.\n"
    )
    few = run(postgresql, "purge", "orders", "--expired", input="no\n")
    assert few.stderr.startswith(f"0 expired messages of the queue {where} will be deleted; ")
    unanswered = run(postgresql, "purge", "orders", input="")
    assert (unanswered.exit_code, unanswered.stderr.splitlines()[-1]) == (
        1,
        "Error: No answer came, so nothing was deleted; where the command cannot ask, add --yes.",
    )
    assert queue.count() == 3
    done = run(postgresql, "purge", "orders", input="orders\n")
    assert (done.exit_code, done.stdout, queue.count()) == (0, "deleted 3 messages from orders\n", 0)
    postgresql.create_queue("billing")
    second = run(postgresql, "purge", "orders", "billing", input="orders\n")
    assert second.stderr.splitlines()[-1] == (
        "Error: No answer came, so nothing more was deleted; where the command cannot ask, add --yes."
    )


def test_a_closed_standard_input_gives_no_answer(postgresql):
    """And it reads as an empty file."""
    queue = postgresql.create_queue()
    queue.insert(1)
    for arguments, code, told in (
        (
            "purge orders",
            1,
            "Error: No answer came, so nothing was deleted; where the command cannot ask, add --yes.",
        ),
        ("send orders --from -", 0, "sent 0 messages to orders"),
    ):
        line = f"exec {COMMAND} {arguments} <&-"
        done = subprocess.run(["sh", "-c", line], env={**os.environ, "SQLQUEUE_URL": postgresql.url},
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert (done.returncode, (done.stdout + done.stderr).splitlines()[-1]) == (code, told)
    assert queue.count() == 1


def test_a_closed_standard_output_takes_all(postgresql):
    postgresql.create_queue().insert(1)
    line = f"exec {COMMAND} peek orders --format bodies >&-"
    environment = {**os.environ, "SQLQUEUE_URL": postgresql.url}
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_the_locale_lacks_are_escaped_and_json_and_scripts_are_utf_8(postgresql):
    postgresql.create_queue("ü😀")
    environment = {**os.environ, "SQLQUEUE_URL": postgresql.url, "PYTHONIOENCODING": "latin-1"}

    def printed(*given):
        done = subprocess.run([COMMAND, *given], env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    assert b"\xfc\\U0001f600@[public]" in printed("list")
    assert json.loads(printed("list", "--json").decode())["table"].startswith("ü😀@[public]")
    assert '"public"."ü😀"' in printed("script", "ü😀", "--engine", "postgresql").decode()


@pytest.mark.parametrize(
    "given",
    [
        ("length", "orders", "--default-schema", "sales"),
        ("length", "orders@machine", "--legacy-addresses"),
        ("outbox", "report", "Sales", "--schema", "sales"),
    ],
)
def test_a_remedy_makes_the_table_that_the_options_mean(postgresql, given):
    """It is typed without them."""
    postgresql.execute("CREATE SCHEMA sales")
    refused = run(postgresql, *given)
    remedy = re.search(r"create it with: sqlqueue ((?:'[^']*'|[^',.])+)", refused.stderr)
    assert remedy
    assert (refused.exit_code, run(postgresql, *shlex.split(remedy[1])).exit_code) == (1, 0)
    assert run(postgresql, *given).exit_code == 0


def test_ctrl_c_while_modules_are_imported_shows_no_stack_trace(tmp_path):
    (tmp_path / "click.py").write_text(
        "import pathlib, signal\npathlib.Path(__file__).with_name('begun').touch()\nsignal.pause()\n"
    )
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    child = subprocess.Popen(
        [sys.executable, "-m", "sqlqueue_spark", "list"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
        # A shell starts what runs in its background with Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 -- it only sets a signal
    )
    eventually((tmp_path / "begun").exists)
    child.send_signal(signal.SIGINT)
    assert (child.communicate(timeout=30)[1], child.returncode) == (b"", -signal.SIGINT)


class Interrupted(io.RawIOBase):
    """A keyboard at which Ctrl-C is pressed."""

    def readable(self):
        return True

    def readinto(self, _buffer):
        raise KeyboardInterrupt


def test_ctrl_c_at_a_question_is_exit_code_130(postgresql):
    queue = postgresql.create_queue()
    queue.insert(1)
    asked = run(postgresql, "purge", "orders", input=io.BufferedReader(Interrupted()))
    assert (asked.exit_code, queue.count()) == (130, 1)
    assert asked.stderr.endswith("to go on, type the queue's name: \n")


def test_a_finding_is_exit_code_1_with_its_statement(postgresql):
    queue = postgresql.create_queue()
    assert said(postgresql, "inspect", "orders").endswith("nothing found\n")
    queue.execute("ALTER TABLE {table} DROP CONSTRAINT orders_seq_key")
    result = run(postgresql, "inspect", "orders")
    assert result.exit_code == 1
    assert result.stdout.endswith(
        "has no index that begins with seq: every look at the queue reads the whole table, and receiving is "
        'refused or slow.\n  CREATE UNIQUE INDEX CONCURRENTLY "orders_seq_key" ON "public"."orders" (seq);\n'
    )
    as_json = run(postgresql, "inspect", "orders", "--json")
    (finding,) = json.loads(as_json.stdout)["findings"]
    assert (as_json.exit_code, finding["remedySql"]) == (
        1,
        'CREATE UNIQUE INDEX CONCURRENTLY "orders_seq_key" ON "public"."orders" (seq);',
    )


def test_inspect_shows_columns_and_indexes(postgresql):
    postgresql.create_queue()
    shown = json.loads(said(postgresql, "inspect", "orders", "--json"))
    assert shown["columns"][0] == {"name": "id", "type": "uuid", "nullable": False, "computed": False}
    assert shown["indexes"][1] == {
        "name": "orders_seq_key",
        "columns": ["seq"],
        "unique": True,
        "kind": "btree",
        "filter": None,
    }
    assert shown["findings"] == []


def test_inspect_tells_settings_and_rights(postgresql, guarded_url):
    """It finds no fault with them."""
    queue = postgresql.create_queue()
    queue.execute("ALTER TABLE {table} SET UNLOGGED")
    text = said(postgresql, "inspect", "orders")
    assert re.search(r"^  setting +value +meaning$", text, re.MULTILINE)
    assert re.search(r"^  postgres may send +yes$", text, re.MULTILINE)
    assert text.endswith(
        'to change write-ahead log:\n  ALTER TABLE "public"."orders" SET LOGGED;\n'
        "to change fsync:\n  ALTER SYSTEM SET fsync = on; SELECT "
        "pg_catalog.pg_reload_conf();\nnothing found\n"
    )
    shown = json.loads(said(postgresql, "inspect", "orders", "--json"))
    assert shown["rights"] == {"user": "postgres", "receiverLacks": [], "senderLacks": []}
    assert shown["settings"][-1] == {"name": "row security", "value": "off", "meaning": "", "remedySql": ""}


def test_what_a_login_is_for_decides_what_it_lacks(postgresql, guarded_url):
    postgresql.create_queue().execute("GRANT SELECT, UPDATE, DELETE ON {table} TO guarded")
    arguments = ["inspect", "orders", "--url", guarded_url]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert CliRunner().invoke(main, [*arguments, "--role", "receiver"]).exit_code == 0
    refused = CliRunner().invoke(main, [*arguments, "--role", "sender"])
    assert refused.exit_code == 1
    assert re.search(
        r"^  guarded may send +no, lacks INSERT, USAGE on the sequence$", refused.stdout, re.MULTILINE
    )
    assert refused.stdout.endswith('  GRANT USAGE ON SEQUENCE "public"."orders_seq_seq" TO "guarded";\n')


def test_poison_is_shown_as_harmless_text(postgresql):
    """So are steering characters."""
    queue = postgresql.create_queue()
    for text in ("no json", '{"NServiceBus.EnclosedMessageTypes":"\\u001b[31mred, X"}', "[1]", ""):
        with psycopg.connect(postgresql.url) as connection:
            connection.execute("INSERT INTO orders (id, headers) VALUES (gen_random_uuid(), %s)", [text])
    shown = said(postgresql, "peek", "orders")
    assert "\x1b" not in shown
    assert r"\x1b[31mred" in shown
    assert shown.count("headers are not a JSON object of strings") == 2
    as_json = [json.loads(line) for line in said(postgresql, "peek", "orders", "--json").splitlines()]
    assert [each["headers"] for each in as_json] == [
        "no json",
        {"NServiceBus.EnclosedMessageTypes": "\x1b[31mred, X"},
        "[1]",
        {},
    ]
    assert {each["body"] for each in as_json} == {None}
    assert queue.count() == 4


@pytest.mark.parametrize("text", ["", "{}", "null", '{"NServiceBus.MessageId":""}', '{"a":1}', "poison"])
def test_the_row_id_serves_as_message_id(engine, queue, text):
    """Where a message has none, as for a .NET endpoint."""
    queue.insert_row(id=row_id(7), headers=text, body=b"")
    assert json.loads(said(engine, "peek", "orders", "--json"))["messageId"] == str(row_id(7))
    assert str(row_id(7)) in said(engine, "peek", "orders").splitlines()[1]


def test_peek_reads_numbers_and_booleans_as_texts(engine, queue):
    queue.insert_row(id=row_id(7), headers='{"NServiceBus.MessageId":42,"on":true,"off":null}', body=b"")
    shown = json.loads(said(engine, "peek", "orders", "--json"))
    assert (shown["messageId"], shown["headers"]) == ("42", {"NServiceBus.MessageId": "42", "on": "true"})
    assert "not a JSON object" not in said(engine, "peek", "orders")


def test_peek_shows_as_many_as_asked(postgresql):
    postgresql.create_queue().insert(30)
    lines = said(postgresql, "peek", "orders", "--count", "12", "--json").splitlines()
    found = [json.loads(line)["headers"] for line in lines]
    assert [each["NServiceBus.MessageId"] for each in found] == [message_id(number) for number in range(12)]
    assert found[0] == json.loads(headers(0))
    assert len(said(postgresql, "peek", "orders").splitlines()) == 11


def test_a_missing_queue_is_one_sentence(engine):
    """The exit code is 1."""
    for command in ("inspect", "length", "peek", "send"):
        result = run(engine, command, "nowhere", *(["--type", "T"] if command == "send" else []))
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            f"Error: There is no queue table nowhere@[{engine.default_schema}] in this database; "
            "create it with: sqlqueue create 'nowhere', or correct the queue name or its schema.\n"
        )


def test_a_wrong_password_is_one_sentence_without_it(guarded_url):
    url = guarded_url.replace(GUARDED_PASSWORD.replace(" ", "%20"), "not%20it")
    for arguments in (["--url", url], ["--url", guarded_url, "--password", "not it"]):
        result = CliRunner().invoke(main, ["length", "orders", *arguments])
        assert (result.exit_code, result.stdout) == (1, "")
        assert re.fullmatch(
            r"Error: The database at \S+ refused the login of user 'guarded'; check user and password\.\n",
            result.stderr,
        )


def test_a_typed_password_leaves_the_list_of_processes(postgresql):
    postgresql.create_queue()
    password = str(urlsplit(postgresql.url).password)
    command = [COMMAND, "peek", "orders", "--follow", f"--url={postgresql.url}", "--password", password]
    hidden = [
        "peek",
        "orders",
        "--follow",
        "--url=" + len(postgresql.url) * "x",
        "--password",
        len(password) * "x",
        "",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            shown = Path(f"/proc/{running.pid}/cmdline")
            eventually(lambda: shown.read_text().split("\0")[-len(hidden) :] == hidden)
        finally:
            running.terminate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_delayed_messages_are_delivered_until_a_signal(postgresql, number):
    queue, _ = postgresql.create_queue(), postgresql.create_queue("error")
    said(postgresql, "delayed", "create", "orders")
    postgresql.execute(
        """INSERT INTO "orders.Delayed" (headers, body, due) VALUES ('{}', '', '2026-01-01')"""
    )
    command = [COMMAND, "delayed", "run", "orders", f"--url={postgresql.url}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        eventually(lambda: queue.count() == 1)
        running.send_signal(number)
        assert running.communicate(timeout=30)[0] == "delivered 1 messages, 0 went to error\n"
    assert running.returncode == 0


def test_credentials_may_be_kept_out_of_the_url(postgresql, guarded_url):
    postgresql.create_queue()
    postgresql.execute("GRANT SELECT ON orders TO guarded")
    url = re.sub(r"guarded:[^@]*@", "", guarded_url)
    environment = {"SQLQUEUE_URL": url, "SQLQUEUE_PASSWORD": GUARDED_PASSWORD}
    result = CliRunner(env=environment).invoke(main, ["length", "orders", "--user", "guarded", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["rows"]) == (0, 0)


@pytest.mark.parametrize(
    "address",
    ["orders@sales", "orders@[sales]", "orders@elsewhere --legacy-addresses --default-schema sales"],
)
def test_the_schema_is_in_the_address_or_the_option(engine, address):
    queue = engine.create_queue(schema="sales")
    queue.insert(2)
    assert json.loads(said(engine, "length", *address.split(), "--json"))["rows"] == 2
