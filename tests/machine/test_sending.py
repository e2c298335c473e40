import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_outbox_sends_each_message_once(world: World) -> None:
    """Whatever befalls the stream."""
    holds(world, "sending")
