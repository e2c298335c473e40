"""Gives the machine's tests their world: one server and one database for all scenarios of a file.

While the world is there, every connection of this process goes through the machine. Other tests want
connections of their own, so the world ends with the file.
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
    """The world, with logging off: a scenario tells its own story."""
    logging.disable(logging.CRITICAL)
    yield _world
    logging.disable(logging.NOTSET)
