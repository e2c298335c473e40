-- subscriptions.sql · PostgreSQL · the table that tells which queue gets the events of which type

-- name: subscriptions_create
-- Creates the table of subscriptions as the .NET transport makes it.
CREATE TABLE IF NOT EXISTS {subscriptions} (
    queueaddress varchar(200) NOT NULL,
    endpoint varchar(200) NOT NULL,
    topic varchar(200) NOT NULL,
    PRIMARY KEY (endpoint, topic)
)

-- name: subscribers
-- Returns who has subscribed to some types.
-- out: type, as it was asked for, address
-- One look for all types of a chunk. The table has a row for an endpoint and type, and no index that begins
-- with the type: the transport's own publishers read it whole, too. Without quotation marks a dot parts a
-- schema from a table: X.Y is the table Y of the schema X. If that table is there, the address comes quoted.
SELECT s.topic::text,
       coalesce('"' || replace(t.schema, '"', '""') || '"."' || replace(t.name, '"', '""') || '"',
           left(s.queueaddress::text, 1001))::text
FROM ONLY {subscriptions} AS s
LEFT JOIN LATERAL (
    SELECT n.nspname::text AS schema, c.relname::text AS name
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = split_part(s.queueaddress::text, '.', 1)
      AND n.nspname::text || '.' || c.relname::text = s.queueaddress::text
) AS t ON strpos(s.queueaddress::text, '.') > 0 AND strpos(s.queueaddress::text, '"') = 0
WHERE s.topic::text = ANY (:topics::text[])
ORDER BY s.topic, s.queueaddress

-- name: subscriptions
-- Returns all subscriptions.
-- No more of a text than shows that it is too long: the table may be a stranger's.
SELECT left(s.endpoint::text, 1001), left(s.topic::text, 1001), left(s.queueaddress::text, 1001)
FROM ONLY {subscriptions} AS s
ORDER BY s.topic, s.endpoint

-- name: subscribe
-- Lets a queue have the events of some types, for an endpoint.
-- An endpoint has one queue a type, so another address takes the place of the one that is there, as with the
-- transport. ON CONFLICT waits for an endpoint that is just subscribing to the same. The array is sorted: two
-- who subscribe do not deadlock.
INSERT INTO {subscriptions} AS s (queueaddress, endpoint, topic)
SELECT :address::text, :endpoint::text, t.topic
FROM pg_catalog.unnest(:topics::text[]) AS t (topic)
ON CONFLICT (endpoint, topic) DO UPDATE SET queueaddress = excluded.queueaddress
WHERE s.queueaddress::text <> excluded.queueaddress::text

-- name: unsubscribe
-- Ends an endpoint's subscriptions to some types.
DELETE FROM {subscriptions} WHERE endpoint::text = :endpoint::text AND topic::text = ANY (:topics::text[])

-- name: subscription_tables
-- Returns the tables of subscriptions that this login may read.
-- Endpoints may call their table as they like, so its columns tell it.
SELECT n.nspname::text, c.relname::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relkind = 'r'
  AND a.attname IN ('queueaddress', 'endpoint', 'topic')
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
GROUP BY n.nspname, c.relname
HAVING count(*) = 3
ORDER BY n.nspname, c.relname

-- name: present_tables
-- Returns which of some tables are there.
SELECT w.schema, w.name
FROM unnest(:schemas::text[], :tables::text[]) AS w (schema, name)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name AND c.relkind IN ('r', 'p')

-- name: remedy_subscriptions
-- A remedy for people: writes addresses as the .NET endpoints do, for queues in the schema of the table of
-- subscriptions.
-- in: what begins an address like that: the schema, a dot and a quotation mark
UPDATE {subscriptions}
SET queueaddress = pg_catalog.concat(:prefix, queueaddress, '"')
WHERE queueaddress OPERATOR(pg_catalog.~~) '%.%' AND queueaddress OPERATOR(pg_catalog.!~~) '%"%';

-- name: remedy_subscription
-- A remedy for people: ends the subscriptions of a queue that is not there.
DELETE FROM {subscriptions} WHERE queueaddress OPERATOR(pg_catalog.=) :address;
