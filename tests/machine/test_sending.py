import pytest

from tests.machine.support import holds


@pytest.mark.timeout(600)
def test_whatever_befalls_the_stream_an_outbox_sends_each_message_once(world):
    holds(world, "sending")
