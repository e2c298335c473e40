import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_message_has_one_outcome(world: World) -> None:
    """Whatever befalls the stream, and whatever its function answers."""
    holds(world, "handling")
