COPY "public"."billing.Outgoing" (task, destination, id, expires, headers, body) FROM STDIN (FORMAT binary)
