"""Makes sample messages of a given size, as the .NET endpoint of a shop would send them.

They are made from templates, several hundred thousand a second, so that a load measures the database.
"""

import socket
from datetime import datetime

from sqlqueue_spark.messages.arrow import pa
from sqlqueue_spark.messages.header_json import format_headers
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, TIME_SENT, format_time
from sqlqueue_spark.messages.outgoing import (
    CONTENT_TYPE,
    CONVERSATION_ID,
    CORRELATION_ID,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    ORIGINATING_MACHINE,
    REPLY_TO_ADDRESS,
    new_id_texts,
    new_row_ids,
)

#: The queue of the sender.
REPLY_TO = "Shop.Web"
_SKUS = ("APPLE-1KG", "BREAD-RYE", "COFFEE-500", "HONEY-250", "OLIVES-370", "PASTA-500", "TEA-GREEN-50")
_NOTE = "Please leave the parcel with a neighbour on the second floor if there is no answer, and ring twice. "


def batch(
    first: int, count: int, size: int, *, now: datetime, reply_to: str, ttl_ms: int | None = None
) -> "pa.RecordBatch":
    """Make ``count`` messages (:data:`OUTGOING`), numbered from ``first``.

    :param size: bytes of headers and body of each message, about; at least 600, which the headers alone need.
    :param reply_to: the address of the queue :data:`REPLY_TO` in the transport's form.
    """
    from sqlqueue_spark.messages.outgoing_schema import OUTGOING

    kinds = [_kind(*each, reply_to=reply_to) for each in _MESSAGES]
    ids = iter(new_id_texts(2 * count).to_pylist())
    sent = format_time(now)
    messages = []
    for number, row_id in enumerate(new_row_ids(count).to_pylist(), first):
        headers, body = kinds[number % len(kinds)]
        message_id = next(ids)
        headers %= (message_id, next(ids), message_id, sent)
        sku = _SKUS[number % len(_SKUS)]
        body %= (number, number % 9973, sku, number % 5 + 1, number % 900 / 10)
        length = max(0, size - len(headers) - len(body) - 3)  # three characters close the body
        note = (_NOTE * (length // len(_NOTE) + 1))[:length]
        messages.append(
            {
                "id": row_id,
                "headers": headers,
                "body": f'{body}"{note}"}}'.encode("ascii"),
                "ttl_ms": ttl_ms,
                "correlation_id": message_id,
                "reply_to": reply_to,
            }
        )
    return pa.RecordBatch.from_pylist(messages, OUTGOING)


def _kind(
    message_type: str, intent: str, whom: str, number: str, amount: str, *, reply_to: str
) -> tuple[str, str]:
    """Return the templates of headers and body for one message type, with ``%`` for what differs."""
    headers = format_headers(
        {
            MESSAGE_ID: "%s",
            MESSAGE_INTENT: intent,
            CONVERSATION_ID: "%s",
            CORRELATION_ID: "%s",
            REPLY_TO_ADDRESS: reply_to.replace("%", "%%"),
            ORIGINATING_MACHINE: socket.gethostname().replace("%", ""),
            ORIGINATING_ENDPOINT: REPLY_TO,
            CONTENT_TYPE: "application/json",
            ENCLOSED_MESSAGE_TYPES: f"{message_type}, Shop.Contracts",
            TIME_SENT: "%s",
        }
    )
    body = f'{{"orderId":"O-%08d",{whom},"sku":"%s","{number}":%d,"{amount}":%.2f,"note":'
    return headers, body


#: The type of each message, its intent, and what its body has where those of the others have other names.
_MESSAGES = (
    ("Shop.Orders.OrderPlaced", "Publish", '"customerId":"C-%05d"', "quantity", "total"),
    ("Shop.Billing.PaymentAccepted", "Publish", '"account":"A-%05d"', "installments", "paid"),
    ("Shop.Shipping.ShipOrder", "Send", '"route":"R-%05d"', "parcels", "weight"),
)
