-- clock.sql · PostgreSQL · the database's clock, by which messages expire
-- out: now, in UTC
SELECT statement_timestamp() AT TIME ZONE 'UTC'
