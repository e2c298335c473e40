-- catalog.sql · PostgreSQL · how the server spells the name of a database
-- in: its name     out: its name
-- There is one spelling only.
SELECT ?::text
