import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sink_that_knows_batches_has_each_message_once(
    world: World,
) -> None:
    """It knows them by number; whatever befalls the stream."""
    holds(world, "storing")
