"""The tier of a test: how often it runs. Its folder gives it, or the marker ``tier`` of the test or its file.

A test may ask one question of several modes, steps or inputs. These variants take half of the time. Where a
tier names another one as ``variants``, the first variant of a test runs in the tier, the others in that one.
"""

from collections.abc import Iterable

import pytest

#: The tiers, the quickest first. What each promises stands in docs/testing.md.
TIERS = ("check", "test", "all", "nightly")
_tier = pytest.mark.tier
#: The tier of each folder of tests.
FOLDERS = {
    "unit": _tier("check"),
    "lock_model": _tier("test", variants="nightly"),
    "conformance": _tier("test", variants="nightly"),
    "faults": _tier("test", variants="nightly"),
    "promises": _tier("test"),
    "send_model": _tier("test"),
    "command_line": _tier("all"),
    "machine": _tier("all"),
    "streaming": _tier("all"),
    "verdict": _tier("all"),
    "harness": _tier("nightly"),
}


def tiers_of(items: Iterable[pytest.Item]) -> dict[pytest.Item, str]:
    """The tier of each test.

    :raises pytest.UsageError: neither a folder nor a marker gives it, or there is no tier of that name.
    """
    found, seen = {}, set[tuple[object, ...]]()
    for item in items:
        given = item.get_closest_marker("tier") or FOLDERS.get(item.path.parent.name)
        tier = given and given.args[0]
        if given and "variants" in given.kwargs:
            test = (item.nodeid.partition("[")[0], *_engines(item))
            tier = given.kwargs["variants"] if test in seen else tier
            seen.add(test)
        if tier not in TIERS:
            raise pytest.UsageError(
                f"{item.nodeid} has the tier {tier!r}; give its folder one of {TIERS} in tests/tiers.py."
            )
        found[item] = str(tier)
    return found


def _engines(item: pytest.Item) -> list[object]:
    """The engines on which a test runs: on each it has a first variant."""
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
