"""Checks what must hold of a store-and-forward job: each message is in one place,
and nothing waits without a reason.
"""

from collections import Counter

from sqlqueue_spark.send.waiting.databases_down import _ALL_AGAIN as ALL_AGAIN
from tests.machine.forwarding import NOWHERE, ForwardingQuery
from tests.machine.invariants import check_results, drain, say
from tests.machine.remote import WITHOUT_OUTBOX
from tests.machine.rules import retry_errors
from tests.machine.world import DELAYED, DESTINATIONS, ELSEWHERE, ERROR, World


def finish(world: World, query: ForwardingQuery) -> None:
    """Let the job come to an end in three steps, and check each message's place after each of them.

    First the databases are as they are: one that is down holds up no other. Then all are back: what waits for
    them is put back. Then an operator puts back what has failed.
    """
    for remote in query.remotes.values():
        if remote.accept(WITHOUT_OUTBOX):  # a job does not begin without it
            world.tell(f"(at last) the outbox in the database of {remote.queue} is made again")
    drain(world, query)
    if query.setup.gives_up:
        world.tell("(at last) what waits comes back and is given up, as its database is still down")
        world.move_back()
        drain(world, query)
    check_places(world, query)
    for remote in query.remotes.values():
        remote.open()
        remote.accept()
        if not remote.exists:
            remote.create()
    world.tell("(at last) all databases and queues are there")
    _deliver(world, query)
    if set(world.in_table(ERROR)) - _failing(world, query):
        world.tell(f"(at last) {retry_errors(world, query)}")
        _deliver(world, query)
    say(query, "in error though nothing is in their way", set(world.in_table(ERROR)) - _failing(world, query))


def _deliver(world: World, query: ForwardingQuery) -> None:
    if query.runs:  # else the next process looks when it begins
        world.tell(f"(at last) the driver looks: {query.look()}")
    drain(world, query)
    if query.stepped_over and world.in_table(DELAYED):
        world.tell("(at last) the driver looks again and again, because it does not know that some wait")
        for _ in range(ALL_AGAIN):
            query.look()
        drain(world, query)
    query.stepped_over = False
    say(
        query, "waiting though their database answers and the driver has looked", set(world.in_table(DELAYED))
    )
    check_places(world, query)


def _failing(world: World, query: ForwardingQuery) -> set[int]:
    """The messages that fail whenever they are received."""
    ledger = world.ledger
    return {n for n in ledger.ids if n in ledger.poison or query.goes_to(n) == NOWHERE}


def check_places(world: World, query: ForwardingQuery) -> None:
    """Each message is in one place, at the destination that it was sent to or with a reason elsewhere."""
    ledger = world.ledger
    arrived = {to: each.arrived() for to, each in query.remotes.items()}
    aside = {to: each.aside() for to, each in query.remotes.items()}
    there = query.arrived()
    here: Counter[int] = sum((world.in_table(to) for to in DESTINATIONS), Counter())
    error, waiting, moved = (world.in_table(name) for name in (ERROR, DELAYED, ELSEWHERE))

    forgotten = {n for each in query.remotes.values() for n in each.forgotten}
    ids_forgotten = {ledger.ids[n] for n in forgotten}
    say(
        query,
        "arrived twice",
        {n for n, count in there.items() if count > 1} - forgotten - query.sent_otherwise,
    )
    say(query, "arrived twice here", {n for n, count in here.items() if count > 1})
    say(query, "waiting or failed twice", {n for n, count in (waiting + error).items() if count > 1})
    wrong = {n for to, its in arrived.items() for n in its if query.goes_to(n) != to}
    wrong |= {n for its in aside.values() for to, n in its if query.goes_to(n) != to or not query.job.changed}
    say(query, "arrived at another queue's database", wrong)
    say(query, "kept here though they go elsewhere", {n for n in here if query.goes_to(n) is not None})
    for what, its in (
        *((f"arrived in {to} twice", each) for to, each in arrived.items()),
        ("kept here twice", here),
    ):
        by_id = Counter(ledger.ids[n] for n in its.elements())
        say(
            query,
            f"{what} under one id",
            {n for n in its if by_id[ledger.ids[n]] > 1 and ledger.ids[n] not in ids_forgotten},
        )

    taken = {n for n, count in ledger.taken.items() if count}
    places = Counter(n for its in (there, here, error, waiting, moved, taken) for n in set(its))
    both = {n for n, count in places.items() if count > 1} - query.in_doubt - ledger.may_double - forgotten
    both -= {n for n in ledger.came_back if ledger.taken[n]}
    say(query, "in two places", both)

    reasons = {
        n
        for n in error
        if n in ledger.moved_back
        or (query.setup.gives_up and query.goes_to(n) is not None)
        or (
            query.remotes.get(query.goes_to(n) or "")
            and query.remotes[query.goes_to(n) or ""].refused_messages
        )
    }
    say(query, "in error without a reason", set(error) - reasons - _failing(world, query))

    done = (set(there) | set(here)) - set(waiting) - set(error) - taken
    check_results(world, query, done, error)
    excused = ledger.may_be_lost | ledger.perished | ledger.stillborn
    known = {(ledger.ids[n], query.goes_to(n)) for n in (*there, *here)}
    lost = {
        n for n in ledger.sent - excused if not places[n] and (ledger.ids[n], query.goes_to(n)) not in known
    }
    say(query, "lost", lost)
