"""Which received messages are not for the reader of the queue in which they stand.

A message in transit is a delayed message on its way through its sender's queue to another queue. The source
moves it on (``receive/claiming/in_transit.py``). One that cannot be moved, because there is no such queue for
example, goes to the error queue of the source. Without an error queue it stays a row of the batch, and fails
in the sink (``send/compose/outcome_builder.py``). A message that is only stored here, for another database,
is passed on by the sink, and so is one in transit to another database. No handler is called for any of them.
"""

from collections.abc import Mapping

from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.header_json import changed_headers, parse_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, STORED_EVENT, STORED_FOR
from sqlqueue_spark.messages.servicecontrol import FAILED_QUEUE

#: Where the options are not known: what leads to another queue by this leads there by any options.
UNKNOWN = Naming(
    default_schema="any",
    endpoint_schemas={"*": "any"},
    legacy_addresses=True,
    quoted_addresses=True,
    ignores_case=True,
)


def in_transit_to(headers: Mapping[str, str] | None) -> str | None:
    """Where a message is to go; None for an ordinary one. A failed message does not move on by itself."""
    return None if headers is None or FAILED_QUEUE in headers else headers.get(FORWARD_DESTINATION) or None


def as_stored(text: str | None) -> str | None:
    """The headers of a message for another database, as those of one that is stored here for it.

    One in transit then still says where it goes when it waits here, or comes back out of an error queue.
    """
    headers = parse_headers(text) or {}
    if headers.get(STORED_FOR) or headers.get(STORED_EVENT) or (to := in_transit_to(headers)) is None:
        return text
    return changed_headers(text, {FORWARD_DESTINATION}, {STORED_FOR: to})


def goes_elsewhere(headers: Mapping[str, str], queue: str, naming: Naming = UNKNOWN) -> bool:
    """Whether no function is called for a message of a queue. The sink has the last word."""
    stored, to = headers.get(STORED_FOR) or headers.get(STORED_EVENT), in_transit_to(headers)
    return bool(stored) or (to is not None and naming.way(to, queue) != "own")
