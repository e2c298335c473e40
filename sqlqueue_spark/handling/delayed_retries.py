"""``recoverability``: which messages that have failed are tried again later, and which go to the error queue.

Format: the delayed retries of NServiceBus, whose header ``NServiceBus.Retries`` counts them. How often a
message was tried again stands in the message, so the answer is the same whenever its batch runs again.
"""

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.types import StructType

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.functions import header, headers_map
from sqlqueue_spark.messages.message import RETRIES
from sqlqueue_spark.messages.waiting_headers import RETRY_COUNT
from sqlqueue_spark.options.fields import duration_of
from sqlqueue_spark.tables.delayed import LONGEST_DELAY

DELAYED_RETRIES, RETRIES_INCREASE = 3, timedelta(seconds=10)


def recoverability(
    messages: DataFrame,
    *,
    queue: str | None = None,
    errorQueue: str | None = None,  # noqa: N803 -- the name of the option
    delayedRetries: int = DELAYED_RETRIES,  # noqa: N803 -- the name of the option
    delayedRetriesIncrease: str | timedelta = RETRIES_INCREASE,  # noqa: N803 -- likewise
) -> DataFrame:
    """Have messages that failed tried again later, and in the end moved to the error queue::

        handled = messages.transform(each_message(handle, queue="orders"))
        recovered = handled.transform(recoverability, delayedRetries=3, delayedRetriesIncrease="10s")

    A row with a ``Failure`` (from :func:`each_message`, or from any transform) goes back to its own queue by
    way of the table ``<queue>.Delayed``, the n-th time after n times the increase. After the last time it
    goes to the error queue. A failure whose field ``Unrecoverable`` is true goes there at once. The sink
    needs an outbox or an atomic source; ``sqlqueue delayed create`` makes the table, and the jobs or
    ``sqlqueue delayed run`` deliver what is due in it.

    :param messages: has the source's columns and ``Failure``, a struct with a field ``ExceptionType``.
    :param queue: the address of the queue of these messages, where the frame has no column ``Queue``.
    :param errorQueue: the address of the error queue; else that of the sink.
    :param delayedRetries: how often a message is tried again later; 0 for never.
    :param delayedRetriesIncrease: how much longer each delay is than the one before: ``500ms``, ``5m``.
    :raises ConfigurationError: an argument is wrong, or the frame lacks a column.
    """
    names = {name.lower(): name for name in messages.columns}
    failure = messages.schema[names["failure"]].dataType if "failure" in names else None
    if not isinstance(failure, StructType):
        raise ConfigurationError(
            "recoverability needs the column Failure, a struct that tells why a message failed and is NULL "
            "where it did not; let each_message make it, or a transform of yours."
        )
    if "queue" not in names and queue is None:
        raise ConfigurationError(
            "recoverability needs to know the queue in which the messages were received; "
            "give it the queue's address as queue."
        )
    if type(delayedRetries) is not int or delayedRetries < 0:
        raise ConfigurationError(f"delayedRetries is {delayedRetries!r}; give a number, 0 or more.")
    increase = duration_of("delayedRetriesIncrease", delayedRetriesIncrease)
    if increase * delayedRetries >= LONGEST_DELAY:
        raise ConfigurationError(
            f"delayedRetriesIncrease is {delayedRetriesIncrease!r}, so that the last of {delayedRetries} "
            "retries waits for more than 100 years; give less."
        )
    if "queue" not in names:
        messages = messages.withColumn("Queue", F.lit(queue))
    own = names["failure"]
    told = F.col(own)
    fields = [name.lower() for name in failure.names]
    count = header(RETRIES)
    retries = F.when(count.rlike(rf"^{RETRY_COUNT}\z"), count.cast("int")).otherwise(0)
    # Spark may be unable to read headers that we read. How often their message was tried is not known.
    again = (retries < delayedRetries) & headers_map().isNotNull()
    if "unrecoverable" in fields:
        again = again & ~F.coalesce(told.getField(failure.names[fields.index("unrecoverable")]), F.lit(False))
    waits = F.make_dt_interval(secs=((retries + 1) * increase.total_seconds()).cast("decimal(18,6)"))
    recovered = told.withField("RetryAfter", F.when(again, waits))
    if errorQueue is not None:
        recovered = recovered.withField("ErrorQueue", F.lit(errorQueue))
    return messages.withColumn(own, F.when(told.isNotNull(), recovered))
