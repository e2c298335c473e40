"""Some scenarios of each family, other ones than those of the family's own test."""

import pytest

from tests.machine.shards import SHARDS
from tests.machine.support import FEW, holds
from tests.machine.world import World


@pytest.mark.tier("test")
@pytest.mark.parametrize("family", SHARDS)
def test_each_family_keeps_its_promises(world: World, family: str) -> None:
    holds(world, family, FEW, seed=1)
