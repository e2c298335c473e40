"""Tests the machine itself: when a fix is taken out, it finds what the fix is for."""

import pytest

from tests.machine.search import search
from tests.machine.support import EXAMPLES
from tests.machine.without import FIXES, SOON, Fix
from tests.machine.world import World


@pytest.mark.tier("nightly")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fix", FIXES, ids=[fix.__name__ for fix in FIXES])
def test_a_broken_promise_is_found_without_a_fix(world: World, fix: Fix) -> None:
    shard = FIXES[fix]
    with fix():
        done = search(world, shard, EXAMPLES[shard], seed_=SOON.get(fix), shrink=False)
    assert done.found_after is not None
