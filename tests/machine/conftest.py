"""The world of the machine's tests: one server and one database for all scenarios of a file.

While it is there, every connection of this process is the machine's: other tests want their own.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.machine.search import own_world
from tests.machine.world import World


@pytest.fixture(scope="module")
def _world() -> Iterator[World]:
    with own_world() as world:
        yield world


@pytest.fixture
def world(_world: World) -> Iterator[World]:
    """Nothing is logged: a scenario tells its own story."""
    logging.disable(logging.CRITICAL)
    yield _world
    logging.disable(logging.NOTSET)
