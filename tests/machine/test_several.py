import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stream_over_several_queues_keeps_the_promises_of_each(
    world: World,
) -> None:
    """In each mode, whatever befalls it or one of its queues, and whatever queues it reads."""
    holds(world, "several")
