"""Columns out of a message's headers or body, and ids of key columns, as expressions that run in the JVM.

All but :func:`deterministic_id` work on the columns ``Id``, ``Headers`` and ``Body`` of the stream. Headers
that are not a JSON object give NULL, never an error: a poison row must not stop a stream. Headers are read as
leniently as .NET endpoints read them: a value that is no string comes as its JSON text, and ``[]``, ``{}``,
``null``, empty text and NULL are no headers. The columns come with names, like ``MessageId``.
"""

from uuid import UUID

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.types import StringType, StructField, StructType

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.host import PROCESSING_MACHINE
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, TIME_SENT
from sqlqueue_spark.messages.outgoing import ORIGINATING_ENDPOINT
from sqlqueue_spark.messages.servicecontrol import (
    EXCEPTION_INFO,
    FAILED_QUEUE,
    PROCESSING_ENDPOINT,
    TIME_OF_FAILURE,
)

#: The namespace of :func:`deterministic_id`; it never changes, or every message would be new to every outbox.
NAMESPACE = UUID("6e0d3b5c-9a5f-4f0b-8f57-0c1d7a2e94b3")

_MAP = "map<string,string>"
#: A struct with a field of this other name would get there what is no JSON; no header has the name.
_JSON = {"allowSingleQuotes": "false", "columnNameOfCorruptRecord": "\x00"}
_TOLD = "\x00headers"
#: The columns of :func:`with_failure_columns` that are the text of one header, and those that are a time.
_TEXTS = {
    "FailedQueue": FAILED_QUEUE,
    "ExceptionType": f"{EXCEPTION_INFO}ExceptionType",
    "ExceptionMessage": f"{EXCEPTION_INFO}Message",
    "StackTrace": f"{EXCEPTION_INFO}StackTrace",
    "ProcessingEndpoint": PROCESSING_ENDPOINT,
    "ProcessingMachine": PROCESSING_MACHINE,
    "OriginatingEndpoint": ORIGINATING_ENDPOINT,
}
_TIMES = {
    "TimeOfFailure": TIME_OF_FAILURE,
    "ProcessingStarted": "NServiceBus.ProcessingStarted",
    "ProcessingEnded": "NServiceBus.ProcessingEnded",
}
#: Texts that mean no headers, beside ``{}``. No blank is tried twice, however many a stranger has written.
_NO_HEADERS = r"^\ufeff?\s*+(?:(?:\[\s*+\]|null)\s*+)?\z"


def headers_map() -> Column:
    """All headers, as ``map<string,string>``: empty where there are none, NULL where they are poison."""
    nothing = F.coalesce(F.col("Headers").rlike(_NO_HEADERS), F.lit(True))
    return F.coalesce(F.from_json(_text(), _MAP, _JSON), F.when(nothing, F.create_map().cast(_MAP)))


def header(name: str) -> Column:
    """One header, as string; NULL where the message does not have it."""
    return _told(name).getField(name)


def message_id() -> Column:
    """The id that follows a message through its retries and hops: the header, else the row's ``Id``."""
    return _id_told(header(MESSAGE_ID)).alias("MessageId")


def with_message_columns(messages: DataFrame) -> DataFrame:
    """Add :func:`message_id`, :func:`message_type` and :func:`sent_at`; this reads the headers once."""
    # Spark keeps a projection apart if others refer to it more than once and it costs something.
    told = F.col(_TOLD)
    return (
        messages.withColumn(_TOLD, _told(MESSAGE_ID, ENCLOSED_MESSAGE_TYPES, TIME_SENT))
        .withColumns(
            {
                "MessageId": _id_told(told.getField(MESSAGE_ID)),
                "MessageType": _type_told(told.getField(ENCLOSED_MESSAGE_TYPES)),
                "SentAt": _time_told(told.getField(TIME_SENT)),
            }
        )
        .drop(_TOLD)
    )


def with_failure_columns(messages: DataFrame) -> DataFrame:
    """Add what the headers of a row in an error queue or an audit queue tell.

    Texts: ``FailedQueue`` (where the message failed, and where it goes back to), ``ExceptionType``,
    ``ExceptionMessage``, ``StackTrace``, ``ProcessingEndpoint``, ``ProcessingMachine``,
    ``OriginatingEndpoint``. Times: ``TimeOfFailure``, and in an audit queue ``ProcessingStarted`` and
    ``ProcessingEnded``. Each is NULL where its header is missing, is empty or, for a time, is none.

    ``IsFailure`` is never NULL. It is true where the message has a ``FailedQueue``, and for unreadable
    headers: a .NET endpoint moves a row with these to the error queue as it is. It is false for the
    acknowledgements that endpoints put into an error queue for ServiceControl.
    """
    told = F.col(_TOLD)
    texts = {name: F.nullif(told.getField(header), F.lit("")) for name, header in _TEXTS.items()}
    times = {name: _time_told(told.getField(header)) for name, header in _TIMES.items()}
    columns = {**texts, **times, "IsFailure": texts["FailedQueue"].isNotNull() | headers_map().isNull()}
    names = (*_TEXTS.values(), *_TIMES.values())
    return messages.withColumn(_TOLD, _told(*names)).withColumns(columns).drop(_TOLD)


def deterministic_id(*columns: Column | str) -> Column:
    r"""An id made of key columns: the same key gives the same id, on every machine and in every version.

    So a message that is made again of the same order line is known to the outbox as the same message::

        lines.select(deterministic_id("order", "line"), to_json(struct("*")).alias("Body"))

    Where there are messages of several kinds about one order line, each kind needs a key of its own, like
    ``deterministic_id(lit("reminder"), "order", "line")``. Otherwise an outbox takes the second message for a
    repetition of the first.

    It is the UUID of version 5 (RFC 9562) of the columns as text in a JSON array: in Python
    ``uuid.uuid5(NAMESPACE, '["4711","3"]')``. The array tells ``("a,b", "c")`` from ``("a", "b,c")`` and NULL
    from ``""``. (It is compact; letters beyond ASCII stand as they are; control characters are escaped with
    capital digits, ``\u001F``.)

    Columns become text by Spark's cast, so a type that is changed gives other ids: the integer 1 is ``1``,
    the double ``1.0``, the decimal(9,2) ``1.00``. Large doubles are rounded before they come here, and 0.0
    differs from -0.0: take decimals or integers for keys. A timestamp is written in the session's time zone,
    and would give other ids in another one: take ``unix_micros("placedAt")``. Binary columns are read as
    UTF-8, where different bytes may look the same: take ``hex("hash")``.

    :raises ConfigurationError: there is no column.
    """
    if not columns or not all(isinstance(each, (Column, str)) for each in columns):
        raise ConfigurationError(
            "An id needs key columns or their names, like functions.deterministic_id('order', 'line')."
        )
    texts = [(F.col(each) if isinstance(each, str) else each).cast("string") for each in columns]
    digest = F.sha1(F.concat(F.lit(NAMESPACE.bytes), F.to_json(F.array(*texts)).cast("binary")))
    variant = F.translate(F.substring(digest, 17, 1), "0123456789abcdef", "89ab" * 4)
    parts = (
        F.substring(digest, 1, 8),
        F.substring(digest, 9, 4),
        F.concat(F.lit("5"), F.substring(digest, 14, 3)),
        F.concat(variant, F.substring(digest, 18, 3)),
        F.substring(digest, 21, 12),
    )
    return F.concat_ws("-", *parts).alias("MessageId")


def message_type() -> Column:
    """The full name of the first enclosed message type, without its assembly."""
    return _type_told(header(ENCLOSED_MESSAGE_TYPES)).alias("MessageType")


def sent_at() -> Column:
    """When the message was sent, as timestamp; NULL where the header is missing or is no time."""
    return _time_told(header(TIME_SENT)).alias("SentAt")


def body_text() -> Column:
    """The body as UTF-8 text, without a byte-order mark."""
    return F.regexp_replace(F.col("Body").cast("string"), "^\ufeff", "").alias("BodyText")


def _id_told(text: Column) -> Column:
    return F.coalesce(F.nullif(text, F.lit("")), F.col("Id"))


def _type_told(text: Column) -> Column:
    first = F.substring_index(text, ";", 1)
    return F.nullif(F.trim(F.substring_index(first, ",", 1)), F.lit(""))


def _time_told(text: Column) -> Column:
    """The moment in ``2025-11-20 08:15:30:123456 Z``: Spark's fast cast wants a dot for a colon."""
    moment = F.concat(F.substring(text, 1, 19), F.lit("."), F.substring(text, 21, 6), F.lit("Z"))
    fits = F.substring(text, 1, 26).like("____-__-__ __:__:__:______")
    return F.when(fits, moment.try_cast("timestamp_ltz"))


def _told(*names: str) -> Column:
    """These headers, as a struct. NULL, or a struct of NULL, for what is no JSON object."""
    return F.from_json(_text(), StructType([StructField(name, StringType()) for name in names]), _JSON)


def _text() -> Column:
    headers = F.col("Headers")
    return F.when(headers.startswith("\ufeff"), F.substring(headers, 2, 2**31 - 1)).otherwise(headers)
