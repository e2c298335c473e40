"""Every promise of sending holds in every order of steps and faults, but for what is named as inherent."""

from dataclasses import replace

import pytest

from tests.send_model.configuration import REFUSED_MEANWHILE, Configuration
from tests.send_model.configurations import CONFIGURATIONS
from tests.send_model.explorer import explore
from tests.send_model.rules import Rules

EACH = pytest.mark.parametrize("name", CONFIGURATIONS)
#: Those with the most worlds, in which several faults are played at night.
LARGE = (
    "a .NET endpoint moves what is delayed",
    "a function: two rows with one id",
    "an event for both databases",
    "atomic: a function, answers differ, another database",
    "central audit and acknowledgement queues: a function",
    "central audit and acknowledgement queues: passed on",
    "central error queue of passed-on rows",
    "home forgets: a function, one answer, another database",
    "home forgets: a function, within home",
    "home forgets: to another database",
    "two rows with one id to one place",
    "two rows with one id to one place, missing",
)
#: Passed-on rows whose destination changes between two tries. (A plain message has no row to lock.)
LEFT_OPEN = [name for name, each in CONFIGURATIONS.items() if each.inherent == REFUSED_MEANWHILE]
LEFT_OPEN = [each for each in LEFT_OPEN if CONFIGURATIONS[each].rows[0].kind != "plain"]


def with_budget(configuration: Configuration, more: int) -> Configuration:
    return replace(configuration, budget=configuration.budget + more - configuration.slow)


@EACH
def test_promises_hold_after_one_fault(name: str) -> None:
    found = explore(replace(CONFIGURATIONS[name], budget=1 - CONFIGURATIONS[name].slow))
    assert found.wrong == {}, found.story()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.tier("nightly" if name in LARGE else "all"))
        for name in CONFIGURATIONS
    ],
)
def test_promises_hold_after_several_faults(name: str) -> None:
    """What is inherent never appears without the faults that the configuration names for it."""
    found = explore(with_budget(CONFIGURATIONS[name], 0))
    assert found.wrong == {}, found.story()
    assert found.inherent.keys() == CONFIGURATIONS[name].inherent.keys(), found.story()


@pytest.mark.tier("nightly")
@pytest.mark.timeout(1800)
@EACH
def test_promises_hold_after_one_fault_more(name: str) -> None:
    found = explore(with_budget(CONFIGURATIONS[name], 1))
    assert found.wrong == {}, found.story()


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", LEFT_OPEN)
def test_a_lock_of_all_tries_would_close_what_a_changed_destination_leaves_open(name: str) -> None:
    """The rule ``failed_alone`` is not taken; docs/decisions/rules-of-sending.md."""
    found = explore(CONFIGURATIONS[name], Rules(failed_alone=True))
    assert (found.wrong, found.inherent) == ({}, {})
