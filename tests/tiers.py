"""The tier of a test: how often it runs. It follows from the test's folder, or from the marker ``tier``.

Many tests of conformance, of faults and of the lock model ask one question of several modes, steps or inputs.
These variants take half of the time. So the first variant of a test runs in its folder's tier, and the others
at night. What stands upon the core, one queue in one database, waits for ``all``.
"""

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


#: The folders whose tests have their variants in several tiers, on each engine.
VARIED = ("lock_model", "conformance", "faults")
#: What the names of their files say where the subject is more than one queue in one database, as a stream
#: reads it by default.
UPON_THE_CORE = (
    "between_two_tries",
    "databases_down",
    "destructive_read",
    "headroom",
    "moved_rows",
    "several_queues",
    "stage",
    "store_and_forward",
    "two_databases",
    "waiting_rows",
)


def tiers_of(items: Iterable[pytest.Item]) -> dict[pytest.Item, str]:
    """The tier of each test.

    :raises pytest.UsageError: its folder has no tier, or its marker names none.
    """
    found, seen = {}, set[tuple[object, ...]]()
    for item in items:
        marker, folder = item.get_closest_marker("tier"), item.path.parent.name
        tier = FOLDERS.get(folder) if marker is None else marker.args[0]
        if tier not in TIERS:
            raise pytest.UsageError(
                f"{item.nodeid} has the tier {tier!r}; give its folder one of {TIERS} in tests/tiers.py."
            )
        if marker is None and folder in VARIED:
            name = (item.nodeid.partition("[")[0], *_engines(item))
            if name in seen:
                tier = "nightly"
            elif any(each in item.path.stem for each in UPON_THE_CORE):
                tier = "all"
            seen.add(name)
        found[item] = str(tier)
    return found


def _engines(item: pytest.Item) -> list[object]:
    """The engines on which a test runs: on each it has variants of its own."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return [params.get(name) for name in ("engine", "outbox_database")]


def tiers(named: str) -> Iterable[str]:
    """The tiers that the option ``--tier`` names, with commas between; all of them where it is empty.

    :raises pytest.UsageError: there is no tier of that name.
    """
    chosen = named.split(",") if named else TIERS
    if unknown := set(chosen) - set(TIERS):
        raise pytest.UsageError(f"--tier names {sorted(unknown)}; the tiers are {', '.join(TIERS)}.")
    return chosen
