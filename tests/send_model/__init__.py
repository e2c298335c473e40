"""A model of sending: what each transaction reads and writes, in every order of steps and faults.

*Home* is the database in which rows are received; *other* and *third* are others. A *try* is one run of a
task at one row. A step is one transaction in one database, or an answer of Spark; a transaction at home
that writes an outcome is two steps, its look and its commit, so that another may commit between them. A
*world* is all that survives a step. A world is *settled* when nothing is left to do and all databases are
up. There ``promises`` counts the messages: nothing is lost, nothing is sent twice or delivered and in
error, acknowledgements and audit copies go out exactly when a row has succeeded. A world from which no
order of steps without faults leads to a settled one stands still.

``rules`` has a switch for each rule; ``world`` is the state; ``keys``, ``home``, ``tries``, ``driver`` and
``atomic`` are the protocol; ``faults`` is what goes wrong around it; ``rows_passed_on``, ``rows_handled``
and ``losses_and_upkeep`` are the configurations, with what cannot be helped and the faults without which
that must not appear.

**It says nothing of the code**, only of its rules. What it leaves out:

- chunks: a chunk is several steps of which none of another try comes in between, so it only takes orders
  away, as long as its look-ups see what the chunk itself has sent; that a refused message rolls it back is
  in the model;
- other consumers of the queue (what they take between a crash and a replay is theirs and ours), and two
  jobs of one endpoint;
- the time at which a row waits: an outbox is cleaned as a whole, when no row stands at home that may have
  been sent;
- delayed messages, expiry, tables that swallow rows, the right to write to a table;
- in the atomic mode: destinations that are dropped after a message was staged;
- transactions at other databases are one step: their look and their insert write the same key.
"""
