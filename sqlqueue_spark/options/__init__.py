"""Every option of the package, by what it is given to: any connection, the source, the sink."""

from sqlqueue_spark.options.options import (
    ATOMIC,
    AZURE_IDENTITY,
    NO_OUTBOX,
    NO_TRANSACTION,
    OPTIMISTIC,
    PESSIMISTIC,
    RECEIVE_ONLY,
    ConnectionOptions,
    SinkOptions,
    SourceOptions,
)

__all__ = [
    "ATOMIC", "AZURE_IDENTITY", "NO_OUTBOX", "NO_TRANSACTION", "OPTIMISTIC", "PESSIMISTIC", "RECEIVE_ONLY",
    "ConnectionOptions", "SinkOptions", "SourceOptions",
]  # fmt: skip
