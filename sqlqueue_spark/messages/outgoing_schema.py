"""The columns of messages on their way out.

This module imports Arrow at once. Modules that do without Arrow import this one in the functions that need
it.
"""

import pyarrow as pa

from sqlqueue_spark.messages.message import RECOVERABLE

#: Messages on their way out, a row to insert each. ``id`` is the 16 bytes of a UUID, ``headers`` is JSON.
#: ``ttl_ms`` counts from now by the database's clock, and ``expires`` is computed from it. A message with
#: ``delay_ms``, which counts likewise, or ``due`` waits until then in a table of delayed messages. It has no
#: time of expiry.
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
