"""docs/command-line.md: its commands can be typed, and its JSON has the members that the commands print."""

import json
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlqueue_spark.administration.length_probe import Probe
from sqlqueue_spark.administration.message_lines import from_line, to_json
from sqlqueue_spark.cli import main, output
from sqlqueue_spark.tables.queue_admin import Length, Message

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```shell\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
LINES = [line for block in BLOCKS for line in block.splitlines()]
EXAMPLES = [json.loads(each) for each in re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)]
#: What starts Spark, or a server, has a page of its own.
ELSEWHERE = {"archive", "demo", "drain", "forward", "handle", "server", "store-and-forward"}

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MESSAGE = Message(
    id="7f1c7c0e-3c33-4d56-9b0a-6a4f0f0a3f10",
    correlation_id=None,
    reply_to_address=None,
    recoverable=None,
    expires=None,
    headers='{"NServiceBus.MessageId":"9b0d6f0c-6f5e-4f6e-8a57-1f0b6f2d7c11"}',
    body=b'{"order":1}',
    row_version=7,
    expired=False,
)
LENGTH = Length(queue="q", rows=1, expired=0, bytes=2, oldest_sent=NOW, oldest_age=timedelta(seconds=1))
PROBE = Probe(
    queue="q",
    within=False,
    beyond=("rows", "age"),
    rows=2,
    max_rows=1,
    oldest_sent=NOW,
    oldest_age=timedelta(seconds=2),
    max_age=timedelta(seconds=1),
)


def typed():
    """Each command that the page types, as words."""
    for line in LINES:
        words = shlex.split(line, comments=True)
        while "sqlqueue" in words:
            start = words.index("sqlqueue")
            end = next(
                (at for at, word in enumerate(words) if at > start and word in {"|", "||", ">"}), len(words)
            )
            yield words[start + 1 : end]
            words = words[end:]


def test_every_command_has_an_example():
    shown = {tuple(words[:2]) for words in typed()}
    commands = {
        (name, each) for name, command in main.commands.items() for each in getattr(command, "commands", [""])
    }
    missing = [
        (name, each)
        for name, each in commands
        if name not in ELSEWHERE and not any(words[0] == name and each in {"", words[1]} for words in shown)
    ]
    assert missing == []


def test_its_json_is_what_the_commands_print():
    """Member by member, in their order; a message in every byte."""
    peeked, length, probe = EXAMPLES
    assert list(peeked.items()) == list(to_json(MESSAGE).items())
    assert list(length) == list(output.told(LENGTH))
    assert list(probe) == list(output.told(PROBE))
    assert from_line(json.dumps(peeked).encode()).body == MESSAGE.body


def test_its_table_names_every_member_of_a_message():
    members = {*to_json(MESSAGE), *to_json(replace(MESSAGE, body=b"\xff"))}
    table = PAGE.partition("| member | is |")[2].partition("\n\n")[0]
    assert (
        set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line)))
        == members
    )
