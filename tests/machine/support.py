"""The assertion that the machine's tests share."""

import pytest

from tests.machine.search import search
from tests.machine.world import World

#: How many scenarios of each family are played to find a fix that is gone; half of them where none is.
#: Without a fix 50 scenarios have found most broken promises.
EXAMPLES = {
    "storing": 180,
    "atomic": 130,
    "sending": 150,
    "taking": 180,
    "several": 150,
    "handling": 60,
    "forwarding": 60,
}
#: How many scenarios of each family are played before every commit.
FEW = 5


def holds(world: World, shard: str, examples: int = 0, *, seed: int | None = None) -> None:
    """Play scenarios of a family, the same each time; fail with the shortest story that breaks a promise.

    :param examples: how many; 0 is half of the family's number of :data:`EXAMPLES`.
    :param seed: which ones.
    """
    done = search(world, shard, examples or EXAMPLES[shard] // 2, seed_=seed)
    if done.found_after is not None:
        pytest.fail(f"{done.story}\n\nTo play it again:\n{done.scenario}", pytrace=False)
