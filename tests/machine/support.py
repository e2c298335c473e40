"""What the machine's tests say."""

import pytest

from tests.machine.search import search
from tests.machine.world import World


def holds(world: World, shard: str, *, examples: int) -> None:
    """Play so many scenarios of a family, the same each time; fail with the shortest story that breaks a promise."""
    done = search(world, shard, examples)
    if done.found_after is not None:
        pytest.fail(f"{done.story}\n\nTo play it again:\n{done.scenario}", pytrace=False)
