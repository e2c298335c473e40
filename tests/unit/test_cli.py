"""The command without a database: its usage, its script, its options, and its refusals."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.options import SinkOptions, SourceOptions

SECRET = "hunter2"
NOWHERE = f"postgresql://me:{SECRET}@127.0.0.1:1/shop"


def run(*arguments, **environment):
    return CliRunner(env=environment).invoke(main, [*arguments])


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        ([], "Usage: "),
        (["length"], "Missing argument 'QUEUE...'."),
        (["length", "orders"], "Missing option '--url' (env var: 'SQLQUEUE_URL')."),
        (["lenght", "orders"], "No such command 'lenght'."),
        (["length", "orders", "--url", NOWHERE, "--jsn"], "No such option '--jsn'."),
        (["length", NOWHERE], "a url stands where a queue's name is expected; give it as --url."),
        (["length", f"Server=x;PWD={SECRET}"], "a url stands where a queue's name is expected"),
        (["peek", "orders", "--url", NOWHERE, "--count", "0"], "0 is not in the range x>=1."),
        *(
            ([*command, "a", "--url", NOWHERE], "'a' is not a valid whole number; write one like 1000.")
            for command in (
                ["peek", "orders", "--count"],
                ["peek", "orders", "--after"],
                ["send", "orders", "--count"],
                ["errors", "show", "--row-version"],
                ["length", "orders", "--max-rows"],
            )
        ),
        (
            ["send", "orders", "--url", NOWHERE, "--ttl", "ten"],
            "'ten' is not a duration above 0 like 500ms, 30s, 10m",
        ),
        (["send", "orders", "--url", NOWHERE, "--ttl", "0s"], "'0s' is not a duration above 0 like 500ms"),
        (["send", "orders", "--url", NOWHERE, "--ttl", "9" * 20 + "d"], "is not a duration above 0 like"),
        (["send", "orders", "--url", NOWHERE, "--header", "x"], "'x' is no header; write NAME=VALUE."),
        (
            ["send", "orders", "--url", NOWHERE, "--body", "@/no/such"],
            "'/no/such' cannot be read: No such file",
        ),
        (
            ["send", "orders", "--url", NOWHERE, "--rate", "5"],
            "--rate and --size belong to a load; give --count",
        ),
        (
            ["send", "orders", "--url", NOWHERE, "--count", "5", "--type", "T"],
            "A load (--count) writes its own",
        ),
        (["send", "orders", "--url", NOWHERE, "--type", ""], "'--type': it is empty; leave it out, or say"),
        (
            ["send", "orders", "--url", NOWHERE, "--header", "NServiceBus.MessageId="],
            "NServiceBus.MessageId cannot be empty",
        ),
        (
            ["send", "orders", "--url", NOWHERE, "--header", "NServiceBus.EnclosedMessageTypes= "],
            "EnclosedMessageTypes cannot be",
        ),
        (["send", "", "--url", NOWHERE, "--type", "T"], "it is empty; leave it out, or say something."),
        (["create", "orders", "--url", NOWHERE, "--instance", ""], "'--instance': it is empty"),
        (["create", "orders", "--url", NOWHERE, "--stream", " "], "'--stream': it is empty"),
        (["length", "orders", "--url", NOWHERE, "--user", ""], "'--user': it is empty"),
        (["length", "orders", "--url", NOWHERE, "--default-schema", ""], "'--default-schema': it is empty"),
        (
            ["script", "orders", "--engine", "postgresql", "--grants", "", "--role", "sender"],
            "'--grants': it is empty",
        ),
        (["outbox", "create", "", "--url", NOWHERE], "'ENDPOINT': it is empty"),
        (["outbox", "create", "Sales", "--schema", "", "--url", NOWHERE], "'--schema': it is empty"),
        (["script", "orders"], "Missing option '--engine'."),
        (["script", "orders", "--engine", "oracle"], "'oracle' is not one of 'postgresql', 'sqlserver'."),
    ],
)
def test_wrong_usage_is_exit_code_2_and_explained(arguments, complaint):
    result = run(*arguments, SQLQUEUE_URL=None)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert SECRET not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        [NOWHERE],
        ["list", NOWHERE],
        ["peek", "orders", "--count", NOWHERE],
        ["length", "orders", f"--max-age={NOWHERE}"],
        ["length", "orders", "--max-age", f"{NOWHERE}?note='"],
        ["send", "orders", "--header", NOWHERE],
        ["send", "orders", "--type", "T", "--body", f"@{NOWHERE}"],
        ["inspect", "orders", "--role", NOWHERE],
        ["doctor", "--config", NOWHERE],
        ["drain", "--show", NOWHERE],
        ["subscriptions", NOWHERE],
        ["subscribe", "orders", NOWHERE],
        ["outbox", "report", f"https://me:{SECRET}@shop/x"],
        ["script", "orders", "--engine", "postgresql", "--stream", f"https://me:{SECRET}@shop/x"],
        ["list", "--schema", f"password={SECRET}"],
    ],
)
def test_wrong_usage_repeats_no_password(arguments):
    result = run(*arguments, SQLQUEUE_URL="postgresql://127.0.0.1:1/shop")
    assert (result.exit_code, result.stdout) == (2, "")
    assert SECRET not in result.stderr


def parameters_of(command):
    """Those of a command and of all below it."""
    if isinstance(command, click.Group):
        return [each for below in command.commands.values() for each in parameters_of(below)]
    return command.params


def test_no_name_of_a_queue_or_an_endpoint_may_be_a_url():
    """It may hold a password, and would stand in what the command says."""
    named = [each for each in parameters_of(main) if re.search("QUEUE|ENDPOINT", each.metavar or "")]
    assert len(named) > 20
    for each in named:
        with pytest.raises(click.BadParameter, match="a url stands where") as refused:
            each.type.convert(NOWHERE, each, None)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize("command", ["create", "inspect", "length", "peek", "purge", "send"])
def test_an_unreachable_server_is_exit_code_1(command):
    """And one sentence, without the secret."""
    arguments = {"purge": ["--yes"], "send": ["--type", "T"]}.get(command, [])
    result = run(command, "orders", *arguments, SQLQUEUE_URL=NOWHERE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: No database answers at 127.0.0.1:1/shop (")
    assert result.stderr.endswith("check host, port and that the server runs.\n")
    assert SECRET not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["length", b"a\xffb"],
        ["outbox", "report", b"a\xffb"],
        ["send", "x", "--type", "T", "--body", b"a\xffb"],
    ],
)
def test_bytes_that_are_no_utf_8_are_wrong_usage(arguments):
    command = [str(Path(sys.executable).parent / "sqlqueue"), *arguments, "--url", NOWHERE]
    ended = subprocess.run(command, check=False, capture_output=True)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.endswith(
        b"Error: The argument 'a\\\\udcffb' holds bytes that are no UTF-8; write it in UTF-8.\n"
    )
    environment = {**os.environ, "SQLQUEUE_URL": f"{NOWHERE}\udcff"}
    ended = subprocess.run([command[0], "length", "x"], check=False, capture_output=True, env=environment)
    said = b"Error: The option url holds bytes that are no UTF-8; write it in UTF-8.\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", said)


def test_debug_shows_where_an_error_came_from():
    result = run("length", "orders", "--debug", SQLQUEUE_URL=NOWHERE)
    assert (result.exit_code, type(result.exception)) == (1, ConnectionLost)


def test_the_installed_command_shows_no_traceback():
    """Except with --debug; and never the secret."""
    command = [str(Path(sys.executable).parent / "sqlqueue"), "length", "orders", "--url", NOWHERE]
    plain = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (plain.returncode, plain.stdout, plain.stderr.count("\n")) == (1, "", 1)
    debug = subprocess.run([*command, "--debug"], check=False, capture_output=True, text=True)
    assert (debug.returncode, "Traceback" in debug.stderr) == (1, True)
    assert SECRET not in plain.stderr + debug.stderr


def test_a_refused_url_is_not_repeated():
    result = run("length", "orders", "--url", f"mysql://{SECRET}")
    assert (result.exit_code, SECRET in result.output) == (1, False)
    assert result.stderr.startswith("Error: The option url is none of postgresql://")


def test_a_message_without_a_type_is_refused():
    """Before the database is asked anything."""
    result = run("send", "orders", "--body", "{}", SQLQUEUE_URL=NOWHERE)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        (
            "Error: A message needs a type, or no receiver knows what to do with it; give a type like "
            "'Namespace.Name, Assembly', or the header NServiceBus.EnclosedMessageTypes."
        ),
    )


@pytest.mark.parametrize(
    "command",
    [
        ("create",), ("inspect",), ("length",), ("purge",), ("peek",), ("doctor",), ("send", "--type", "T"),
        ("delayed", "length"), ("delayed", "create"), ("errors", "list"), ("errors", "retry"),
        ("subscribe", "--endpoint", "Sales"), ("unsubscribe", "--endpoint", "Sales"),
        ("script", "--engine", "postgresql"),
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_read_is_wrong_usage(command):
    events = ("Event",) if "subscribe" in command[0] else ()
    result = run(*command, "a@b@c@d", *events, SQLQUEUE_URL=NOWHERE)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        (
            "Error: The queue address 'a@b@c@d' cannot be read after the first '@'; write "
            "table@[schema]@[catalog] and double every ']' inside the brackets."
        ),
    )


def test_every_command_has_help():
    shown = run("--help").stdout
    assert all(f"  {name} " in shown for name in main.commands)
    for name, command in main.commands.items():
        assert command.help
        assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize("group", [(), ("outbox",), ("delayed",), ("errors",), ("server",)])
def test_a_list_of_commands_has_their_first_sentences_to_the_end(group):
    """However narrow the terminal is."""
    listed = run(*group, "--help", COLUMNS="80").stdout.partition("Commands:\n")[2]
    sentences = re.findall(r"^  \S+ .*(?:\n   .*)*", listed, re.MULTILINE)
    within = main.commands[group[0]] if group else main
    assert isinstance(within, click.Group)
    assert [len(sentences), {each[-1] for each in sentences}] == [len(within.commands), {"."}]
    assert "..." not in listed


@pytest.mark.parametrize("of,which", [(SourceOptions, ()), (SinkOptions, ("--sink",))])
def test_options_are_listed_as_text_and_markdown(of, which):
    described = [*of.described()]
    plain = run("options", *which).stdout.splitlines()
    assert [line.split()[0] for line in plain] == ["option", *(each.name for each in described)]
    markdown = run("options", *which, "--markdown").stdout.splitlines()
    assert markdown[:3] == [
        "| option | value | default | meaning |",
        "|---|---|---|---|",
        (
            "| `url` | text | required | `postgresql://…`; for SQL Server `mssql://…` or an ODBC "
            "connection string. |"
        ),
    ]
    assert len(markdown) == 2 + len(described)


def test_demo_hands_over_to_the_demo(monkeypatch, tmp_path):
    called = []
    for name, what in (("drain", "main"), ("two_databases", "main"), ("folder_and_commands", "stop_servers")):

        def noted(*given, name=name, what=what):
            called.append((name, what, *given))
            return []

        monkeypatch.setattr(f"sqlqueue_spark.demo.{name}.{what}", noted)
    folder = ("--folder", str(tmp_path))
    for arguments in (
        (*folder, "--messages", "7"),
        ("drain", *folder, "--stop"),
        (),
        ("store-and-forward", "--messages", "7"),
        ("store-and-forward", *folder, "--stop"),
        ("store-and-forward",),
    ):
        assert run("demo", *arguments).exit_code == 0
    own = Path(".demo/store-and-forward")
    assert called == [
        ("drain", "main", tmp_path, 7),
        ("folder_and_commands", "stop_servers", tmp_path, ("database",)),
        ("drain", "main", Path(".demo"), 300_000),
        ("two_databases", "main", own, 7),
        ("folder_and_commands", "stop_servers", tmp_path, ("shop", "billing")),
        ("two_databases", "main", own, 300),
    ]


def test_a_demo_that_is_not_there_is_refused_with_those_that_are():
    result = run("demo", "publish")
    assert result.exit_code == 2
    assert "'publish' is not one of 'drain', 'store-and-forward'" in result.stderr


SQLSERVER = """\
SET QUOTED_IDENTIFIER ON;
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DECLARE @name nvarchar(776) = CAST(N'[sales].[o''r]]d{0}er?]' AS nvarchar(776)), @got int;
DECLARE @resource nvarchar(255) = LEFT(@name, 255);
DECLARE @transports nvarchar(255) = LEFT(
    CONCAT(CASE WHEN PARSENAME(@name, 3) IS NULL THEN QUOTENAME(DB_NAME()) + N'.' END, @name, N'_lock'), 255
);
EXEC @got = sys.sp_getapplock @Resource = @resource, @LockMode = 'Exclusive', @LockOwner = 'Transaction';
IF @got >= 0
    EXEC @got = sys.sp_getapplock @Resource = @transports, @LockMode = 'Exclusive',
        @LockOwner = 'Transaction';
IF @got < 0
BEGIN;
    THROW 51000, N'Another session is creating this table; run the script again.', 1;
END;
IF OBJECT_ID(@name, N'U') IS NULL
BEGIN
CREATE TABLE [sales].[o'r]]d{0}er?] (
    Id uniqueidentifier NOT NULL,
    CorrelationId varchar(255) NULL,
    ReplyToAddress varchar(255) NULL,
    Recoverable bit NOT NULL,
    Expires datetime NULL,
    Headers nvarchar(max) NOT NULL,
    Body varbinary(max) NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL
);
CREATE CLUSTERED INDEX Index_RowVersion ON [sales].[o'r]]d{0}er?] (RowVersion);
CREATE NONCLUSTERED INDEX Index_Expires ON [sales].[o'r]]d{0}er?] (Expires) INCLUDE (Id, RowVersion);
END;
COMMIT TRANSACTION;
GO
"""
POSTGRESQL = """\
BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('"sales"."o''r]d{0}er?"', 0));
CREATE TABLE IF NOT EXISTS "sales"."o'r]d{0}er?" (
    id uuid PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq bigserial UNIQUE
)
;
COMMIT;
"""


@pytest.mark.parametrize("dialect,script", [("sqlserver", SQLSERVER), ("postgresql", POSTGRESQL)])
def test_the_script_can_be_run_as_it_is(dialect, script):
    result = run("script", "o'r]d{0}er?", "--engine", dialect, "--default-schema", "sales")
    assert (result.exit_code, result.stdout) == (0, script)


def test_the_script_has_a_part_for_each_queue_once():
    said = run(
        "script", "Sales", "Sales", "--engine", "sqlserver", "--instance", "A", "--with", "error,Sales"
    )
    parts = said.stdout.split("GO\n")
    assert [part.count("CREATE TABLE") for part in parts] == [1, 1, 1, 0]
    assert [name in part for name, part in zip(("[Sales]", "[Sales.A]", "[error]"), parts, strict=False)] == [
        True,
        True,
        True,
    ]


def test_the_script_refuses_a_name_that_would_be_cut():
    result = run("script", "x" * 56, "--engine", "postgresql")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is 56 bytes long, but a queue table on PostgreSQL has at most 55" in result.stderr


def test_a_name_is_one_line_however_odd_it_is(capsys):
    from sqlqueue_spark.cli import output
    from sqlqueue_spark.tables.queue_admin import Length

    length = Length(queue="a\nb", rows=1, expired=0, bytes=2, oldest_sent=None, oldest_age=None)
    shown = output.as_json(output.told(length))
    assert (b"\n" in shown, json.loads(shown)["queue"]) == (False, "a\nb")
    output.lines(output.length_text(length))
    assert capsys.readouterr().out.startswith("a\\nb\n  rows     1\n")


def test_a_script_makes_the_asked_shape():
    classic, heap = (
        CliRunner().invoke(main, ["script", "orders", "--engine", "sqlserver", "--shape", shape]).output
        for shape in ("classic", "heap")
    )
    assert "CREATE CLUSTERED INDEX Index_RowVersion" in classic
    assert "CREATE CLUSTERED" not in heap
    assert "CREATE NONCLUSTERED INDEX Index_RowVersion ON [dbo].[orders] (RowVersion);" in heap
    assert "(Expires) INCLUDE (Id, RowVersion)\n    WHERE Expires IS NOT NULL;" in heap


def test_a_shape_that_an_engine_does_not_know_is_refused():
    run = CliRunner().invoke(main, ["script", "orders", "--engine", "postgresql", "--shape", "heap"])
    assert (run.exit_code, run.output.strip().splitlines()[-1]) == (
        2,
        "Error: A queue table on PostgreSQL has only one shape, which is not 'heap'; leave the shape out.",
    )
