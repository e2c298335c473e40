"""Sample messages of a given size, as the .NET endpoint of a shop would send them."""

from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES
from sqlqueue_spark.messages.outgoing import (
    CONTENT_TYPE,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    REPLY_TO_ADDRESS,
)

#: The queue of the sender.
REPLY_TO = "Shop.Web"
_SKUS = ("APPLE-1KG", "BREAD-RYE", "COFFEE-500", "HONEY-250", "OLIVES-370", "PASTA-500", "TEA-GREEN-50")
_NOTE = "Please leave the parcel with a neighbour on the second floor if there is no answer, and ring twice. "
#: The type of each message, its intent, and what its body has where those of the others have other names.
_MESSAGES = (
    ("Shop.Orders.OrderPlaced", "Publish", "customerId", "quantity", "total"),
    ("Shop.Billing.PaymentAccepted", "Publish", "account", "installments", "paid"),
    ("Shop.Shipping.ShipOrder", "Send", "route", "parcels", "weight"),
)


def headers(number: int, reply_to: str) -> dict[str, str]:
    """What a message of this number has beside the standard headers, or in their place.

    :param reply_to: the address of the queue :data:`REPLY_TO` in the transport's form.
    """
    message_type, intent, *_ = _MESSAGES[number % len(_MESSAGES)]
    return {
        MESSAGE_INTENT: intent,
        REPLY_TO_ADDRESS: reply_to,
        ORIGINATING_ENDPOINT: REPLY_TO,
        CONTENT_TYPE: "application/json",
        ENCLOSED_MESSAGE_TYPES: f"{message_type}, Shop.Contracts",
    }


def body(size: int, number: int) -> bytes:
    """The body of a message of this number, with ``size`` bytes, or as few as it can have."""
    *_, whom, quantity, amount = _MESSAGES[number % len(_MESSAGES)]
    text = (
        f'{{"orderId":"O-{number:08d}","{whom}":"{whom[0].upper()}-{number % 9973:05d}",'
        f'"sku":"{_SKUS[number % len(_SKUS)]}","{quantity}":{number % 5 + 1},'
        f'"{amount}":{number % 900 / 10:.2f},"note":'
    )
    length = max(0, size - len(text) - 3)  # three characters close the body
    note = (_NOTE * (length // len(_NOTE) + 1))[:length]
    return f'{text}"{note}"}}'.encode("ascii")
