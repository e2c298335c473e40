"""``length`` as a probe: within its bounds or beyond them, and cheap."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import length_probe
from sqlqueue_spark.cli import main
from sqlqueue_spark.messages.message import format_time
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables.queue_admin import QueueAdmin
from tests.support.messages import row_id


def run(engine, *arguments):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, ["length", *arguments])


def sent(queue, number, ago: timedelta | None):
    """A message that was sent so long ago; None: that does not say when."""
    told = {} if ago is None else {"NServiceBus.TimeSent": format_time(datetime.now(UTC) - ago)}
    queue.insert_row(id=row_id(number), headers=json.dumps(told), body=b"{}")


def name(engine):
    catalog = engine.fetch(
        {"postgresql": "SELECT current_database()", "sqlserver": "SELECT DB_NAME()"}[engine.name]
    )
    return f"orders@[{engine.default_schema}]@[{catalog[0][0]}]"


def test_a_probe_counts_no_further_than_it_must(engine, queue):
    queue.insert(7)
    options = ConnectionOptions.parse({"url": engine.url})
    counted = [length_probe.probe(options, "orders", max_rows=most).rows for most in (0, 5, 6, 7, 100)]
    assert counted == [1, 6, 7, 7, 7]
    within = run(engine, "orders", "--max-rows", "7")
    assert (within.exit_code, within.stdout) == (0, f"{name(engine)}: ok: 7 messages wait\n")
    beyond = run(engine, "orders", "--max-rows", "6")
    assert (beyond.exit_code, beyond.stdout) == (1, f"{name(engine)}: beyond: more than 6 messages wait\n")


def test_a_probe_looks_at_the_age_of_the_oldest(engine, queue):
    """By the header of the first row."""
    assert run(engine, "orders", "--max-age", "1m").stdout == f"{name(engine)}: ok: no message waits\n"
    sent(queue, 1, timedelta(minutes=12))
    sent(queue, 2, timedelta(days=3))
    beyond = run(engine, "orders", "--max-age", "10m", "--max-rows", "2")
    assert (beyond.exit_code, beyond.stdout) == (
        1,
        f"{name(engine)}: beyond: 2 messages wait; the oldest was sent 12 min ago, more than 10 min\n",
    )
    within = run(engine, "orders", "--max-age", "1h")
    assert (within.exit_code, within.stdout) == (0, f"{name(engine)}: ok: the oldest was sent 12 min ago\n")


def test_of_rows_that_do_not_tell_the_next_one_is_asked(engine, queue):
    """An age that no message tells is beyond: a probe that does not know must not say that all is well."""
    for number in range(length_probe.ASKED):
        sent(queue, number, None)
    unknown = run(engine, "orders", "--max-age", "10m")
    assert (unknown.exit_code, unknown.stdout) == (
        1,
        f"{name(engine)}: beyond: none of the first 20 messages tells when it was sent\n",
    )
    queue.take(1)
    sent(queue, 99, timedelta(minutes=3))
    assert (
        run(engine, "orders", "--max-age", "10m").stdout
        == f"{name(engine)}: ok: the oldest was sent 3 min ago\n"
    )


def test_a_probe_tells_programs_too(engine, queue):
    sent(queue, 1, timedelta(minutes=12))
    for arguments, code, expected in (
        (["--max-rows", "0", "--max-age", "10m"], 1, {"within": False, "beyond": ["rows", "age"], "rows": 1}),
        (["--max-rows", "5", "--max-age", "1d"], 0, {"within": True, "beyond": [], "rows": 1}),
        (
            ["--max-rows", "5"],
            0,
            {"within": True, "beyond": [], "rows": 1, "maxAgeSeconds": None, "oldestSent": None},
        ),
    ):
        result = run(engine, "orders", "--json", *arguments)
        found = json.loads(result.stdout)
        assert (result.exit_code, found["queue"], {**found, **expected}) == (code, name(engine), found)
        assert found.keys() == {
            *("queue", "within", "beyond", "rows", "maxRows", "oldestSent", "oldestSeconds", "maxAgeSeconds")
        }


def test_one_queue_beyond_is_enough(postgresql):
    for each in ("a", "b"):
        postgresql.create_queue(each).insert(2 if each == "a" else 1)
    result = run(postgresql, "a", "b", "--max-rows", "1")
    assert (result.exit_code, [line.split(": ")[1] for line in result.stdout.splitlines()]) == (
        1,
        ["beyond", "ok"],
    )


def test_a_probe_reads_no_whole_table(postgresql, monkeypatch):
    """It does not ask what a full length asks."""
    monkeypatch.setattr(QueueAdmin, "length", lambda _: pytest.fail("the whole table is read"))
    postgresql.create_queue().insert(3)
    assert run(postgresql, "orders", "--max-rows", "9", "--max-age", "9d").exit_code == 1  # sent in 2025


def test_a_queue_that_is_missing_is_neither_within_nor_beyond_in_words(postgresql):
    result = run(postgresql, "nowhere", "--max-rows", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: There is no queue table nowhere@[public]")


def test_wrong_usage_of_a_probe_is_exit_code_2(postgresql):
    assert run(postgresql, "orders", "--max-rows", "many").exit_code == 2
    assert run(postgresql, "orders", "--max-age", "10 apples").exit_code == 2
