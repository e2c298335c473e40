"""Rows of an error queue, as a .NET endpoint and the sink write them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sqlqueue_spark.messages.message import format_time
from tests.support.engines import Engine, QueueTable
from tests.support.messages import body, headers, row_id

EXCEPTION = "NServiceBus.ExceptionInfo."
#: The headers that ServiceControl knows an acknowledgement by.
ACKNOWLEDGEMENT = {
    "ServiceControl.Retry.Successful": "2026-11-22 17:14:50:323690 Z",
    "ServiceControl.Retry.UniqueMessageId": "31ec6466-6a86-9984-a9d7-1fd6c50fdea8",
    "NServiceBus.ControlMessage": "True",
}


def full(engine: Engine, name: str = "orders", schema: str | None = None) -> str:
    """A queue's address as the transport writes it."""
    schema = schema or engine.default_schema
    return f'"{schema}"."{name}"' if engine.name == "postgresql" else f"{name}@[{schema}]"


def failure(queue: str, *, kind: str = "shop.OutOfStock", hours: float = 0) -> dict[str, str]:
    """The headers of a message that failed for a queue this many hours ago."""
    return {
        "NServiceBus.FailedQ": queue,
        "NServiceBus.ProcessingEndpoint": "orders",
        f"{EXCEPTION}ExceptionType": kind,
        f"{EXCEPTION}Message": "nothing left\nof it",
        f"{EXCEPTION}StackTrace": "Traceback:\n  here",
        "NServiceBus.TimeOfFailure": format_time(datetime.now(UTC) - timedelta(hours=hours)),
    }


def failed(number: int, added: Mapping[str, str]) -> str:
    """The headers of message ``number`` as it stands in the error queue: its own,
    byte for byte, and these.
    """
    return headers(number)[:-1] + "," + json.dumps(added)[1:]


def fail(
    queue: QueueTable, numbers: range, to: str, *, kind: str = "shop.OutOfStock", hours: float = 0
) -> None:
    """Put failed messages into an error queue."""
    added = failure(to, kind=kind, hours=hours)
    for number in numbers:
        queue.insert_row(id=row_id(number), headers=failed(number, added), body=body(number))
