"""The machine itself is tested: with a fix taken out it finds what the fix is for."""

import pytest

from tests.machine.search import search
from tests.machine.support import EXAMPLES
from tests.machine.without import FIXES


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.__name__)
def test_without_a_fix_a_broken_promise_is_found(world, fix):
    shard = FIXES[fix]
    with fix():
        done = search(world, shard, EXAMPLES[shard], shrink=False)
    assert done.found_after is not None
