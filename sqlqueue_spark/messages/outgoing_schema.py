"""The columns of messages on their way out. It imports Arrow at once; those who do without import it where they use it."""

from __future__ import annotations

import pyarrow as pa

from sqlqueue_spark.messages.message import RECOVERABLE

#: Messages on their way out, a row to insert each. ``id`` is a UUID's 16 bytes, ``headers`` is JSON. ``ttl_ms`` counts from now
#: by the database's clock. Where it is given, ``expires`` is computed from it. A message with ``delay_ms``, which
#: counts likewise, or ``due`` waits until then in a table of delayed messages; it has no time of expiry.
OUTGOING = pa.schema([
    pa.field("id", pa.binary(16), nullable=False),
    pa.field("headers", pa.string(), nullable=False),
    ("body", pa.binary()),
    ("ttl_ms", pa.int64()),
    ("correlation_id", pa.string()),
    ("reply_to", pa.string()),
    ("expires", pa.timestamp("us", tz="UTC")),
    ("delay_ms", pa.int64()),
    ("due", pa.timestamp("us", tz="UTC")),
])  # fmt: skip

#: Messages that go out as they once stood in a table: headers may be NULL, and nothing is counted from now.
STORED = pa.schema([
    *(pa.field(each.name, each.type) for each in OUTGOING),
    (RECOVERABLE, pa.bool_()),
])  # fmt: skip
