"""The end of a run against a SQL Server says what it was worth."""

from types import SimpleNamespace

from tests.support import live_report


def report(nodeid, longrepr=""):
    return SimpleNamespace(nodeid=nodeid, longrepr=longrepr)


LACKS = "this server is not SQL Server, and lacks what the test needs: {}"
STATS = {
    "": [report("tests/faults/test_core.py::test_setup")],
    "passed": [
        report("tests/conformance/test_claim.py::test_a[sqlserver-a/b::c]"),
        report("tests/faults/test_core.py::test_b"),
    ],
    "failed": [report("tests/conformance/test_claim.py::test_b")],
    "error": [report("tests/conformance/test_claim.py::test_b")],
    "skipped": [
        report("tests/conformance/test_claim.py::test_c", ("file", 1, LACKS.format("measures_utf16"))),
        report("tests/faults/test_core.py::test_d", ("file", 2, LACKS.format("measures_utf16"))),
        report("tests/faults/test_core.py::test_e", ("file", 3, "Skipped: another reason")),
    ],
}


def test_outcomes_are_counted_by_layer():
    assert list(live_report.layers(STATS)) == [
        "conformance: 1 passed, 1 failed, 1 broke off, 1 skipped",
        "faults: 1 passed, 2 skipped",
    ]
    assert list(live_report.layers({})) == []


def test_skips_are_counted_by_what_a_server_lacks():
    assert live_report.lacking(STATS) == {"measures_utf16": 2}
