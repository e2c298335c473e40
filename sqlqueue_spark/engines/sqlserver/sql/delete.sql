-- delete.sql · SQL Server · deletes a claim that this transaction has locked
-- in: the runs as JSON [[first,last],…]     out: number of rows
-- A run holds consecutive numbers that were all claimed, so nothing else can stand between its ends. At most
-- 2,400 rows a statement: with a page each they make 4,800 locks on one index, and 5,000 may escalate to a table lock.
DELETE q
FROM OPENJSON(CAST(? AS nvarchar(max))) WITH (first bigint '$[0]', last bigint '$[1]') AS run
INNER LOOP JOIN {queue} AS q WITH (ROWLOCK, FORCESEEK) ON q.RowVersion BETWEEN run.first AND run.last
OPTION (MAXDOP 1)
