"""The tier of a test: how often it runs. It follows from the test's folder, or from the marker ``tier``."""

from collections.abc import Iterable

import pytest

#: The tiers, the quickest first. What each promises stands in docs/testing.md.
TIERS = ("check", "test", "all", "nightly")
#: The tier of each folder of tests.
FOLDERS = {
    "unit": "check",
    "lock_model": "test",
    "conformance": "test",
    "faults": "test",
    "promises": "test",
    "send_model": "test",
    "command_line": "all",
    "machine": "all",
    "streaming": "all",
    "verdict": "all",
    "harness": "nightly",
}


def tier_of(item: pytest.Item) -> str:
    """The tier of a test.

    :raises pytest.UsageError: its folder has no tier, or its marker names none.
    """
    marker = item.get_closest_marker("tier")
    tier = marker.args[0] if marker is not None else FOLDERS.get(item.path.parent.name)
    if tier not in TIERS:
        raise pytest.UsageError(
            f"{item.nodeid} has the tier {tier!r}; give its folder one of {TIERS} in tests/tiers.py."
        )
    return str(tier)


def tiers(named: str) -> Iterable[str]:
    """The tiers that the option ``--tier`` names, with commas between; all of them where it is empty.

    :raises pytest.UsageError: there is no tier of that name.
    """
    chosen = named.split(",") if named else TIERS
    if unknown := set(chosen) - set(TIERS):
        raise pytest.UsageError(f"--tier names {sorted(unknown)}; the tiers are {', '.join(TIERS)}.")
    return chosen
