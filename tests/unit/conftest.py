import pytest

from tests.support import recording


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The driver that records what it is told, compiled."""
    if (reason := recording.missing()) is not None:
        pytest.skip(reason)
    return recording.compiled(tmp_path_factory.mktemp("recording"))
