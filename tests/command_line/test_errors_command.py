"""``sqlqueue errors`` on a real error queue: what it prints and asks, and its exit codes."""

import json
import os
import re
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import failed_retry
from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import ConnectionLost
from tests.support.error_rows import ACKNOWLEDGEMENT, fail, failed, failure, full
from tests.support.messages import body, message_id, row_id
from tests.support.other_user import STRANGER


@pytest.fixture
def error(postgresql):
    return postgresql.create_queue("error")


def run(engine, *arguments, **more):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, ["errors", *arguments], **more)


def said(engine, *arguments, code=0, **more):
    result = run(engine, *arguments, **more)
    assert (result.exit_code, result.stderr) == (code, "")
    return result.stdout


def where(engine, table="error"):
    return f"{table}@[public]@[{urlsplit(engine.url).path[1:]}]"


def fill(engine, error):
    """Three failures, a raw poison row and an acknowledgement."""
    fail(error, range(2), full(engine))
    fail(error, range(2, 3), full(engine, "billing"), kind="shop.Late\x1b")
    error.insert_row(id=row_id(3), headers="no JSON", body=b"x")
    error.insert_row(id=row_id(4), headers=json.dumps(ACKNOWLEDGEMENT), body=b"")


def test_a_list_is_a_table_and_counts(postgresql, error):
    fill(postgresql, error)
    table, counts = said(postgresql, "list").split("\n\n")
    cells = [re.split(r"  +", line) for line in table.splitlines()]
    assert cells[0] == ["number", "failed", "message id", "failed queue", "exception type", "message"]
    time = cells[1].pop(1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", time)
    assert cells[1] == ["1", message_id(0), '"public"."orders"', "shop.OutOfStock", "nothing left"]
    assert cells[3][3:5] == ['"public"."billing"', r"shop.Late\x1b"]
    assert cells[4] == ["4", str(row_id(3)), "-", "-", "stops ServiceControl: its headers are no JSON"]
    assert cells[5] == ["5", str(row_id(4)), "-", "-", "acknowledgement, no failure"]
    assert counts.splitlines() == [
        "count  failed queue        exception type",
        '2      "public"."orders"   shop.OutOfStock',
        r'1      "public"."billing"  shop.Late\x1b',
        "1      -                   -",
        "1 acknowledgement is no failure: neither retry nor discard takes them",
        (
            "1 row stops ServiceControl; to take it out, type: "
            "sqlqueue errors discard --stopping --to-file FILE 'error@[public]'"
        ),
    ]


def test_a_list_shows_as_many_as_asked_and_counts_all(postgresql, error):
    fail(error, range(25), full(postgresql))
    lines = said(postgresql, "list").splitlines()
    assert (lines[21], lines[-1].split()[0], len(lines)) == ("… and 5 more", "25", 25)
    assert said(postgresql, "list", "--limit", "0").splitlines()[1].split()[0] == "25"
    assert len(said(postgresql, "list", "--limit", "30").splitlines()) == 29
    assert len(said(postgresql, "list", "--json").splitlines()) == 26
    assert len(said(postgresql, "list", "--json", "--limit", "3").splitlines()) == 4


def test_a_list_as_json(postgresql, error):
    fill(postgresql, error)
    found = [json.loads(line) for line in said(postgresql, "list", "--json").splitlines()]
    time = found[0].pop("timeOfFailure")
    assert time.endswith("Z")
    assert found[0] == {
        "kind": "failure",
        "rowVersion": 1,
        "messageId": message_id(0),
        "failedQueue": '"public"."orders"',
        "exceptionType": "shop.OutOfStock",
        "exceptionMessage": "nothing left\nof it",
        "bytes": found[0]["bytes"],
        "serviceControl": "taken",
        "why": None,
    }
    assert (found[3]["serviceControl"], found[3]["why"]) == ("stops", "its headers are no JSON")
    assert [each["kind"] for each in found] == [*["failure"] * 4, "acknowledgement", *["group"] * 3]
    assert found[5] == {
        "kind": "group",
        "failedQueue": '"public"."orders"',
        "exceptionType": "shop.OutOfStock",
        "count": 2,
    }


def test_nothing_is_said_to_be_there(postgresql, error):
    assert said(postgresql, "list") == "the queue error is empty\n"
    assert said(postgresql, "list", "--stopping") == "no such failed message is in error\n"
    assert said(postgresql, "list", "--json") == ""
    nothing = f"no such failed message is in {where(postgresql)}\n"
    assert said(postgresql, "retry") == nothing
    assert said(postgresql, "retry", "--dry-run") == nothing
    assert said(postgresql, "discard", "--to-file", "/never/written") == nothing


def test_options_that_choose_narrow_one_another(postgresql, error):
    fill(postgresql, error)
    some = ("list", "--json", "--limit", "0")
    chosen = said(postgresql, *some, "--failed-queue", "orders", "--exception-type", "OutOfStock")
    assert json.loads(chosen)["count"] == 2
    assert said(postgresql, *some, "--failed-queue", "orders", "--older-than", "1h") == ""
    assert (
        json.loads(said(postgresql, *some, "--newer-than", "1h", "--exception-type", "OutOfStock"))["count"]
        == 2
    )
    ids = ("--message-id", message_id(0), "--message-id", message_id(2))
    assert len(said(postgresql, *some, *ids).splitlines()) == 2
    assert json.loads(said(postgresql, *some, "--stopping"))["failedQueue"] is None


def test_another_error_queue_is_named(postgresql):
    sales = postgresql.create_queue("failed", schema="sales")
    fail(sales, range(1), full(postgresql))
    assert len(said(postgresql, "list", "failed@sales", "--json").splitlines()) == 2
    missing = run(postgresql, "list")
    assert missing.exit_code == 1
    assert missing.stderr.startswith(
        "Error: There is no queue table error@[public] in this database; create it"
    )


def test_one_message_is_shown_in_full(postgresql, error):
    error.insert_row(id=row_id(1), headers=failed(1, failure(full(postgresql))), body=body(1, 3_000))
    lines = said(postgresql, "show", "--message-id", message_id(1)).splitlines()
    assert lines[:2] == [f"row 1, message {message_id(1)}", "headers"]
    assert re.search(r'^  NServiceBus\.FailedQ +"public"\."orders"$', "\n".join(lines), re.MULTILINE)
    at = lines.index("stack trace")
    assert lines[at + 1 : at + 4] == [
        "  Traceback:",
        "    here",
        "body, 3,000 bytes, of which this is the beginning",
    ]
    assert lines[at + 4].startswith('  {"order":1,"note":"xxx')
    assert len(lines[-1]) == 2_002
    as_json = json.loads(said(postgresql, "show", "--row-version", "1", "--json"))
    assert (as_json["messageId"], as_json["body"], as_json["serviceControl"]) == (
        message_id(1), body(1, 3_000).decode(), "taken",
    )  # fmt: skip


def test_a_raw_row_is_shown_as_it_is(postgresql, error):
    error.insert_row(id=row_id(1), headers="no\x1bJSON", body=None)
    assert said(postgresql, "show", "--row-version", "1").splitlines() == [
        f"row 1, message {row_id(1)}",
        "  stops ServiceControl: its body is NULL",
        "headers, which are not a JSON object of strings",
        r"  no\x1bJSON",
        "no body (NULL)",
    ]


@pytest.mark.parametrize(
    "command",
    [["show"], ["retry", "--yes"], ["discard", "--yes", "--to-file", "/no"]],
    ids=" ".join,
)
def test_an_id_that_no_message_has_is_named_and_exit_code_1(postgresql, error, command):
    """It is told before anything is done."""
    fail(error, range(1), full(postgresql))
    missing = run(postgresql, *command, "--message-id", "not a guid")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == (
        f"Error: No message in {where(postgresql)} has the id 'not a guid', or another session is taking it; "
        f"see which are there with: sqlqueue errors list '{where(postgresql)}'.\n"
    )


def test_of_several_ids_those_that_no_message_has_are_named(postgresql, error):
    fail(error, range(3), full(postgresql))
    ids = [f"--message-id={each}" for each in ("b", message_id(0), "a")]
    missing = run(postgresql, "retry", "--yes", *ids)
    assert (missing.exit_code, missing.stdout, error.count()) == (1, "", 3)
    assert missing.stderr.startswith(f"Error: No message in {where(postgresql)} has the id 'a' or 'b', or ")


def test_a_number_that_no_row_has_is_exit_code_1(postgresql, error):
    missing = run(postgresql, "show", "--row-version", "7")
    assert missing.exit_code == 1
    assert missing.stderr == (
        f"Error: There is no such message in {where(postgresql)}, or another session is taking it; see which "
        f"are there with: sqlqueue errors list '{where(postgresql)}'.\n"
    )


def test_a_retry_asks_with_queue_database_and_count(postgresql, error):
    orders, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    fail(error, range(2), full(postgresql))
    fail(error, range(2, 3), full(postgresql, "billing"))
    refused = run(postgresql, "retry", input="no\n")
    place = urlsplit(postgresql.url)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"3 messages of the queue {where(postgresql)} at 127.0.0.1:{place.port} will be put back, "
        f"2 into {where(postgresql, 'orders')}, 1 into {where(postgresql, 'billing')}; to go on, type the "
        "queue's name: no\n"
        "Error: That is not 'error', so nothing was put back.\n"
    )
    assert (error.count(), orders.count()) == (3, 0)
    done = run(postgresql, "retry", input="error\n")
    assert (done.exit_code, done.stdout) == (
        0,
        (
            f"put 2 messages back into {where(postgresql, 'orders')}\nput 1 message back into "
            f"{where(postgresql, 'billing')}\n"
        ),
    )
    assert (error.count(), orders.count(), billing.count()) == (0, 2, 1)


def test_a_question_names_only_some_of_many_queues(postgresql, error):
    for number in range(7):
        postgresql.create_queue(f"q{number}")
        fail(error, range(number, number + 1), full(postgresql, f"q{number}"))
    asked = run(postgresql, "retry", input="no\n").stderr
    assert asked.count("1 into q") == 5
    assert ", the others into 2 more queues; to go on, type the queue's name: " in asked


def test_a_dry_run_asks_nothing_and_changes_nothing(postgresql, error):
    orders = postgresql.create_queue()
    fill(postgresql, error)
    lines = said(postgresql, "retry", "--dry-run", code=1).splitlines()
    assert lines[0] == f"2 messages would go to {where(postgresql, 'orders')}"
    assert lines[1].startswith(
        "1 message would stay: There is no queue table billing@[public], for which they have"
    )
    assert lines[2].startswith(
        "1 message would stay: They say in no header NServiceBus.FailedQ for which queue"
    )
    assert (len(lines), error.count(), orders.count()) == (3, 5, 0)
    fits = said(postgresql, "retry", "--dry-run", "--failed-queue", "orders", "--json")
    assert json.loads(fits) == {
        "queue": where(postgresql),
        "retried": [{"queue": where(postgresql, "orders"), "count": 2}],
        "stayed": [],
        "held": 0,
    }


def test_what_stays_is_exit_code_1(postgresql, error):
    postgresql.create_queue()
    fill(postgresql, error)
    with error.locked(1):
        lines = said(postgresql, "retry", "--yes", code=1).splitlines()
    assert lines[0] == f"put 1 message back into {where(postgresql, 'orders')}"
    assert [line.partition(":")[0] for line in lines[1:3]] == ["1 message stayed"] * 2
    assert lines[3] == "1 message is held or was taken by others, and left to them"
    assert len(lines) == 4
    assert said(postgresql, "retry", "--yes", "--failed-queue", "orders").startswith("put 1 message back")
    again = json.loads(said(postgresql, "retry", "--yes", "--json", "--to", "orders", code=1))
    assert again["retried"] == [{"queue": where(postgresql, "orders"), "count": 1}]
    assert [each["count"] for each in again["stayed"]] == [1]


def test_a_retry_that_is_interrupted_says_how_far_it_came(postgresql, error, monkeypatch):
    postgresql.create_queue()
    fail(error, range(3), full(postgresql))

    def two(*_, progress, **__):
        progress(2)
        raise ConnectionLost("gone")

    monkeypatch.setattr(failed_retry, "retry", two)
    result = run(postgresql, "retry", "--yes")
    assert (result.exit_code, result.stderr) == (1, "put back before: 2 messages\nError: gone\n")


def test_a_discard_asks_and_keeps(postgresql, error, tmp_path):
    fill(postgresql, error)
    file = tmp_path / "kept.jsonl"
    arguments = ("discard", "--to-file", str(file), "--stopping")
    refused = run(postgresql, *arguments, input="no\n")
    place = urlsplit(postgresql.url)
    assert refused.stderr == (
        f"1 message of the queue {where(postgresql)} at 127.0.0.1:{place.port} will be taken out and kept "
        f"only in the file '{file}'; to go on, type the queue's name: no\nError: That is not 'error', so "
        "nothing was discarded.\n"
    )
    assert (refused.exit_code, error.count(), file.exists()) == (1, 5, False)
    assert said(postgresql, *arguments, "--yes") == (
        f"discarded 1 message from {where(postgresql)}; they stand in {file}\n"
    )
    assert [json.loads(line)["headers"] for line in file.read_text().splitlines()] == ["no JSON"]
    rest = said(postgresql, "discard", "--to-file", str(file), "--yes", "--json")
    assert json.loads(rest) == {"queue": where(postgresql), "discarded": 3, "held": 0}
    assert (error.ids(), len(file.read_text().splitlines())) == ([row_id(4)], 4)


def test_a_discard_follows_no_link_and_writes_into_no_file_of_another_user(postgresql, error, tmp_path):
    """They could be in a folder that is shared, and lead to a file of ours, or show what failed."""
    fill(postgresql, error)
    important, file = tmp_path / "important", tmp_path / "kept.jsonl"
    important.write_text("kept")
    file.symlink_to(important)
    reasons = ["it is a link, which is not followed"]
    if os.geteuid() == 0:
        reasons.append("it belongs to the user with the number 65534")
    for reason in reasons:
        refused = run(postgresql, "discard", "--to-file", str(file), "--yes")
        assert (refused.exit_code, refused.stderr) == (
            1,
            (
                f"Error: The file '{file}' cannot be written ({reason}); nothing more is discarded. "
                "Name another one with --to-file.\n"
            ),
        )
        assert (error.count(), important.read_text()) == (5, "kept")
        file.unlink()
        file.touch()
        if os.geteuid() == 0:
            os.chown(file, STRANGER, STRANGER)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["show"], "Say which message: by --message-id, or by --row-version."),
        (["show", "--message-id", "x", "--row-version", "1"], "Say which message"),
        (["discard"], "Missing option '--to-file'."),
        (["list", "--older-than", "soon"], "'soon' is not a duration above 0 like"),
        (["list", "--limit", "-1"], "-1 is not in the range x>=0."),
        (["retry", "--rate", "0"], "0 is not in the range x>=1."),
        (["retry", "--to", ""], "it is empty; leave it out"),
    ],
)
def test_wrong_usage_is_exit_code_2(postgresql, arguments, complaint):
    result = run(postgresql, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
