"""The copy of a message that was processed, for an audit queue.

Format: the headers that NServiceBus endpoints write into the copies for the audit instance of ServiceControl.
"""

from datetime import datetime

from sqlqueue_spark.messages.acknowledgement import ACKNOWLEDGEMENT_SENT
from sqlqueue_spark.messages.header_json import changed_headers
from sqlqueue_spark.messages.host import host_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, GIVE_UP_AT, ORIGIN, format_time
from sqlqueue_spark.messages.outgoing import TIME_TO_BE_RECEIVED
from sqlqueue_spark.messages.servicecontrol import PROCESSING_ENDPOINT

_STARTED, _ENDED = "NServiceBus.ProcessingStarted", "NServiceBus.ProcessingEnded"
#: Headers that a copy loses.
_LOST = (TIME_TO_BE_RECEIVED, FORWARD_DESTINATION, ORIGIN, GIVE_UP_AT)


def audit_headers(
    text: str | None, *, endpoint: str, row_id: str, started: datetime, ended: datetime, acknowledged: bool
) -> str:
    """The headers of the copy, as JSON; those of the message stay byte for byte.

    :param text: the message's headers as they were received, which can be read.
    :param endpoint: whose queue it was received in.
    :param row_id: the Id of the received row, by which a message is known that has no id.
    :param started: when its handler was called, and ``ended`` when that had answered.
    :param acknowledged: whether ServiceControl had put it back, and was told.
    """
    added = {
        _STARTED: format_time(started),
        _ENDED: format_time(ended),
        **host_headers(endpoint),
        PROCESSING_ENDPOINT: endpoint,
        **({ACKNOWLEDGEMENT_SENT: "true"} if acknowledged else {}),
    }
    return changed_headers(text, _LOST, added, row_id=row_id)
