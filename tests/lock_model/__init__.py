"""A lock model of a queue table on SQL Server: every interleaving of two or three of those who use it.

It takes the documented rules of locking, plays our statements and those of others by them, one lock at a time
in every order. It tells which session ends in a deadlock, waits in a circle, waits for a client's own work,
or loses a row. So the author of a changed statement sees without a server what the rules say. **It says
nothing of a real server**, only of the rules.

``locks`` (modes, queues) and ``table`` (shapes, rows) are the server; ``operations`` and ``script`` are what
a program is; ``statements`` and ``actors`` are the programs; ``state``, ``waits`` and ``explorer`` play them;
``sweep`` plays many.

The rules, and where each is from (a number is that of the rule in docs/sqlserver-locking.md):

- Which modes pass one another, intent locks, Sch-S and Sch-M, U and X kept to the end of the transaction, S
  freed after its row (1):
  https://learn.microsoft.com/sql/relational-databases/sql-server-transaction-locking-and-row-versioning-guide
- S is kept to the end of the statement where a (max) column is read:
  https://learn.microsoft.com/archive/blogs/craigfr/read-committed-and-large-objects
- A newcomer waits behind each session that waits for a mode that it does not pass; a conversion looks only at
  what others have:
  https://techcommunity.microsoft.com/t5/sql-server-support/sql-server-lock-manager-and-8220-relaxed-8221-fifo-8230/ba-p/315783
- READPAST steps over rows and keys, waits for tables, and waits where a change comes to other indexes (8, 9);
  READUNCOMMITTED takes Sch-S only: https://learn.microsoft.com/sql/t-sql/queries/hints-transact-sql-table
- A plain read under RCSI takes Sch-S on the table, no lock on a row,
  and sees what was committed when it began: the guide.
- The deadlock monitor ends the one with the lowest DEADLOCK_PRIORITY, else either;
  it sees waits for locks only: the guide.
- LOCK_TIMEOUT ends a wait with error 1222, and XACT_ABORT the transaction with it:
  https://learn.microsoft.com/sql/t-sql/statements/set-lock-timeout-transact-sql
- A receiver's U on the index key of a row that it then steps over, on a heap, is kept. No manual says so or
  denies it; the model takes the worse case.
- A change comes to the row first and to its other indexes after that, in the order of the indexes. This is
  how plans look, and no promise.

What it leaves out: locks that become a table lock and the memory of locks; locks on pages, on the pages of
large values and on ranges of keys; plans that change, and threads of one plan; latches, and waits for memory
or the network; triggers and indexed views; optimized locking; more than one row of an endpoint in one
transaction; the time between a connection's loss and the moment at which the server frees its locks (here it
frees them at once); more than three actors and three rows. Time is only an order: a patience of 1 ends before
one of 2, and the server's own steps take none.
"""
