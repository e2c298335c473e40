SELECT ?::text
