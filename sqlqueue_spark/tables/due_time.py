"""When a delayed message is due: delays count by the database's clock, a table has its own time zone.

Format: the tables of the .NET transports. On PostgreSQL ``due`` is the wall clock of UTC, read in the default
time zone of the database.
"""

from __future__ import annotations

from datetime import UTC, timedelta

from sqlqueue_spark.engines.connect import Connection
from sqlqueue_spark.messages.arrow import pa, pc
from sqlqueue_spark.messages.outgoing import replaced
from sqlqueue_spark.tables.database_facts import now

#: A retry after a longer delay, 100 years, is no retry.
LONGEST_DELAY = timedelta(days=36_525)
#: Other names of the time zone in which what is stored is what is meant.
_UTC = {"utc", "etc/utc", "gmt", "etc/gmt", "zulu", "etc/zulu", "uct", "etc/uct", "universal", "greenwich"}


def stored_dues(connection: Connection, messages: pa.RecordBatch) -> pa.RecordBatch:
    """Delayed messages (:data:`OUTGOING`) with their due times in ``expires``, as a table stores them.

    A delay counts from now by the database's clock.
    """
    dialect = connection.dialect
    due = messages["due"]
    if due.null_count:
        delays = messages["delay_ms"].cast(pa.duration("ms")).cast(pa.duration("us"))
        due = pc.coalesce(due, pc.add(pa.scalar(now(connection), due.type), delays))
    if (zone := zone_of(connection)) is not None:
        dues = [moment.replace(tzinfo=None) for moment in due.to_pylist()]
        rows = connection.execute(dialect.statement("delayed_stored"), {"dues": dues, "zone": zone})
        due = pa.array([moment.replace(tzinfo=UTC) for _, moment in sorted(rows)], due.type)
    return replaced(messages, expires=due)


def zone_of(connection: Connection) -> str | None:
    """The time zone by which the tables of a database tell times; None where that is UTC."""
    statement = connection.dialect.statement("delayed_zone")
    if not statement:
        return None
    zone: str = connection.execute(statement, doing="asking for the database's time zone")[0][0]
    return None if zone.lower() in _UTC else zone
