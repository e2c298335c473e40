"""Makes sample messages of a given size, as the .NET endpoint of a shop would send them.

Two hundred thousand are made in a second, so that a load measures the database.
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

    ids = iter(new_id_texts(2 * count).to_pylist())
    sent, machine = format_time(now), socket.gethostname()
    messages = []
    for number, row_id in enumerate(new_row_ids(count).to_pylist(), first):
        message_type, intent, whom, quantity, amount = _MESSAGES[number % len(_MESSAGES)]
        message_id = next(ids)
        headers = format_headers(
            {
                MESSAGE_ID: message_id,
                MESSAGE_INTENT: intent,
                CONVERSATION_ID: next(ids),
                CORRELATION_ID: message_id,
                REPLY_TO_ADDRESS: reply_to,
                ORIGINATING_MACHINE: machine,
                ORIGINATING_ENDPOINT: REPLY_TO,
                CONTENT_TYPE: "application/json",
                ENCLOSED_MESSAGE_TYPES: f"{message_type}, Shop.Contracts",
                TIME_SENT: sent,
            }
        )
        body = (
            f'{{"orderId":"O-{number:08d}","{whom}":"{whom[0].upper()}-{number % 9973:05d}",'
            f'"sku":"{_SKUS[number % len(_SKUS)]}","{quantity}":{number % 5 + 1},'
            f'"{amount}":{number % 900 / 10:.2f},"note":'
        )
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


#: The type of each message, its intent, and what its body has where those of the others have other names.
_MESSAGES = (
    ("Shop.Orders.OrderPlaced", "Publish", "customerId", "quantity", "total"),
    ("Shop.Billing.PaymentAccepted", "Publish", "account", "installments", "paid"),
    ("Shop.Shipping.ShipOrder", "Send", "route", "parcels", "weight"),
)
