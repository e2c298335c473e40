"""Looking into a queue by command: which messages, how much of them, and what that costs the queue."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import queue_peek
from sqlqueue_spark.cli import main
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from tests.support.messages import headers, message_id, row_id
from tests.support.terminal import COMMAND


def run(engine, *arguments, **more):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, [*arguments], **more)


def peeked(engine, *arguments, stderr=""):
    result = run(engine, "peek", "orders", "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, stderr)
    return [json.loads(line)["rowVersion"] for line in result.stdout.splitlines()]


def fill(queue, count=30):
    """Every third message is of another type; every tenth has a header of its own."""
    for number in range(count):
        more = {
            "NServiceBus.MessageId": message_id(number),
            "NServiceBus.EnclosedMessageTypes": (
                "Shop.OrderCancelled, Shop" if number % 3 == 0 else "Shop.OrderPlaced, Shop"
            ),
            **({"tenant": f"t{number}"} if number % 10 == 0 else {}),
        }  # fmt: skip
        queue.insert_row(id=row_id(number), headers=json.dumps(more), body=b"{}")


def test_filters_choose_messages(engine, queue):
    """How many rows were looked at is said on stderr."""
    fill(queue)
    for arguments, numbers, rows in (
        (["--type", "OrderCancelled"], [1, 4, 7, 10, 13, 16, 19, 22, 25, 28], 28),
        (["--type", "Shop.OrderCancelled", "--count", "2"], [1, 4], 4),
        (["--header", "tenant"], [1, 11, 21], 30),
        (["--header", "tenant=t10", "--type", "OrderPlaced"], [11], 30),
        (["--header", "tenant=t10", "--type", "OrderCancelled"], [], 30),
        (["--id", message_id(4), "--id", str(row_id(6))], [5, 7], 30),
        (["--id", message_id(4), "--after", "5"], [], 25),
    ):
        looked = (
            f"looked at {rows} rows of orders, of which {len(numbers)} "
            f"fit{'s' if len(numbers) == 1 else ''}\n"
        )
        assert peeked(engine, *arguments, stderr=looked) == numbers
    assert peeked(engine, "--after", "28") == [29, 30]
    assert peeked(engine, "--all") == [*range(1, 31)]
    nothing = run(engine, "peek", "orders", "--header", "nobody")
    assert (nothing.stdout, nothing.exit_code) == ("orders has no such message\n", 0)


def test_a_filter_looks_at_a_number_of_rows(engine, queue):
    """And says where to go on."""
    fill(queue)
    looked = "looked at 12 rows of orders, of which 2 fit; to go on behind them: --after 12\n"
    assert peeked(engine, "--header", "tenant", "--scan", "12", stderr=looked) == [1, 11]
    rest = "looked at 18 rows of orders, of which 1 fits\n"
    assert peeked(engine, "--header", "tenant", "--scan", "18", "--after", "12", stderr=rest) == [21]


def test_a_look_reads_in_portions(engine, queue, monkeypatch):
    """The bodies of rows that the filter drops are read only where that is cheaper than another statement."""
    statements = []
    read = QueueAdmin.messages

    def counted(self, after, count):
        found = read(self, after, count)
        statements.append([each.row_version for each in found])
        return found

    monkeypatch.setattr(QueueAdmin, "messages", counted)
    monkeypatch.setattr(queue_peek, "_ROWS", 8)
    monkeypatch.setattr(queue_peek, "_BYTES", 4_000)
    monkeypatch.setattr(queue_peek, "_PASSED_OVER", 1_500)
    for number, size in enumerate([100, 100, 5_000, 100, 1_000, 1_000, 100, 100, 2_500, 2_500]):
        meant = "yes" if number in {0, 1, 3, 6, 8, 9} else "no"
        queue.insert_row(id=row_id(number), headers=json.dumps({"meant": meant}), body=b"x" * size)
    options = ConnectionOptions.parse({"url": engine.url})
    found = queue_peek.look(options, "orders", MessageSelection(headers=(("meant", "yes"),)))
    assert [each.row_version for each in found] == [1, 2, 4, 7, 9, 10]
    # Row 3 is too large to be read in vain, and so are 5 and 6 together;
    # rows 9 and 10 are too large for one statement.
    assert statements == [[1, 2], [4], [7], [9], [10]]
    statements.clear()
    assert len([*queue_peek.look(options, "orders", MessageSelection())]) == 10
    assert statements == [[1, 2], [3], [4, 5, 6, 7, 8], [9], [10]]


def test_a_look_takes_no_lock_and_waits_for_none(postgresql):
    """Rows that others hold are shown too, where a plain read sees them."""
    queue = postgresql.create_queue()
    queue.insert(3)
    with queue.locked(2), queue.session() as session:
        session.take(1)
        assert peeked(postgresql, "--all") == [1, 2, 3]
        assert peeked(
            postgresql,
            "--header",
            "NServiceBus.Version",
            stderr="looked at 3 rows of orders, of which 3 fit\n",
        ) == [1, 2, 3]


def test_bodies_are_shown_beneath(postgresql):
    queue = postgresql.create_queue()
    for number, body in enumerate((b'{"a":\n 1}', b"\x1b[31m", None)):
        queue.insert_row(id=row_id(number), headers=headers(number), body=body)
    assert run(postgresql, "peek", "orders", "--bodies").stdout.splitlines()[2::2] == [
        '  {"a": 1}',
        "  hex 1b5b33316d",
        "  (no body: NULL)",
    ]
    whole = run(postgresql, "peek", "orders", "--whole", "--count", "1").stdout.splitlines()
    assert whole[2:] == ['  {"a":', "   1}"]


def test_bodies_alone_are_printed_byte_for_byte(postgresql):
    """Each with a line feed, and nothing else; from an empty queue nothing at all."""
    queue = postgresql.create_queue()
    assert run(postgresql, "peek", "orders", "--format", "bodies").stdout_bytes == b""
    for number, body in enumerate((b'{"a":\n 1}', b"\x1b[31m\xff", None, "größe".encode())):
        queue.insert_row(id=row_id(number), headers=headers(number), body=body)
    printed = run(postgresql, "peek", "orders", "--format", "bodies").stdout_bytes
    assert printed == b'{"a":\n 1}\n\x1b[31m\xff\n\ngr\xc3\xb6\xc3\x9fe\n'


def test_json_is_a_format(postgresql):
    postgresql.create_queue().insert(3)
    flag, named = (
        run(postgresql, "peek", "orders", *each).stdout for each in (["--json"], ["--format", "json"])
    )
    assert (flag, len(flag.splitlines())) == (named, 3)


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        (["--follow", "--all"], "--follow takes one queue, and neither --all nor --after nor --scan."),
        (["--follow", "other"], "--follow takes one queue, and neither --all nor --after nor --scan."),
        (["--all", "--count", "3"], "--all shows all, so it takes neither --count nor --scan."),
        (["--json", "--whole"], "--json has whole bodies; leave out --bodies and --whole."),
        (
            ["--format", "bodies", "--bodies"],
            "--format bodies has whole bodies; leave out --bodies and --whole.",
        ),
        (["--header", "=x"], "'=x' is no header; write NAME or NAME=VALUE."),
    ],
)
def test_wrong_usage(postgresql, arguments, complaint):
    result = run(postgresql, "peek", "orders", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def in_a_shell(engine, line):
    """What a shell prints, in which ``peek`` stands for a look at the whole queue."""
    command = f"{Path(sys.executable).parent / 'sqlqueue'} peek orders --all --json"
    return subprocess.run(
        ["bash", "-c", line.replace("peek", command)],
        check=True,
        capture_output=True,
        env={**os.environ, "SQLQUEUE_URL": engine.url, "PYTHONIOENCODING": "ascii"},
    )


def test_a_reader_that_goes_away_ends_it_quietly(postgresql):
    """As with ``| head -1``; the exit code is that of any program whose pipe is closed.

    The lines are UTF-8, whatever is set.
    """
    queue = postgresql.create_queue()
    queue.insert_row(id=row_id(0), headers='{"größe":"☃"}', body=b"{}")
    queue.insert(5_000, start=1)
    ended = in_a_shell(postgresql, "peek | head -1; echo ${PIPESTATUS[0]}")
    line, code = ended.stdout.splitlines()
    assert (json.loads(line)["headersText"], code, ended.stderr) == ('{"größe":"☃"}', b"141", b"")


def test_a_full_disk_is_one_sentence(postgresql):
    postgresql.create_queue().insert(5_000)
    said = (
        b"Error: The output cannot be written (No space left on device), so what is there of it is not all; "
        b"make room, and try again.\n"
    )
    for end in ("", "--help"):
        ended = in_a_shell(postgresql, f"peek {end} > /dev/full; echo $?")
        assert (ended.stdout, ended.stderr) == (b"1\n", said)


def test_help_of_the_program_that_cannot_be_written_is_one_sentence():
    command = [COMMAND, "--help"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr.partition(b" (")[0]) == (1, b"Error: The output cannot be written")


@pytest.mark.parametrize("colour", ["", "1"])
def test_colours_are_left_out_where_they_are_not_wanted(monkeypatch, colour):
    """Even on a terminal (https://no-color.org)."""
    monkeypatch.setattr("click._compat.isatty", lambda _: True)
    result = CliRunner(env={"NO_COLOR": colour}).invoke(main, ["doctor"], color=True)
    assert ("\x1b[" in result.stdout) is not bool(colour)


def test_the_doctor_tells_programs_too():
    result = CliRunner().invoke(main, ["doctor", "--json"])
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert {frozenset(each) for each in checks} == {frozenset({"name", "state", "said"})}
    assert {each["state"] for each in checks} <= {"fine", "wrong", "open"}
    assert result.exit_code == any(each["state"] == "wrong" for each in checks)
    text = CliRunner().invoke(main, ["doctor"]).stdout
    assert [each["name"] for each in checks] == [line.split()[1] for line in text.splitlines()]
