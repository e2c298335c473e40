"""The assertion that the machine's tests share."""

import pytest

from tests.machine.search import search
from tests.machine.world import World

#: So many scenarios of each family are played, which takes two minutes of a processor in all. Without a fix 50
#: scenarios have found most broken promises.
EXAMPLES = {
    "storing": 180,
    "atomic": 130,
    "sending": 150,
    "taking": 180,
    "several": 150,
    "handling": 60,
    "forwarding": 60,
}


def holds(world: World, shard: str) -> None:
    """Play scenarios of a family, the same each time; fail with the shortest story that breaks a promise."""
    done = search(world, shard, EXAMPLES[shard])
    if done.found_after is not None:
        pytest.fail(f"{done.story}\n\nTo play it again:\n{done.scenario}", pytrace=False)
