"""The copy of a message that was processed, for an audit queue.

Format: the headers of NServiceBus, as endpoints write them into the copies that ServiceControl's audit instance reads.
"""

from __future__ import annotations

import functools
import socket
import uuid
from datetime import datetime

from sqlqueue_spark.messages.acknowledgement import ACKNOWLEDGEMENT_SENT
from sqlqueue_spark.messages.failure_headers import PROCESSING_MACHINE
from sqlqueue_spark.messages.message import (
    FORWARD_DESTINATION,
    MESSAGE_ID,
    changed_headers,
    format_time,
    parse_headers,
)
from sqlqueue_spark.messages.outgoing import TIME_TO_BE_RECEIVED
from sqlqueue_spark.messages.servicecontrol import PROCESSING_ENDPOINT

_STARTED, _ENDED = "NServiceBus.ProcessingStarted", "NServiceBus.ProcessingEnded"
_HOST_ID, _HOST_NAME = "$.diagnostics.hostid", "$.diagnostics.hostdisplayname"
#: What a copy may not take along, or gets anew.
_LOST = {TIME_TO_BE_RECEIVED, FORWARD_DESTINATION, _STARTED, _ENDED, _HOST_ID, _HOST_NAME, PROCESSING_MACHINE, PROCESSING_ENDPOINT}  # fmt: skip


def audit_headers(
    text: str | None, *, endpoint: str, row_id: str, processed: datetime, acknowledged: bool
) -> str:
    """The headers of the copy, as JSON; those of the message stay byte for byte.

    :param text: the message's headers as they were received, which can be read.
    :param endpoint: whose queue it was received in.
    :param row_id: the Id of the received row, by which a message is known that has no id.
    :param processed: when it was.
    :param acknowledged: whether ServiceControl had put it back, and was told.
    """
    headers = parse_headers(text) or {}
    machine, host = _host(endpoint)
    added = {
        _STARTED: format_time(processed),
        _ENDED: format_time(processed),
        _HOST_ID: host,
        _HOST_NAME: machine,
        PROCESSING_MACHINE: machine,
        PROCESSING_ENDPOINT: endpoint,
        **({ACKNOWLEDGEMENT_SENT: "true"} if acknowledged else {}),
    }
    lost = set(_LOST)
    if not headers.get(MESSAGE_ID):
        lost |= {MESSAGE_ID}
        added = {MESSAGE_ID: row_id, **added}
    return changed_headers(text, lost, added)


@functools.cache
def _host(endpoint: str) -> tuple[str, str]:
    """The machine, and an id of this endpoint on it, which lasts."""
    machine = socket.gethostname()
    return machine, uuid.uuid5(uuid.NAMESPACE_DNS, f"{endpoint}@{machine}").hex
