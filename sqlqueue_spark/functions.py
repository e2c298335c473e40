"""Columns of a message that are hidden in its headers or body, as Spark expressions that run in the JVM.

All of them work on the columns ``Id``, ``Headers`` and ``Body`` of the stream. Headers that are not a JSON object
give NULL, never an error: a poison row must not stop a stream. A value that is no string comes as its JSON text.
The columns come with names, such as ``MessageId``.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.messages import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, TIME_SENT


def headers_map() -> Column:
    """All headers, as ``map<string,string>``; NULL where they are poison or missing."""
    return F.from_json(F.col("Headers"), "map<string,string>", {"allowSingleQuotes": "false"})


def header(name: str) -> Column:
    """One header, as string; NULL where the message does not have it."""
    return F.try_element_at(headers_map(), F.lit(name))


def message_id() -> Column:
    """The id that follows a message through its retries and hops: the header, else the row's ``Id``."""
    return F.coalesce(F.nullif(header(MESSAGE_ID), F.lit("")), F.col("Id")).alias("MessageId")


def message_type() -> Column:
    """The full name of the first enclosed message type, without its assembly."""
    first = F.split_part(header(ENCLOSED_MESSAGE_TYPES), F.lit(";"), F.lit(1))
    return F.nullif(F.trim(F.split_part(first, F.lit(","), F.lit(1))), F.lit("")).alias("MessageType")


def sent_at() -> Column:
    """When the message was sent, as timestamp; NULL where the header is missing or is no time."""
    moment = F.concat(F.substring(header(TIME_SENT), 1, 26), F.lit("+00:00"))
    return F.try_to_timestamp(moment, F.lit("yyyy-MM-dd HH:mm:ss:SSSSSSXXX")).alias("SentAt")


def body_text() -> Column:
    """The body as UTF-8 text, a byte-order mark taken off."""
    return F.regexp_replace(F.col("Body").cast("string"), "^\ufeff", "").alias("BodyText")
