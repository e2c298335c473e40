DELETE FROM "public"."orders"
WHERE seq BETWEEN ? AND ?
