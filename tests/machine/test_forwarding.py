import pytest

from tests.machine.support import holds
from tests.machine.world import World


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_is_stored_for_another_database_arrives_once(world: World) -> None:
    """Whatever befalls the job, and whatever databases are down meanwhile."""
    holds(world, "forwarding")
