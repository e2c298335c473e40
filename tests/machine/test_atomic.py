import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_atomic_pipeline_has_each_message_in_one_place(
    world: World,
) -> None:
    """At its source or at its destination, whatever befalls the stream."""
    holds(world, "atomic")
