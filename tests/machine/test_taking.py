import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mode_none_delivers_nothing_twice(world: World) -> None:
    """Whatever befalls the stream."""
    holds(world, "taking")
