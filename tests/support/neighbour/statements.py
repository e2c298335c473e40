"""What a neighbour says to each engine: twins, each in the parameters of its driver.

``{queue}``, ``{delayed}`` and ``{subscriptions}`` are quoted names.
"""

from dataclasses import dataclass
from typing import LiteralString


@dataclass(frozen=True, kw_only=True)
class Statements:
    #: How many RowVersions there are from the first to the last free row; 0 if no row is free.
    look: LiteralString
    #: Deletes the next free row. Gives its id, RowVersion, whether it has expired, headers and body.
    take: LiteralString
    #: Sends a row: its id, headers, body.
    insert: LiteralString
    #: The addresses that have subscribed to one of these topics.
    subscribers: LiteralString
    #: Puts headers and a body into the delayed table, due after a time.
    delay: LiteralString
    #: Puts what is due into the queue.
    move_due: LiteralString
    #: In how long the next row is due that is there.
    next_due: LiteralString


POSTGRESQL = Statements(
    look="""
WITH first AS (SELECT seq FROM {queue} ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED),
     last AS (SELECT seq FROM {queue} ORDER BY seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED)
SELECT coalesce((SELECT seq FROM last) - (SELECT seq FROM first) + 1, 0)
""",
    take="""
DELETE FROM {queue} AS q
WHERE q.id = (SELECT id FROM {queue} ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING q.id, q.seq, coalesce(q.expires <= now() AT TIME ZONE 'UTC', false), q.headers, q.body
""",
    insert="INSERT INTO {queue} (id, expires, headers, body) VALUES (%s, NULL, %s, %s)",
    subscribers="SELECT DISTINCT queueaddress FROM {subscriptions} WHERE topic = ANY (%s) "
    "ORDER BY queueaddress",
    # due is the UTC wall clock read in the session's time zone, which is the database's:
    # so it is written and compared.
    delay="INSERT INTO {delayed} (headers, body, due) VALUES (%s, %s, (now() AT TIME ZONE "
    "'UTC') + %s::interval)",
    move_due="""
WITH due AS (
    DELETE FROM {delayed} WHERE id IN (
        SELECT id FROM {delayed} WHERE due < now() AT TIME ZONE 'UTC' ORDER BY due
          LIMIT 100 FOR UPDATE SKIP LOCKED)
    RETURNING id, headers, body)
INSERT INTO {queue} (id, expires, headers, body) SELECT id, NULL, headers, body FROM due
""",
    next_due="""
SELECT extract(epoch FROM due - (now() AT TIME ZONE 'UTC')::timestamptz)::float FROM {delayed} ORDER BY due
  LIMIT 1
""",
)
SQLSERVER = Statements(
    look="SELECT ISNULL(MAX(RowVersion) - MIN(RowVersion) + 1, 0) FROM {queue} WITH (READPAST, "
    "READCOMMITTEDLOCK);",
    # READPAST steps over what others hold; UPDLOCK keeps two receivers from one row.
    take="""
WITH message AS (SELECT TOP (1) * FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY RowVersion)
DELETE FROM message
OUTPUT deleted.Id, deleted.RowVersion, CASE WHEN deleted.Expires <= GETUTCDATE() THEN 1 ELSE 0 END,
    deleted.Headers, deleted.Body;
""",
    insert="""
INSERT INTO {queue} (Id, Recoverable, Expires, Headers, Body)
  VALUES (?, 1, NULL, ?, CAST(? AS varbinary(max)));
""",
    subscribers="SELECT DISTINCT QueueAddress FROM {subscriptions} WHERE Topic IN ({topics}) "
    "ORDER BY QueueAddress;",
    delay="""
INSERT INTO {delayed} (Headers, Body, Due) VALUES (?, CAST(? AS varbinary(max)),
  DATEADD(millisecond, ?, GETUTCDATE()));
""",
    move_due="""
WITH due AS (
    SELECT TOP (100) * FROM {delayed} WITH (UPDLOCK, READPAST, ROWLOCK) WHERE Due < GETUTCDATE() ORDER BY Due)
DELETE FROM due OUTPUT NEWID(), 1, NULL, deleted.Headers, deleted.Body
INTO {queue} (Id, Recoverable, Expires, Headers, Body);
""",
    next_due="""
SELECT TOP (1) DATEDIFF_BIG(millisecond, GETUTCDATE(), Due) / 1000.0
FROM {delayed} WITH (READPAST, READCOMMITTEDLOCK) ORDER BY Due;
""",
)
