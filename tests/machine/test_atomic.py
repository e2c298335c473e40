import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whatever_befalls_the_stream_an_atomic_pipeline_has_each_message_at_its_source_or_its_destination(
    world: World,
) -> None:
    holds(world, "atomic")
