-- length.sql · PostgreSQL · how much stands in a queue
-- out: rows, expired, bytes of headers and bodies, headers of the oldest, the database's clock in UTC
-- The lengths are read from TOAST pointers, so that no large body is fetched. Plain reads wait for nobody here.
SELECT count(*),
       count(*) FILTER (WHERE expires <= statement_timestamp() AT TIME ZONE 'UTC'),
       coalesce(sum(coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0)), 0)::bigint,
       (SELECT headers FROM {queue} ORDER BY seq LIMIT 1),
       statement_timestamp() AT TIME ZONE 'UTC'
FROM {queue}
