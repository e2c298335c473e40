COPY "public"."billing.Outgoing" (task, destination, ids, expires, headers, bodies) FROM STDIN (FORMAT binary)
