"""What the model finds in the statements as they were: read as fast as Spark works, locked only, stepping
over rows on a heap.

A slice is read by ``read``, whose S locks stay to the end of the statement, because it returns (max) columns.
RCSI changes nothing here: every statement has hints that ask for locks.
"""

from dataclasses import replace

import pytest

from tests.lock_model.actors import (
    A_ROW,
    ALL,
    ITS_HANDLER,
    ONE_STATEMENT,
    ROW_BY_ROW,
    THE_BATCH,
    WHAT_WAS_READ,
    WINDOWS,
    Claim,
    Reading,
    altering,
    peek,
    purge,
    receiver,
    sender,
    stream,
    worker,
)
from tests.lock_model.explorer import Finding, explore
from tests.lock_model.sweep import sweep
from tests.lock_model.table import SHAPES, Shape

CLUSTERED, CLUSTERED_EXPIRES, HEAP, HEAP_EXPIRES = SHAPES
BOTH = pytest.mark.parametrize("shape", [CLUSTERED, HEAP], ids=str)

#: Of ``stream`` (claim, delete) with every two others, and with its worker (read) and one other. Nothing is
#: ever lost, and nothing stands still.
FOUND = {
    CLUSTERED: {
        Finding("waits for a client", ("receiver", "peek"), A_ROW),
        Finding("waits for a client", ("stream", "peek"), A_ROW),
    },
    CLUSTERED_EXPIRES: {
        Finding("waits for a client", ("purge", "peek"), A_ROW),
        Finding("waits for a client", ("stream", "peek"), A_ROW),
        Finding("waits for a client", ("stream", "purge"), A_ROW),
    },
    HEAP: {
        Finding("waits for a client", ("receiver", "peek"), A_ROW),
        Finding("waits for a client", ("scanner", "peek"), A_ROW),
        Finding("waits for a client", ("scanner", "receiver"), ITS_HANDLER),
        Finding("waits for a client", ("scanner", "stream"), A_ROW),
        Finding("waits for a client", ("scanner", "stream"), THE_BATCH),
        Finding("waits for a client", ("stream", "peek"), A_ROW),
    },
    HEAP_EXPIRES: {
        Finding("deadlock", ("stream", "purge")),
        Finding("waits for a client", ("purge", "peek"), A_ROW),
        Finding("waits for a client", ("purge", "receiver"), ITS_HANDLER),
        Finding("waits for a client", ("purge", "stream"), A_ROW),
        Finding("waits for a client", ("purge", "stream"), THE_BATCH),
        Finding("waits for a client", ("scanner", "stream"), THE_BATCH),
        Finding("waits for a client", ("stream", "peek"), A_ROW),
        Finding("waits for a client", ("stream", "purge"), A_ROW),
    },
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_who_waits_for_whom_in_all_threesomes(shape: Shape) -> None:
    """``claim``, ``delete``, ``read``, ``peek``, ``insert``,
    ``purge_expired`` and the statements of an endpoint.
    """
    assert set(sweep(shape, Claim(), ONE_STATEMENT, ONE_STATEMENT).findings) == FOUND[shape]


def test_the_order_of_the_indexes_makes_no_difference() -> None:
    shape = replace(HEAP_EXPIRES, expires_first=True)
    assert set(sweep(shape, Claim(), ONE_STATEMENT, ONE_STATEMENT).findings) == FOUND[HEAP_EXPIRES]


def test_if_keys_were_freed_a_heap_would_be_like_a_clustered_table() -> None:
    """No manual says whether the key of a row that is stepped over is kept.

    All that a heap has of its own hangs on it.
    """
    shape = replace(HEAP, frees_keys=True)
    assert set(sweep(shape, Claim(), ONE_STATEMENT, ONE_STATEMENT).findings) == {
        Finding("waits for a client", ("receiver", "peek"), A_ROW),
        Finding("waits for a client", ("scanner", "peek"), A_ROW),
        Finding("waits for a client", ("stream", "peek"), A_ROW),
    }
    shape = replace(HEAP_EXPIRES, frees_keys=True)
    assert set(sweep(shape, Claim(), ONE_STATEMENT, ONE_STATEMENT).findings) == {
        Finding("waits for a client", ("purge", "peek"), A_ROW),
        Finding("waits for a client", ("stream", "peek"), A_ROW),
    }


@BOTH
@pytest.mark.parametrize("reading", [ONE_STATEMENT, ROW_BY_ROW], ids=["statement", "row"])
def test_a_receiver_waits_in_the_gaps_of_a_slice(shape: Shape, reading: Reading) -> None:
    """``read``: in its range lie rows that are not the claim's.

    Freed row by row, S still is on the row that is fetched.
    """
    report = explore(
        stream(shape, Claim(workers=True)),
        worker(shape, reading),
        receiver(shape, fails=True),
        rows=(1, 2, 3),
    )
    assert set(report.findings) == {Finding("waits for a client", ("receiver", "worker"), A_ROW)}


@BOTH
def test_a_peek_keeps_a_batch_from_being_settled(shape: Shape) -> None:
    """``peek`` and ``delete``: S on what the claim has under U, while X is wanted."""
    report = explore(stream(shape), peek(shape), sender(shape))
    assert set(report.findings) == {Finding("waits for a client", ("stream", "peek"), A_ROW)}


def test_a_claim_keeps_the_key_of_a_row_that_it_stepped_over() -> None:
    """``claim`` on a heap, and a receiver that scans: it has the row,
    and waits for the key until the batch is settled.
    """
    report = explore(stream(HEAP), receiver(HEAP, scans=True))
    finding = Finding("waits for a client", ("scanner", "stream"), THE_BATCH)
    assert set(report.findings) == {finding}
    assert str(report.findings[finding]) == (
        "|  | stream | scanner |\n"
        "| --- | --- | --- |\n"
        "| 1 | U key 1 |  |\n"
        "| 2 | U rid 1 |  |\n"
        "| 3 | U key 2 |  |\n"
        "| 4 |  | steps over U rid 1 |\n"
        "| 5 |  | U rid 2 |\n"
        "| 6 | steps over U rid 2 |  |\n"
        "| 7 | says: claimed |  |\n"
        "| 8 |  | X rid 2 |\n"
        "| 9 |  | waits for X key 2 |\n"
        "| now | works on the batch | waits for stream (X key 2) |"
    )


@pytest.mark.parametrize("frees_keys", [False, True])
def test_locking_again_and_a_scan_end_in_a_deadlock(frees_keys: bool) -> None:
    """``lock`` on a heap waits for a row whose key it has. The loser tries again; nothing is lost."""
    shape = replace(HEAP, frees_keys=frees_keys)
    report = explore(stream(shape, Claim(loses_connection=True)), receiver(shape, scans=True))
    assert report.of("deadlock", "circle", "stands still", "lost") == [
        ("deadlock", ("stream", "scanner"), "")
    ]
    assert {outcome[0] for outcome in report.outcomes} == {"settled", "nothing there"}


def test_a_purge_and_a_claim_end_in_a_deadlock_that_the_purge_loses() -> None:
    """``purge_expired``, ``claim`` and ``delete`` on a heap, as docs/sqlserver-locking.md has it."""
    report = explore(stream(HEAP_EXPIRES), purge(HEAP_EXPIRES))
    assert report.of("deadlock", "circle", "stands still", "lost") == [("deadlock", ("stream", "purge"), "")]
    assert set(report.outcomes) == {
        ("settled", "purged"),
        ("settled", "Deadlocked"),
        ("nothing there", "purged"),
    }


def test_a_purge_passes_on_that_it_waits_for_a_receiver() -> None:
    """``delete`` waits for a key that ``purge_expired`` keeps,
    which waits for a key that an endpoint keeps: three rows.
    """
    report = explore(stream(HEAP_EXPIRES), receiver(HEAP_EXPIRES), purge(HEAP_EXPIRES, ALL), rows=ALL)
    assert set(report.findings) == {
        Finding("deadlock", ("stream", "purge")),
        Finding("waits for a client", ("purge", "receiver"), ITS_HANDLER),
        Finding("waits for a client", ("purge", "stream"), THE_BATCH),
        Finding("waits for a client", ("receiver", "purge"), THE_BATCH),
        Finding("waits for a client", ("stream", "purge"), ITS_HANDLER),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_waiting_rebuild_makes_a_circle_that_no_server_sees(shape: Shape) -> None:
    """``claim``, ``remedy_space``, ``read``. Without a lock timeout the three stand still for ever."""
    report = explore(stream(shape, Claim(workers=True)), worker(shape, WINDOWS), altering())
    assert set(report.findings) == {
        Finding("circle", ("stream", "worker", "operator")),
        Finding("stands still", ("stream", "worker", "operator")),
        Finding("waits for a client", ("operator", "stream"), WHAT_WAS_READ),
    }


def test_the_lock_timeout_of_a_worker_fails_the_batch_at_once() -> None:
    """``read``: the circle ends with error 1222 in the task,
    although the operator would have given up a moment later.
    """
    report = explore(
        stream(CLUSTERED, Claim(workers=True)),
        worker(CLUSTERED, patience=1),
        altering(patience=2),
    )
    assert report.of("stands still", "deadlock", "lost") == []
    assert ("batch failed", "read not all", "altered") in report.outcomes


@BOTH
def test_a_sender_starves_behind_a_waiting_rebuild(shape: Shape) -> None:
    """``insert`` waits behind ``remedy_space``, which waits until the batch is settled."""
    report = explore(stream(shape), sender(shape), altering())
    assert set(report.findings) == {
        Finding("waits for a client", ("operator", "stream"), THE_BATCH),
        Finding("waits for a client", ("sender", "operator"), THE_BATCH),
    }
