"""Finds received rows that are in transit to another queue (:mod:`sqlqueue_spark.messages.transit`): they are not passed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sqlqueue_spark.engines.connect import Target
from sqlqueue_spark.errors import ConfigurationError, Unsendable
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, parse_headers
from sqlqueue_spark.messages.transit import in_transit_to
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.header_shapes import Alike


def in_transit(
    groups: Sequence[Alike], queues: pa.Array, options: SinkOptions
) -> Iterator[tuple[int, str, Unsendable]]:
    """The messages that were received in transit to another queue: to pass one on would keep it from its reader.

    :param queues: where each row was received; NULL where the frame does not tell. Then the message counts as arrived,
        because the source moves on what is on its way.
    :returns: the position of each, the address that it is to go to, and the error that it makes.
    """
    for group in groups:
        if FORWARD_DESTINATION not in group.asked:
            continue
        columns = (
            group.positions,
            group.texts,
            group.asked[FORWARD_DESTINATION],
            queues.take(group.positions),
        )
        for at, text, wanted, queue in zip(*(each.to_pylist() for each in columns), strict=True):
            if not wanted or not queue:
                continue
            to = in_transit_to({**(parse_headers(text) or {}), FORWARD_DESTINATION: wanted})
            if to is not None and not _one_queue(options, to, queue):
                error = Unsendable(
                    at,
                    f"A row is a delayed message on its way to {wanted!r}, not one for the queue {queue!r}, so it is not passed on; "
                    "see why it cannot be moved there (is there such a queue, and may this login insert into it?), set the option "
                    f"errorQueue, and such rows go there, or filter them by the header {FORWARD_DESTINATION}.",
                )
                yield at, wanted, error


def _one_queue(options: SinkOptions, *addresses: str) -> bool:
    """Whether these addresses mean one queue. The case of letters does not count, as on most servers."""
    naming = options.naming(Target.of(options).dialect)
    try:
        tables = {(table.schema.casefold(), table.table.casefold()) for table in map(naming.table, addresses)}
    except ConfigurationError:
        return False
    return len(tables) == 1
