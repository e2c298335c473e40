"""A message in transit: a delayed message on its way through its sender's queue to another queue.

It is not for a reader of the queue in which it stands. The source moves it on
(``receive/claiming/in_transit.py``). One that cannot be moved, because there is no such queue for example,
goes to the error queue of the source. Without an error queue it stays a row of the batch. Then the sink does
not pass it on (``send/received_in_transit.py``), and no handler is called for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.messages.servicecontrol import FAILED_QUEUE


def in_transit_to(headers: Mapping[str, str] | None) -> str | None:
    """Where a message is to go; None for an ordinary one. A failed message does not move on by itself."""
    return None if headers is None or FAILED_QUEUE in headers else headers.get(FORWARD_DESTINATION) or None
