"""Checks what must hold when everybody else has come to an end and the stream has had time to finish."""

from collections import Counter

from sqlqueue_spark.options import ATOMIC, NO_TRANSACTION, RECEIVE_ONLY
from tests.machine.query import Query, Way
from tests.machine.world import DESTINATIONS, ELSEWHERE, ERROR, World, listed

#: Once nothing is in its way, a trigger may so often find nothing while rows are free,
#: and so often it may fail.
_IDLE = 3
_FAILURES = 8
#: So long a stream may wait for neighbours that take nothing: docs/decisions/headroom.md.
_GONE_SECONDS = 60.0


def drain(world: World, query: Query) -> None:
    """Trigger until nothing is left.

    The number of triggers is limited: each must move some rows while any are there.
    """
    idle = failures = 0
    most = 40 + 2 * len(world.ledger.sent) + 2 * len(query.checkpoint.offsets)
    for _ in range(most):
        said = query.trigger(Way())
        world.tell(f"(at last) Spark triggers: {said}")
        if query.refused is not None:
            failures += 1
            if failures >= _FAILURES:
                raise query.broken("the query fails again and again")
            query.follow_remedy(again=said == "the query fails as before")
            continue
        if said != "nothing new":
            idle = 0
            continue
        idle += 1
        if idle == 1:
            world.sleep(_GONE_SECONDS)
        left = sum(len(world.in_table(source)) for source in world.sources)
        if not left:
            return
        if idle > _IDLE:
            raise query.broken(
                f"the stream stands still while {left} rows wait, which no other session holds"
            )
    raise query.broken(f"{most} triggers were not enough")


def check(world: World, query: Query) -> None:
    """Each message is in exactly one place."""
    ledger = world.ledger
    moved = world.in_table(ELSEWHERE)
    doubled = {n for n, count in moved.items() if count + ledger.taken[n] > 1} - ledger.may_double
    say(query, "moved on twice", doubled)
    (check_stored if query.setup.stores else check_sent_on)(world, query)
    if query.setup.handles:
        check_handled(world, query)


def ended(world: World, query: Query) -> Counter[str]:
    """How many of the messages that were sent ended in each place;
    those that may have left no trace stand last.
    """
    ledger = world.ledger
    stored = {n for rows in query.stored.values() for n in rows}
    there = {n for n, _ in query.in_destinations()}
    moved = world.in_table(ELSEWHERE)
    found = Counter[str]()
    for n in ledger.sent:
        if n in stored:
            found["in the sink"] += 1
        elif n in there:
            found["in a destination"] += 1
        elif ledger.taken[n]:
            found["taken by neighbours"] += 1
        elif n in moved:
            found["moved on"] += 1
        elif n in ledger.stillborn or n in ledger.perished:
            found["expired"] += 1
        else:
            found["destroyed, or lost as mode none may"] += 1
    return found


def check_stored(world: World, query: Query) -> None:
    ledger = world.ledger
    found = Counter(n for rows in query.stored.values() for n in rows)
    say(query, "lost", _lost(world, lambda n: found[n] or ledger.taken[n]))
    doubled = {n for n in ledger.sent if found[n] + ledger.taken[n] > 1} - ledger.may_double
    say(query, "delivered twice", doubled)


def check_sent_on(world: World, query: Query) -> None:
    ledger = world.ledger
    there = query.in_destinations()
    by_id = Counter[tuple[str, str]]()
    for (n, to), count in there.items():
        by_id[ledger.ids[n], to] += count
    due = {pair for pairs in query.due.values() for pair in pairs}
    done = {n for n, _ in due}
    elsewhere = {n for key in query.due for n in query.others.get(key, [])}
    missing = {n for n, to in due if not by_id[ledger.ids[n], to]} & (
        ledger.sent | elsewhere
    ) - ledger.may_be_lost - ledger.perished
    missing -= {n for n in ledger.may_double | ledger.came_back | ledger.moved_back if ledger.taken[n]}
    if len(query.named) > 1:  # what is sent anew goes where the option leads by then
        missing -= query.sent_anew & {n for n, _ in there}
    say(query, "lost on the way to a destination", missing)
    say(query, "lost", _lost(world, lambda n: n in done or ledger.taken[n]))
    sent = ledger.sent | elsewhere
    say(
        query,
        "sent twice",
        {n for (n, _), count in there.items() if count > 1 and n in sent} - ledger.may_double,
    )
    both = {n for n, _ in there if ledger.taken[n] and n in sent} - ledger.may_double
    if query.modes != {
        ATOMIC
    }:  # what was sent and what was settled were two commits, and the replica stood between
        both -= ledger.came_back
    say(query, "sent on though another consumer has it", both)
    if (
        not query.modes & {ATOMIC, NO_TRANSACTION}
        and "none" not in query.outboxes
        and not query.setup.handles
    ):
        twice = {pair for pair, count in by_id.items() if count > 1}
        say(query, "sent twice under one id", {n for n in sent if any(ledger.ids[n] == i for i, _ in twice)})


def check_handled(world: World, query: Query) -> None:
    """A message that is handled goes to both destinations; one that fails goes to neither.

    An id is handled once.
    """
    ledger = world.ledger
    first, second = world.in_table(DESTINATIONS[0]), query.in_second()
    destroyed = ledger.may_be_lost if query.setup.elsewhere else set()
    excused = query.answered_before | destroyed | ledger.passed_on
    say(query, "passed on and handled", ledger.passed_on & set(first))
    say(query, "failed though the function did not fail", world.failed_by_us() - ledger.poison)
    say(query, "sent in part", {n for n in first | second if first[n] != second[n]} - excused)
    failed = world.in_table(ERROR)
    both = {n for n in (first | second) & failed if n in ledger.sent}
    say(query, "handled and failed", both - ledger.may_double - query.answered_before)
    # Home forgot that it had answered; the function failed now, and an operator let it answer again.
    again = query.answered_before & query.put_back
    say(query, "answered twice", {n for n in second if second[n] > 1} - ledger.may_double - again)
    check_results(world, query, set(first), failed)
    if query.modes == {RECEIVE_ONLY} and "none" not in query.outboxes:
        by_id = Counter(ledger.ids[n] for n in first.elements())
        say(query, "handled twice under one id", {n for n in first if by_id[ledger.ids[n]] > 1})


def check_results(world: World, query: Query, done: set[int], failed: Counter[int]) -> None:
    """ServiceControl is told once of what it had put back and is done; what failed names its own queue."""
    ledger = world.ledger
    told = world.acknowledged()
    # An atomic batch asks no outbox, so what an operator puts back is handled once more,
    # and told of once more.
    again = ledger.may_double if ATOMIC in query.modes else set()
    # What had arrived, and then failed because its outbox was down, is the next attempt to ServiceControl.
    again = again | (query.in_doubt & query.put_back)
    say(query, "acknowledged twice", {n for n, count in told.items() if count > 1} - again)
    say(query, "acknowledged and failed", {n for n in failed if told[n]} - ledger.may_double - query.in_doubt)
    say(
        query,
        "done and not acknowledged",
        {n for n in ledger.retried & done if not told[n]} - ledger.may_double,
    )
    say(query, "failed for another queue", world.failed_for_others())


def _lost(world: World, is_somewhere) -> set[int]:  # type: ignore[no-untyped-def] # a predicate
    ledger = world.ledger
    excused = ledger.may_be_lost | ledger.perished | ledger.stillborn | set(world.in_table(ELSEWHERE))
    return {n for n in ledger.sent - excused if not is_somewhere(n)}


def say(query: Query, what: str, numbers: set[int]) -> None:
    """Tell of messages that break a promise, if there are any."""
    if numbers:
        raise query.broken(f"{listed(numbers)} {what}")
