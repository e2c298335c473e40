COPY "public"."orders" (id, expires, headers, body) FROM STDIN (FORMAT binary)
