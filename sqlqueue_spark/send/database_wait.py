"""Waits for a database that is down, where messages for it cannot be parked: then their batch waits, and says so once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlqueue_spark.engines.connect import Target, connect
from sqlqueue_spark.errors import ConnectionLost, SqlQueueError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.send.destinations import Destinations

log = logger(__name__)

#: How often it looks whether it is to stop.
_STEP_SECONDS = 0.2


@dataclass(frozen=True)
class DatabaseWait:
    """Waits for the databases of ``endpoint.<name>.url``; for its own one a sink waits in any case, and not for long.

    :param stopped: whether somebody asks to stop.
    """

    options: SinkOptions
    stopped: Callable[[], bool] = lambda: False

    def waited(self, batch_id: int) -> bool:
        """Wait for a database that is down, for ``giveUpAfter`` at most; False where none is down, or it has not come back."""
        destinations = Destinations(self.options)
        own = Target.of(self.options)
        waited = False
        for target in destinations.everywhere():
            if target == own or (error := _lost(target)) is None:
                continue
            name = destinations.option_of(target)
            log.warning("batch_waits batch=%d database=%s retry_interval=%gs: it is down: %s",
                        batch_id, name, self.options.retry_interval.total_seconds(), error)  # fmt: skip
            if not self._comes_back(target):
                return False
            log.warning("database_back database=%s", name)
            waited = True
        return waited

    def _comes_back(self, target: Target) -> bool:
        end = time.monotonic() + self.options.give_up_after.total_seconds()
        while time.monotonic() < end:
            look = time.monotonic() + self.options.retry_interval.total_seconds()
            while time.monotonic() < look:
                if self.stopped():
                    return False
                time.sleep(_STEP_SECONDS)
            if _lost(target) is None:
                return True
        return False


def _lost(target: Target) -> ConnectionLost | None:
    """Why no connection can be had; None where one can, or where it is no passing trouble."""
    try:
        connect(target, again=True).close()
    except ConnectionLost as error:
        return error
    except SqlQueueError:
        return None
    return None
