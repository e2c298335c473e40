"""When a checkpoint and a Delta table remember the same of a query, and what is said when they do not."""

import json

import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.pipeline.delta.delta_writer import (
    Recorded,
    batch_in,
    check_start,
    check_written,
    mark_in,
    marked,
    restored_to,
)
from sqlqueue_spark.pipeline.running.checkpoint_folder import Checkpoint

OURS, THEIRS = "a" * 64, "b" * 64
REMEDY = (
    "a new folder: it loses nothing, and only rows of the last batch that a crash left in "
    "the queue come twice."
)


def checkpoint(begun=None, done=None, query_id="q"):
    return Checkpoint(folder="c", query_id=query_id, begun=begun, done=done)


def refusal(check, *arguments):
    try:
        check(*arguments)
    except ConfigurationError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "begun,done,pending", [(None, None, None), (0, None, 0), (3, 3, None), (3, 2, 3), (3, 1, 3), (3, 4, None)]
)
def test_the_pending_batch_is_begun_but_not_done(begun, done, pending):
    """It is the newest that was begun."""
    assert checkpoint(begun, done).pending == pending


@pytest.mark.parametrize(
    "begun,done,known",
    [
        (None, None, None),  # nothing has run
        (4, 4, 4),  # ended in good order
        (4, 3, 3),  # died before Delta had the batch
        (4, 3, 4),  # died after, or one step back
        (4, 4, None),  # Delta has forgotten the query, or the table is a new one
        (4, 4, 2),  # the table was restored
    ],
)
def test_a_checkpoint_not_behind_delta_may_start(begun, done, known):
    assert refusal(check_start, checkpoint(begun, done), "t", known) is None


@pytest.mark.parametrize(
    "begun,newest", [(None, "no batch"), (0, "batch 0"), (4, "batch 4")]
)  # fmt: skip
def test_a_checkpoint_behind_delta_has_gone_back(begun, newest):
    assert refusal(check_start, checkpoint(begun, begun), "t", 5) == (
        f"The checkpoint c has gone back: its newest is {newest}, but the Delta table t has batch 5 of its "
        "query and would drop new messages under the numbers that it has; give the newest checkpoint, "
        f"or {REMEDY}"
    )


def test_a_begun_checkpoint_must_name_its_query():
    assert refusal(check_start, checkpoint(None, None, None), "t", None) is None
    assert refusal(check_start, checkpoint(0, None, None), "t", None) == (
        "The checkpoint c has no file metadata that names its query, "
        f"so it is not known which of its batches the Delta table t has; put the file back, or give {REMEDY}"
    )


@pytest.mark.parametrize(
    "begun,done,found",
    [
        (3, 3, Recorded(4, OURS)),  # we have written it, or it was written before and is replayed
        (4, 3, Recorded(4, OURS)),
        (4, 3, Recorded(4, None)),  # by Spark's own sink, before the start
        (4, 3, None),  # so long ago that its commit is not kept
    ],
)
def test_a_batch_that_delta_has_may_be_logged(begun, done, found):
    assert refusal(check_written, checkpoint(begun, done), "t", Recorded(4, OURS), found) is None


@pytest.mark.parametrize(
    "begun,done,found,has",
    [
        (3, 3, Recorded(4, THEIRS), "it"),
        (4, 3, Recorded(4, THEIRS), "it"),
        (3, 3, Recorded(4, None), "it"),  # not before the start, so not ours
        (3, 3, None, "it"),
        (4, 3, Recorded(5, None), "batch 5 of this query"),
        (3, 3, Recorded(5, OURS), "batch 5 of this query"),
        (3, 3, Recorded(3, OURS), "batch 3 of this query"),  # not written at all
    ],
)
def test_a_batch_of_another_stream_is_not_ours(begun, done, found, has):
    """Even where it has the number of ours."""
    assert refusal(check_written, checkpoint(begun, done), "t", Recorded(4, OURS), found) == (
        f"Batch 4 is not logged and its messages stay in the queue, because the Delta table t has {has} from "
        f"another stream, which runs on a copy of the checkpoint c; give this stream {REMEDY}"
    )


@pytest.mark.parametrize("by_user", [None, "", "theirs", "sqlqueue offsets=short", '{"run": 1}'])
def test_a_mark_stands_behind_what_the_user_says(by_user):
    said = marked(OURS, by_user)
    assert mark_in(said) == OURS
    assert said.startswith(by_user or "")


@pytest.mark.parametrize(
    "text", [None, "", "nightly", f"sqlqueue offsets={OURS[1:]}", f"sqlqueue offsets={OURS}0"]
)
def test_what_others_say_is_no_mark(text):
    assert mark_in(text) is None


COMMIT = f"""{{"commitInfo":{{"operation":"WRITE","userMetadata":"sqlqueue offsets={OURS}"}}}}
{{"txn":{{"appId":"q","version":7,"lastUpdated":1}}}}
{{"add":{{"path":"part-0","stats":"q"}}}}
"""


@pytest.mark.parametrize(
    "commit,query_id,found",
    [
        (COMMIT, "q", Recorded(7, OURS)),
        (COMMIT, "other", None),
        (
            '{"txn":{"appId":"q","version":7}}\n{"commitInfo":{"operation":"STREAMING UPDATE"}}',
            "q",
            Recorded(7, None),
        ),
        ('{"add":{"path":"q"}}', "q", None),
        ("", "q", None),
    ],
)
def test_a_commit_tells_its_batch_and_mark(commit, query_id, found):
    assert batch_in(commit, query_id) == found


@pytest.mark.parametrize(
    "said, found",
    [
        ({"operation": "RESTORE", "operationParameters": {"version": "3", "timestamp": None}}, 3),
        ({"operation": "RESTORE", "operationParameters": {"version": 3}}, 3),
        ({"operation": "RESTORE", "operationParameters": {"version": None, "timestamp": "2026-11-29"}}, -1),
        ({"operation": "RESTORE"}, -1),
        ({"operation": "WRITE", "operationParameters": {"mode": "Append"}}, 7),
        ({}, 7),
    ],
)
def test_a_commit_tells_to_which_version_it_has_put_its_table_back(said, found):
    """Other programs write commits, too, and may leave out what they like."""
    commit = json.dumps({"commitInfo": said}, separators=(",", ":"))
    assert restored_to(f'{{"protocol":{{}}}}\n{commit}\n', 7) == found
