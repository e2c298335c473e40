-- numbers.sql · PostgreSQL · what numbers the rows of a table
-- in: object id of the table, twice     out: schema and name of the sequence, last number (NULL: unknown), highest number
-- A serial's sequence is named by the column's default, an identity's belongs to the column. The column's own type may
-- end before the sequence does. The last number may be seen with USAGE or SELECT on the sequence.
WITH numbered AS (
    SELECT p.refobjid AS sequence, d.adrelid AS queue, d.adnum AS attnum
    FROM pg_catalog.pg_attrdef AS d
    JOIN pg_catalog.pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
    WHERE d.adrelid = ?::oid AND p.refclassid = 'pg_class'::regclass
    UNION
    SELECT p.objid, p.refobjid, p.refobjsubid
    FROM pg_catalog.pg_depend AS p
    WHERE p.refobjid = ?::oid AND p.classid = 'pg_class'::regclass AND p.refclassid = 'pg_class'::regclass
      AND p.deptype IN ('a', 'i')
)
SELECT n.nspname::text,
       c.relname::text,
       CASE WHEN has_sequence_privilege(c.oid, 'USAGE, SELECT') THEN pg_sequence_last_value(c.oid) END,
       least(s.seqmax, CASE a.atttypid WHEN 'integer'::regtype THEN 2147483647 ELSE s.seqmax END)
FROM numbered
JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid = numbered.queue AND a.attnum = numbered.attnum AND a.attname = 'seq'
JOIN pg_catalog.pg_sequence AS s ON s.seqrelid = numbered.sequence
JOIN pg_catalog.pg_class AS c ON c.oid = s.seqrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
