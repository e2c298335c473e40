"""A .NET endpoint for the tests: what lives beside us on the same queue,
and behaves as real endpoints were seen to behave.

Nothing here stands on the code under test. In a test process, where its receivers are threads::

    with Neighbour(engine, queue, Habits(concurrency=4, rolls_back=0.1)).running() as neighbour:
        eventually(lambda: queue.count() == 0)
    assert sorted(neighbour.handled) == ...

In a process of its own, for benchmarks and soaks::

    with NeighbourProcess(url, "orders", Habits(), processes=2).running() as neighbour:
        ...
    print(neighbour.counts().handled, neighbour.counts().by_second)

========================  ====================================================================================
looks                     at the first and the last free row. It starts a receive for each RowVersion from the
                          one to the other, at most ``concurrency`` at a time. A receive that finds nothing
                          ends the rest of them. After a look that finds nothing it rests a second
takes                     one row a transaction, in the order of RowVersion, stepping over what others hold;
                          the row is held until it is handled
drops                     what has expired
moves on                  what is in transit (ForwardDestination names another queue), with a new row id and
                          without the header
moves to ``error_queue``  what it cannot read, as it is and under the same row id; a message that its handler
                          failed on ``immediate_retries`` times and once more, with the headers of a failure
tries again later         a message that its handler failed on, ``delayed_retries`` times before, by way of
                          ``<queue>.Delayed``
stands still              at a NULL body (PostgreSQL) and at the headers ``null``: it handles nothing more
                          until the row is gone
handles                   for ``handling``; then replies, publishes, or does what a function of the test says
rolls back                ``rolls_back`` of its receives, as after a broken commit; the row is free again
delivers                  what is due in ``<queue>.Delayed``: into its own queue, whence it is moved on
========================  ====================================================================================

What it leaves out of a .NET endpoint: the outbox, audit, acknowledgements to ServiceControl.
"""

from tests.support.neighbour.addresses import UnknownQueueError
from tests.support.neighbour.counts import Counts
from tests.support.neighbour.delayed_mover import Pauses
from tests.support.neighbour.endpoint import Neighbour
from tests.support.neighbour.habits import Habits
from tests.support.neighbour.handling import Handler, Handling, Message
from tests.support.neighbour.process import NeighbourProcess

__all__ = [
    "Counts",
    "Habits",
    "Handler",
    "Handling",
    "Message",
    "Neighbour",
    "NeighbourProcess",
    "Pauses",
    "UnknownQueueError",
]
