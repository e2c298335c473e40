"""What the model says of remedies: which of the findings they take away, and which of them do not do."""

import pytest

from tests.lock_model.actors import (
    ALL,
    ITS_HANDLER,
    ONE_STATEMENT,
    THE_BATCH,
    VERSIONS,
    WINDOWS,
    Claim,
    Exactly,
    Reading,
    altering,
    counter,
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

CLUSTERED, _, HEAP, HEAP_EXPIRES = SHAPES
BOTH = pytest.mark.parametrize("shape", [CLUSTERED, HEAP], ids=str)
#: What others do to one another; no remedy of ours reaches it.
OF_OTHERS = {
    Finding("waits for a client", ("scanner", "receiver"), ITS_HANDLER),
    Finding("waits for a client", ("purge", "receiver"), ITS_HANDLER),
}


@pytest.mark.parametrize("rcsi", [False, True], ids=["RCSI off", "RCSI on"])
@pytest.mark.parametrize(
    "shape",
    [CLUSTERED, *(pytest.param(each, marks=pytest.mark.tier("all")) for each in SHAPES[1:3]), HEAP_EXPIRES],
    ids=str,
)
def test_with_all_remedies_no_session_waits_for_us_or_we_for_a_client(shape: Shape, rcsi: bool) -> None:
    """Slices and peeks in windows; heaps claimed exactly; under RCSI deleted at the claim,
    and read as versions.
    """
    claim = Claim(exactly="looked at" if shape.heap else "", deletes_at_claim=rcsi)
    report = sweep(shape, claim, VERSIONS if rcsi else WINDOWS, WINDOWS)
    assert set(report.findings) - OF_OTHERS == set()


@BOTH
def test_windows_leave_no_gaps_in_which_receivers_wait(shape: Shape) -> None:
    """``read``, a few rows a statement."""
    report = explore(
        stream(shape, Claim(workers=True)),
        worker(shape, WINDOWS),
        receiver(shape, fails=True),
        rows=(1, 2, 3),
    )
    assert (report.findings, set(report.outcomes)) == ({}, {("settled", "read all", "received")})


@pytest.mark.parametrize(
    "exactly, helps", [("", False), ("between", False), ("along the heap", False), ("looked at", True)]
)
def test_a_claim_is_made_exactly_only_if_all_it_looked_at_is_counted(exactly: Exactly, helps: bool) -> None:
    """``claim``. Rows before the first and after the last of the claim were stepped over, too. And the row of
    a heap goes before its key, so that a count along the heap misses it.
    """
    scanned = explore(stream(HEAP, Claim(exactly=exactly)), receiver(HEAP, scans=True))
    purged = explore(stream(HEAP_EXPIRES, Claim(exactly=exactly)), purge(HEAP_EXPIRES))
    found = set(scanned.findings) | set(purged.findings)
    assert found == (
        set()
        if helps
        else {
            Finding("deadlock", ("stream", "purge")),
            Finding("waits for a client", ("purge", "stream"), THE_BATCH),
            Finding("waits for a client", ("scanner", "stream"), THE_BATCH),
        }
    )


@pytest.mark.parametrize("patience, found", [(None, {("stream", "purge")}), (1, set())])
def test_a_purge_that_soon_gives_up_holds_up_no_session(
    patience: int | None, found: set[tuple[str, str]]
) -> None:
    """``purge_expired``. Three rows: claimed exactly, but a purge waits for an endpoint,
    and a stream for the purge.
    """
    report = explore(
        stream(HEAP_EXPIRES, Claim(most=1, exactly="looked at")),
        receiver(HEAP_EXPIRES),
        purge(HEAP_EXPIRES, ALL, patience=patience),
        rows=ALL,
    )
    assert {finding.who for finding in report.findings} - {("purge", "receiver")} == found


def test_an_operator_who_gives_up_starves_no_sender() -> None:
    """``remedy_space`` after SET LOCK_TIMEOUT: the sender waits no longer than that."""
    report = explore(stream(CLUSTERED), sender(CLUSTERED), altering(patience=1))
    assert {finding.who for finding in report.findings} == {("operator", "stream")}


@BOTH
def test_deleting_at_the_claim_goes_with_row_versions(shape: Shape) -> None:
    """``claim``, then ``delete`` in the same transaction; ``read`` without hints, under RCSI."""
    report = explore(
        stream(shape, Claim(workers=True, deletes_at_claim=True)),
        worker(shape, VERSIONS),
        receiver(shape, fails=True),
        rows=(1, 2, 3),
    )
    assert (report.findings, set(report.outcomes)) == ({}, {("settled", "read all", "received")})


@BOTH
def test_deleting_at_the_claim_fails_each_batch_that_is_read_past(shape: Shape) -> None:
    """``read`` with its hints steps over X: RCSI alone does not do, the hints must go as well."""
    report = explore(
        stream(shape, Claim(workers=True, deletes_at_claim=True)), worker(shape, WINDOWS), counter(shape)
    )
    assert set(report.outcomes) == {("batch failed", "read not all", "counted")}


@BOTH
def test_deleting_at_the_claim_stands_still_without_row_versions(shape: Shape) -> None:
    """A ``read`` that neither steps over rows nor sees versions waits for the claim,
    which waits for the read.
    """
    report = explore(
        stream(shape, Claim(workers=True, deletes_at_claim=True)),
        worker(shape, Reading(waits_for_rows=True)),
    )
    assert set(report.findings) == {
        Finding("circle", ("stream", "worker")),
        Finding("stands still", ("stream", "worker")),
    }


@BOTH
def test_deleting_at_the_claim_waits_for_a_peek_that_is_slow(shape: Shape) -> None:
    """``peek`` has to come in windows first."""
    slow = explore(stream(shape, Claim(deletes_at_claim=True)), peek(shape, ONE_STATEMENT))
    quick = explore(stream(shape, Claim(deletes_at_claim=True)), peek(shape, WINDOWS))
    assert [finding.who for finding in slow.findings] == [("stream", "peek")]
    assert quick.findings == {}


@pytest.mark.parametrize("reading", [WINDOWS, VERSIONS], ids=["windows", "versions"])
def test_a_worker_that_tries_again_outlasts_an_operator_who_gives_up(reading: Reading) -> None:
    """``read`` is tried three times, and waits each time for less than ``remedy_space`` does."""
    again = Reading(window=reading.window, versions=reading.versions, tries=3)
    report = explore(
        stream(CLUSTERED, Claim(workers=True)),
        worker(CLUSTERED, again, patience=1),
        altering(patience=2),
    )
    assert set(report.outcomes) == {
        ("settled", "read all", "altered"),
        ("settled", "read all", "LockTimeout"),
    }


def test_a_worker_that_gives_up_at_last_breaks_the_circle() -> None:
    """``remedy_space`` waits for ever, ``read`` does not. The batch fails, and its rows are free."""
    report = explore(
        stream(CLUSTERED, Claim(workers=True)),
        worker(CLUSTERED, Reading(window=2, tries=3), patience=1),
        altering(),
    )
    assert report.of("stands still", "deadlock", "lost") == []
    assert set(report.outcomes) == {
        ("settled", "read all", "altered"),
        ("batch failed", "read not all", "altered"),
    }


@pytest.mark.parametrize("tries, gives_up", [(1, "worker"), (3, "worker"), (9, "stream")])
def test_the_session_with_less_patience_breaks_the_circle(tries: int, gives_up: str) -> None:
    """The driver waits four times as long as one try of the worker. In the circle no other actor works."""
    report = explore(
        stream(CLUSTERED, Claim(workers=True, waits=4)),
        worker(CLUSTERED, Reading(window=3, tries=tries), patience=1),
        altering(),
    )
    assert report.of("stands still", "deadlock", "lost") == []
    assert (("batch failed", "read not all", "altered") in report.outcomes) == (gives_up == "worker")


@pytest.mark.parametrize("patience", [None, 3], ids=["for ever", "longer"])
def test_a_driver_with_less_patience_than_its_workers_breaks_it_too(patience: int | None) -> None:
    """But it cannot tell a circle from a batch that takes long, and gives up both."""
    report = explore(
        stream(CLUSTERED, Claim(workers=True, waits=2)),
        worker(CLUSTERED, WINDOWS, patience=patience),
        altering(),
    )
    assert report.of("stands still", "deadlock", "lost") == []
    assert ("batch failed", "read all", "altered") in report.outcomes
