"""A stage by itself, without a source."""

import contextlib
from collections.abc import Iterator

import pytest

from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.options import ATOMIC, ConnectionOptions
from sqlqueue_spark.tables.stages.stage import Stage
from sqlqueue_spark.tables.stages.stage_name import table_of
from tests.support.engines import Engine
from tests.support.forwarding import NAME
from tests.support.sending import options

#: A stage is emptied only where no session has it, and a rehearsal waits a tenth of a second:
#: both give up waiting.
gives_way = pytest.mark.provokes("lock timeout")


@contextlib.contextmanager
def opened(engine: Engine, stream: str = NAME) -> Iterator[tuple[Connection, Stage]]:
    """A stage, created if it is not there, and its connection."""
    given = options(engine, queue="billing", transactionMode=ATOMIC, stream=stream)
    with connect(Target.of(ConnectionOptions.parse({"url": engine.url}))) as connection:
        found = Stage(connection, table_of(given), given)
        with connection.transaction():
            if not found.exists():
                found.create()
        yield connection, found


@contextlib.contextmanager
def settled(engine: Engine, stream: str = NAME) -> Iterator[None]:
    """Within the block an atomic source holds a claim; behind it the claim is settled,
    and what was staged for it goes out.
    """
    with opened(engine, stream) as (connection, found):
        with connection.transaction():
            found.hold()
            found.open("a claim")
        yield
        with connection.transaction():
            found.move("a claim")
