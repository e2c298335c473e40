"""The acknowledgement of a message that ServiceControl had put back: it was handled, its failure is resolved.

Format: the control messages that NServiceBus sends for it, observed on ServiceControl 6.19.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlqueue_spark.messages.arrow import pa, pc
from sqlqueue_spark.messages.header_json import format_headers, parse_headers
from sqlqueue_spark.messages.message import CONTROL_MESSAGE, TIME_SENT, format_time
from sqlqueue_spark.messages.outgoing import lasting
from sqlqueue_spark.messages.servicecontrol import RETRY_ID, RETRY_SUCCESSFUL

_QUEUE = "ServiceControl.Retry.AcknowledgementQueue"
#: In the audited copy of a message that was acknowledged.
ACKNOWLEDGEMENT_SENT = "ServiceControl.Retry.AcknowledgementSent"
#: The headers of a message that ServiceControl has put back; they end with the acknowledgement.
OF_RETRY = frozenset({_QUEUE, RETRY_ID})


class Owed(NamedTuple):
    """An acknowledgement that is owed: to the queue at this address, for the failed message of this id."""

    queue: str
    id: str


def owed_by(texts: "pa.Array") -> dict[int, Owed]:
    """The acknowledgements that messages ask for, by position: those that ServiceControl has put back.

    :param texts: the messages' headers as JSON.
    """
    asking = pc.indices_nonzero(pc.fill_null(pc.match_substring(texts, RETRY_ID), False)).to_pylist()
    read = {at: parse_headers(texts[at].as_py()) or {} for at in asking}
    return {
        at: Owed(headers[_QUEUE], headers[RETRY_ID])
        for at, headers in read.items()
        if headers.get(_QUEUE) and headers.get(RETRY_ID)
    }


def acknowledgements(ids: Sequence[str], now: datetime) -> "pa.RecordBatch":
    """Acknowledgements as messages (:data:`OUTGOING`)."""
    time = format_time(now)
    headers = [
        format_headers({RETRY_SUCCESSFUL: time, RETRY_ID: id_, CONTROL_MESSAGE: "True", TIME_SENT: time})
        for id_ in ids
    ]
    return lasting(headers, pa.array([b""] * len(ids), pa.binary()))
