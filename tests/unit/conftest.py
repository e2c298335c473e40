import pytest

from tests.support import handlers_time, recording


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The driver that records what it is told, compiled."""
    if (reason := recording.missing()) is not None:
        pytest.skip(reason)
    return recording.compiled(tmp_path_factory.mktemp("recording"))


@pytest.fixture
def standing_time():
    """Handlers take no time, unless they say that it passes."""
    with handlers_time.standing():
        yield
