"""A claim on SQL Server, as far as it is told without one: which statements it says,
depending on how the rows are kept.
"""

import time
from dataclasses import replace
from functools import partial

import pytest

from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import TooMuch
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import Receiver
from sqlqueue_spark.receive.claiming import batch_size
from sqlqueue_spark.receive.claiming.batch_size import BatchLimits, BearableRows
from sqlqueue_spark.receive.claiming.claim import claim
from sqlqueue_spark.receive.claiming.claimed_batch import Claims, without_keys_of_others
from sqlqueue_spark.receive.claiming.connection_pool import ConnectionPool, QueueSession
from sqlqueue_spark.receive.claiming.next_batch import NextBatch
from sqlqueue_spark.row_set import HIGHEST, LOWEST, RowSet
from sqlqueue_spark.tables.queues import Queue, read_statement
from tests.support.recording import Answer, Recorder, Refused
from tests.support.statements import DATABASE, ID, IDENTITY, QUEUE, STORAGE, TABLE_COLUMNS

ROWS = [[number, 0, 700, 0] for number in (5, 6, 9)]
LIMITS = BatchLimits(rows=10, bytes=1 << 20)
CLAIM = Answer("OFFSET 0 ROWS", "ibib", ROWS)
DELETED = [Answer("DELETE q", changed=3)]


def again(*numbers):
    return Answer("INNER LOOP JOIN", "ibib", [[number, 0, 700, 0] for number in numbers])


def counted(rows):
    return Answer("COUNT_BIG", "i", [[rows]])


@pytest.fixture
def claiming(library, tmp_path):
    """What comes of a claim that is answered so, and what was said."""

    def run(act, *answers, **storage):
        recorder = Recorder(library, tmp_path, answers)
        with connect(Target(url=recorder.url)) as connection:
            before = len(recorder.endings())
            found = act(Queue(connection, replace(QUEUE, **storage)))
            return found, said(recorder), recorder.endings()[before:]

    return run


def said(recorder):
    """The names of the statements that were executed, but for the one that sets the session up."""
    table = SQLSERVER.table(QUEUE.table)
    names = {
        SQLSERVER.render(name, queue=table, catalog="[shop]").bound("qmark", NO_VALUES)[0]: name
        for name in ("claim", "count_range", "claim_runs", "identity", "ids", "delete", "delete_range")
    }
    texts = [each.text.removesuffix(";\nSELECT @@ROWCOUNT") for each in recorder.executions()[1:]]
    return [names.get(text, text) for text in texts]


class _Anything(dict):  # type: ignore[type-arg]
    def __missing__(self, name):
        return name


NO_VALUES = _Anything()


def session_of(queue):
    """The session of a stream that reads this queue alone."""
    options = SourceOptions.parse({"url": "sqlserver://h/shop", "queue": "orders"})
    pool = ConnectionPool(options, None)
    pool.names = {QUEUE.table: QUEUE.name}
    session = QueueSession(queue.connection, pool)
    session._open[QUEUE.table] = queue
    return session


def take(queue, limits=LIMITS):
    """The rows that a claim has in the end, or None."""
    rows = claim(queue, LOWEST, HIGHEST, limits, lambda *_: ())
    parts = without_keys_of_others(session_of(queue), [rows] if rows.count else [])
    return parts[0] if parts else None


@pytest.mark.parametrize("rows,end", [(3, 9), (10, HIGHEST)])
def test_rows_of_others_count_wherever_the_claim_looked(rows, end, library, tmp_path):
    """Before its first row too, and behind its last one where it got fewer than it asked for."""
    recorder = Recorder(library, tmp_path, (CLAIM, counted(3)))
    with connect(Target(url=recorder.url)) as connection:
        queue = Queue(connection, replace(QUEUE, keeps_skipped=True))
        claim(queue, 2, HIGHEST, BatchLimits(rows=rows, bytes=1 << 20), lambda *_: ())
    (execution,) = [each for each in recorder.executions() if "COUNT_BIG" in each.text]
    assert [each.value for each in execution.bound] == [2, end]


def test_a_claim_that_stepped_over_no_row_is_kept(claiming):
    found, statements, endings = claiming(take, CLAIM, counted(3), keeps_skipped=True)
    assert (found.live, found.stepped_over) == (RowSet([(5, 6), (9, 9)]), False)
    assert (statements, endings) == (["claim", "count_range"], [])


def test_a_claim_on_a_heap_keeps_no_key_of_others(claiming):
    """It is rolled back, and only the rows that it had got are sought again."""
    found, statements, endings = claiming(take, CLAIM, counted(4), again(5, 6, 9), keeps_skipped=True)
    assert (found.live, found.sizes.tolist(), found.stepped_over) == (
        RowSet([(5, 6), (9, 9)]),
        [700] * 3,
        True,
    )
    assert (statements, endings) == (["claim", "count_range", "claim_runs"], ["rollback"])


def test_what_is_taken_meanwhile_is_not_stepped_over(claiming):
    """It is rolled back again, until all rows that are sought are got."""
    answers = (CLAIM, counted(4), again(5, 9), again(5), again(5))
    found, statements, endings = claiming(take, *answers, keeps_skipped=True)
    assert found.live == RowSet([(5, 5)])
    assert statements == ["claim", "count_range", *["claim_runs"] * 3]
    assert endings == ["rollback"] * 3


def test_a_claim_on_a_heap_may_lose_all_its_rows(claiming):
    found, _, endings = claiming(take, CLAIM, counted(4), again(), keeps_skipped=True)
    assert (found, endings) == (None, ["rollback"])


@pytest.mark.parametrize(
    "rows,versions,asked", [(3, False, ["count_range"]), (10, False, []), (3, True, []), (10, True, [])]
)
def test_a_claim_on_a_clustered_table_stays(rows, versions, asked, claiming):
    """It keeps nothing of the rows that it stepped over.

    They matter only if the next batch might be claimed ahead.
    """
    few = partial(take, limits=BatchLimits(rows=rows, bytes=1 << 20))
    found, statements, endings = claiming(few, CLAIM, counted(4), row_versions=versions)
    assert (found.live, found.stepped_over) == (RowSet([(5, 6), (9, 9)]), bool(asked))
    assert (statements, endings) == (["claim", *asked], [])


def held(queue, limits, bearable=None, **options) -> NextBatch | None:
    """The batch that is claimed within limits; None where there are no rows."""
    given = {"url": "sqlserver://h/shop", "queue": "orders", **options}
    claims = Claims(SourceOptions.parse(given), time.monotonic)
    claims.bearable = bearable or claims.bearable

    def turn():
        part = claims.find(queue, LOWEST, HIGHEST, limits.at_most(claims.bearable.rows))
        return [] if part is None else [part]

    return claims.make(session_of(queue), None, turn)


IDS = Answer("q.Id", "iw", [[5, ID], [9, ID]])


@pytest.mark.parametrize("versions,deleting", [(False, []), (True, ["delete"])])
def test_rows_are_deleted_when_claimed_if_reads_see_versions(versions, deleting, claiming):
    """One-row receivers then count nothing, and rest; else they would try each row that is claimed,
    again and again.
    """
    answers = (CLAIM, counted(3), IDENTITY, IDS, *DELETED)
    found, statements, endings = claiming(partial(held, limits=LIMITS), *answers, row_versions=versions)
    assert (found.parts[0].deleted, found.parts[0].live) == (versions, RowSet([(5, 6), (9, 9)]))
    assert statements == ["claim", "identity", "ids", *deleting]
    assert endings == []


@pytest.mark.parametrize("versions,others,ahead", [(False, 3, True), (False, 4, False), (True, 4, True)])
def test_none_is_claimed_ahead_among_rows_of_others(versions, others, ahead, claiming):
    """Where they would have to step over twice as many rows."""
    limits = BatchLimits(rows=3, bytes=1 << 20)
    answers = (CLAIM, counted(others), IDENTITY, IDS, *DELETED)
    found, *_ = claiming(partial(held, limits=limits), *answers, row_versions=versions)
    assert any(part.full for part in found.parts) is ahead


@pytest.mark.parametrize(
    "versions,asked,expected", [(False, 10, 2), (True, 10, 10), (False, 1, 1), (False, HIGHEST, 256)]
)
def test_a_batch_that_others_step_over_is_small(
    versions, asked, expected, claiming, library, tmp_path, monkeypatch
):
    """Unless the caller has asked for everything."""
    monkeypatch.setattr(batch_size, "MOST_LOCKED_BATCH_ROWS", 2)
    recorder = Recorder(library, tmp_path, [Answer("OFFSET 0 ROWS", "ibi", [])])
    with connect(Target(url=recorder.url)) as connection:
        table = replace(QUEUE, row_versions=versions)
        assert held(Queue(connection, table), limits=BatchLimits(rows=asked, bytes=1 << 20)) is None
    (execution,) = [each for each in recorder.executions() if "OFFSET 0 ROWS" in each.text]
    assert execution.bound[-1].value == expected


@pytest.mark.parametrize(
    "versions,hints", [(False, "READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK"), (True, "FORCESEEK")]
)
def test_claimed_rows_are_read_without_locks_if_reads_see_versions(versions, hints):
    text = str(read_statement(SQLSERVER, replace(QUEUE, row_versions=versions)))
    assert f"WITH ({hints})" in text


@pytest.mark.parametrize("number", [701, 1204, 8645, 40550])
@pytest.mark.parametrize("asked,next_rows", [(20_000, 10_000), (1, 1), (HIGHEST, 500_000)])
def test_a_claim_that_was_too_large_is_halved(number, asked, next_rows, claiming, caplog):
    """It would be too large as often as it is tried again."""
    bearable = BearableRows()
    refused = Answer(
        "OFFSET 0 ROWS", rows=[Refused("42000", number, f"[recording][SQL Server]No. ({number})")]
    )
    limits = BatchLimits(rows=asked, bytes=1 << 20)
    with pytest.raises(TooMuch):
        claiming(partial(held, limits=limits, bearable=bearable), refused)
    assert bearable.rows == next_rows
    assert f"claim_too_large queue=orders@[dbo]@[shop] next={next_rows}: " in caplog.text


def test_a_larger_claim_is_tried_again_after_a_while():
    bearable = BearableRows()
    bearable.too_large(1_000)
    for _ in range(20):
        assert bearable.rows == 500
        bearable.borne()
    assert bearable.rows == 1_000


def test_a_server_that_had_no_memory_for_a_minute_gets_large_claims_again_soon():
    """Each of fourteen tries was refused, down to a claim of 61 rows: their sizes were not to blame."""
    bearable = BearableRows()
    for _ in range(14):
        bearable.too_large(bearable.rows)
    sizes = []
    for _ in range(14):
        sizes.append(bearable.rows)
        bearable.borne()
    assert sizes == [61 * 2**claims for claims in range(14)]


def test_what_is_refused_at_once_when_it_is_tried_again_is_tried_after_a_while():
    bearable = BearableRows()
    bearable.too_large(1_000)
    bearable.too_large(500)
    bearable.borne()
    assert bearable.rows == 500
    bearable.too_large(500)
    for _ in range(20):
        assert bearable.rows == 250
        bearable.borne()
    assert bearable.rows == 500


@pytest.mark.parametrize("options, rows", [({}, 10), ({"maxMessagesPerTrigger": "100"}, 100)])
def test_a_heap_has_two_locks_a_row(options, rows, library, tmp_path, monkeypatch):
    """Who sets the rows of a batch has them."""
    monkeypatch.setattr(batch_size, "MOST_LOCKED_BATCH_ROWS", 20)
    recorder = Recorder(library, tmp_path, [Answer("OFFSET 0 ROWS", "ibi", [])])
    with connect(Target(url=recorder.url)) as connection:
        queue = Queue(connection, replace(QUEUE, keeps_skipped=True))
        assert held(queue, limits=BatchLimits(rows=100, bytes=1 << 20), **options) is None
    (execution,) = [each for each in recorder.executions() if "OFFSET 0 ROWS" in each.text]
    assert execution.bound[-1].value == rows


def test_a_stream_opens_its_queue_and_claims_its_first_rows(library, tmp_path):
    """From the first statement of its session on."""
    oldest = Answer("AS nth", "iiiiiiii", [[0, 0, 5, 9, 3, 3, 0, 0]])
    ids = Answer("CONVERT(char(36), q.Id)", "iw", [[number, ID] for number in (5, 6, 9)])
    opened = (DATABASE, IDENTITY, TABLE_COLUMNS, STORAGE)
    recorder = Recorder(library, tmp_path, [*opened, oldest, CLAIM, oldest, IDENTITY, ids])
    receiver = Receiver(SourceOptions.parse({"url": recorder.url, "queue": "orders"}))
    try:
        claimed = receiver.latest(None, 100)
        assert claimed is not None
        assert claimed.live == RowSet([(5, 6), (9, 9)])
    finally:
        receiver.close()
