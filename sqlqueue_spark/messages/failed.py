"""The headers of a message that has failed, as a .NET endpoint writes them and ServiceControl reads them."""

from __future__ import annotations

from datetime import datetime

from sqlqueue_spark.messages.message import MESSAGE_ID, format_time

FAILED_QUEUE = "NServiceBus.FailedQ"
PROCESSING_ENDPOINT = "NServiceBus.ProcessingEndpoint"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
_EXCEPTION = "NServiceBus.ExceptionInfo."


def failure_headers(
    error: Exception, *, queue: str, endpoint: str, message_id: str, moment: datetime
) -> dict[str, str]:
    """What a message gets on its way to an error queue.

    :param queue: the queue that it failed for, a full address: whoever retries the message sends it there.
    :param endpoint: whose queue that is.
    :param message_id: what the message is known by, for a message whose headers do not say it.
    """
    kind = type(error)
    return {
        MESSAGE_ID: message_id,
        FAILED_QUEUE: queue,
        PROCESSING_ENDPOINT: endpoint,
        TIME_OF_FAILURE: format_time(moment),
        f"{_EXCEPTION}ExceptionType": f"{kind.__module__}.{kind.__qualname__}",
        f"{_EXCEPTION}Message": str(error).replace("\0", ""),
        f"{_EXCEPTION}StackTrace": "",
    }
