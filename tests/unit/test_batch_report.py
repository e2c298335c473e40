"""What is told of each batch, whatever Spark says about it."""

import json
from types import SimpleNamespace

import pytest

from sqlqueue_spark.pipeline import Totals, progress_line
from sqlqueue_spark.pipeline.running.batch_report import BatchReport, ends_of

WAITING = '{"rows": 30, "oldestSeconds": 4}'


def end(number):
    return json.dumps({"version": 1, "serial": number})


FIRST = (end(1),)


def progress(batch=7, rows=10, *, latest=WAITING, ends=FIRST, seconds=2.0, at="2026-01-01T00:00:00.000Z"):
    sources = [SimpleNamespace(latestOffset=latest, endOffset=each) for each in ends]
    took = {} if seconds is None else {"triggerExecution": int(seconds * 1000)}
    return SimpleNamespace(
        id="q", batchId=batch, numInputRows=rows, durationMs=took, sources=sources, timestamp=at
    )


@pytest.fixture
def told(tmp_path):
    """The lines that were reported, and a listener of the query q."""
    lines: list[str] = []

    def listen(**options):
        return BatchReport("q", lines.append, done_file=tmp_path / "done", **options)

    return SimpleNamespace(lines=lines, listen=listen, done_file=tmp_path / "done")


def heard(listener, *all_progress):
    for each in all_progress:
        listener.onQueryProgress(SimpleNamespace(progress=each))


def test_a_batch_is_one_line_with_what_waits():
    assert progress_line(progress()) == "batch=7 messages=10 rate=5/s waiting=30 oldest=4s"


def test_a_batch_in_which_the_clock_was_set_back_has_no_rate():
    assert progress_line(progress(seconds=-3600)) == "batch=7 messages=10 rate=0/s waiting=30 oldest=4s"


def test_a_line_says_when_it_was_looked_if_that_was_before_the_batch():
    found = '{"rows": 30, "oldestSeconds": null, "lookedAt": "2026-01-31T12:00:00Z"}'
    assert progress_line(progress(latest=found)) == (
        "batch=7 messages=10 rate=5/s waiting=30 oldest=?s looked=2026-01-31T12:00:00Z"
    )


@pytest.mark.parametrize(
    "latest", [None, "None", "", "null", "17", "[]", '"rows"', "{}", '{"oldest', "{'rows': 30}"]
)
def test_a_line_does_not_need_what_waits(latest):
    """Spark may not say it, or say it in a form that cannot be read."""
    assert progress_line(progress(latest=latest)) == "batch=7 messages=10 rate=5/s waiting=? oldest=?s"


@pytest.mark.parametrize("seconds", [0, None])
def test_a_line_needs_neither_time_nor_sources(seconds):
    assert (
        progress_line(progress(seconds=seconds, ends=()))
        == "batch=7 messages=10 rate=0/s waiting=? oldest=?s"
    )


def test_the_queue_is_found_among_other_sources():
    found = progress()
    found.sources.insert(0, SimpleNamespace(latestOffset="12", endOffset="11"))
    assert progress_line(found) == "batch=7 messages=10 rate=5/s waiting=30 oldest=4s"
    assert ends_of(found) == [{"version": 1, "serial": 1}]


def test_a_line_says_what_waits_in_all_queues_of_a_query():
    found = progress()
    more = {"rows": 5, "oldestSeconds": 60, "lookedAt": "2026-01-31T12:00:00Z"}
    for each in (more, {**more, "oldestSeconds": None, "lookedAt": "2026-01-31T11:00:00Z"}):
        found.sources.append(SimpleNamespace(latestOffset=json.dumps(each), endOffset=None))
    assert progress_line(found) == (
        "batch=7 messages=10 rate=5/s waiting=40 oldest=60s looked=2026-01-31T11:00:00Z"
    )


def test_a_line_ends_with_details_that_are_known(told):
    listener = told.listen(details={7: "sent=10 repeated=2", 8: ""}.__getitem__)
    heard(listener, progress(7), progress(8), progress(9))  # of the last it fails
    more = (" sent=10 repeated=2", "", "")
    assert told.lines == [
        f"batch={batch} messages=10 rate=5/s waiting=30 oldest=4s{said}"
        for batch, said in zip((7, 8, 9), more, strict=True)
    ]


def test_each_batch_with_rows_counts_once(told):
    """However often it is heard of; a batch without rows does not count."""
    listener = told.listen()
    heard(listener, progress(0, 10), progress(1, 0), progress(2, 30, seconds=1), progress(2, 30, seconds=1))
    listener.catch_up(
        SimpleNamespace(recentProgress=[progress(0, 10), progress(2, 30), progress(3, 50, seconds=3)])
    )
    assert listener.totals(10, stopped=False) == Totals(messages=90, batches=3, seconds=10, steady=20)
    assert [line.split()[0] for line in told.lines] == ["batch=0", "batch=2", "batch=3"]


def test_another_querys_batches_are_not_reported(told):
    listener = told.listen()
    other = progress()
    other.id = "other"
    heard(listener, other)
    assert (told.lines, told.done_file.exists()) == ([], False)


def said(told):
    assert [file.name for file in told.done_file.parent.iterdir()] == ["done"]
    return json.loads(told.done_file.read_text())


def test_a_line_counts_what_was_moved_on_since_the_last_one(told):
    """The source tells how many that were since it began.

    After a restart it begins anew, and so does who listens.
    """
    listener = told.listen()
    seen = [
        '{"rows": 0, "movedOn": 3}',
        '{"rows": 0, "movedOn": 3}',
        "None",
        '{"rows": 0, "movedOn": 5}',
        '{"rows": 0, "movedOn": "x"}',
    ]
    heard(listener, *(progress(number, latest=latest) for number, latest in enumerate(seen)))
    told_of = [line.partition(" moved_on=")[2] for line in told.lines]
    assert told_of == ["3", "", "", "2", ""]


def test_the_source_is_told_where_a_batch_ends(told):
    """The last one that Spark has logged, be it of expired rows alone."""
    listener = told.listen()
    heard(listener, progress(0, 10, ends=[end(1), end(2)]))
    assert said(told) == [json.loads(end(1)), json.loads(end(2))]
    heard(listener, progress(1, 0, ends=[end(3)]))  # of expired rows alone
    assert said(told) == [json.loads(end(3))]


def test_an_idle_trigger_whose_event_comes_late_takes_nothing_back(told):
    """Spark's events come on another thread than the look at what a query has done."""
    heard(
        told.listen(), progress(7, ends=[end(1)]), progress(8, ends=[end(2)]), progress(8, 0, ends=[end(1)])
    )
    assert said(told) == [json.loads(end(2))]


@pytest.mark.parametrize("hour", ["00", "23"], ids=["later", "by a clock that was set back"])
def test_an_idle_trigger_hides_no_batch(told, hour):
    """The source is told of a batch though an idle trigger had its number before."""
    day = {"00": "2026-01-01", "23": "2025-12-31"}[hour]
    listener = told.listen()
    heard(
        listener,
        progress(0, 10, ends=[end(1)], at="2026-01-01T00:00:01.000Z"),
        progress(1, 0, ends=[end(1)], at="2026-01-01T00:00:11.000Z"),
        progress(1, 10, ends=[end(2)], at=f"{day}T{hour}:00:12.000Z"),
    )
    assert said(told) == [json.loads(end(2))]


def test_catching_up_tells_the_source_nothing_old(told):
    listener = told.listen()
    old, new = progress(0, 10, ends=[end(1)]), progress(1, 10, ends=[end(2)])
    heard(listener, new)
    listener.catch_up(SimpleNamespace(recentProgress=[old, new]))
    assert said(told) == [json.loads(end(2))]


def test_no_link_beside_the_file_is_followed(told, tmp_path_factory):
    """Another user may have made one in a folder that is shared."""
    important = tmp_path_factory.mktemp("ours") / "important"
    important.write_text("kept")
    for each in ("done", "done.new"):
        told.done_file.with_name(each).symlink_to(important)
    heard(told.listen(), progress(0, ends=[end(1)]))
    assert json.loads(told.done_file.read_text()) == [json.loads(end(1))]
    assert (told.done_file.is_symlink(), important.read_text()) == (False, "kept")


def test_an_end_that_cannot_be_told_costs_no_line(told):
    """It is no object, or the file that it goes to cannot be written."""
    listener = told.listen()
    heard(listener, progress(0, ends=[None, "None", "3", end(1)]))
    assert said(told) == [json.loads(end(1))]
    told.done_file.unlink()
    told.done_file.mkdir()
    heard(listener, progress(1, ends=[end(2)]))
    assert [line.split()[0] for line in told.lines] == ["batch=0", "batch=1"]
