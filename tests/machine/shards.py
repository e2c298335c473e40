"""Defines the families of scenarios: which queries there are, and what befalls them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlqueue_spark import fail_points
from sqlqueue_spark.options import ATOMIC, NO_TRANSACTION, RECEIVE_ONLY
from tests.machine import chance as st
from tests.machine import forwarding_rules as f
from tests.machine import job
from tests.machine import query as q
from tests.machine import rules as r
from tests.machine.forwarding import NOWHERE
from tests.machine.query import Options, Setup, Way
from tests.machine.remote import REFUSALS
from tests.machine.scenario import Scenario
from tests.machine.world import APPEARS, DESTINATIONS, SOURCES, WAYS
from tests.support import death_steps

_COUNT = st.integers(1, 5)
_SOURCE = st.integers(0, 1)
_DEATHS = ("crash", "crash that is not noticed")
_CUTS = ("cut", "cut that is not noticed")
_LOST_COMMITS = ("cut before the next commit is answered", "cut before the next commit is heard")
_RECEIVING = (
    fail_points.ROWS_LOCKED,
    q.OFFSET_NOT_LOGGED,
    fail_points.OFFSET_LOGGED,
    fail_points.HALF_READ,
    q.BATCH_WRITTEN,
    q.BATCH_LOGGED,
    fail_points.COMMIT_LOGGED,
    fail_points.DELETED,
    fail_points.COMMITTED,
    *death_steps.LEFT_STEPS,
)
_STAGING = (fail_points.ROWS_STAGED, fail_points.STAGE_SEALED)
_SENDING = (
    fail_points.SUBSCRIBERS_FOUND,
    fail_points.IDS_CHECKED,
    fail_points.ROWS_INSERTED,
    fail_points.IDS_INSERTED,
    fail_points.CHUNK_SENT,
)
#: The steps at which a commit has just changed what a replica has.
_TURNS = (
    fail_points.HALF_READ,
    fail_points.ROWS_STAGED,
    fail_points.STAGE_SEALED,
    q.BATCH_LOGGED,
    fail_points.CHUNK_SENT,
    fail_points.ROWS_TAKEN,
)
_TAKING = (fail_points.OFFSET_LOGGED, fail_points.ROWS_TAKEN, q.BATCH_WRITTEN, q.OFFSET_NOT_LOGGED)


_PLAIN: st.Chance[Any] = st.just(r.Trigger())


def _faulty(steps: Sequence[str], *whats: str) -> st.Chance[r.Step]:
    """Triggers during which something befalls the process at a named step."""
    ways = st.builds(Way, at=st.sampled_from(steps), what=st.sampled_from(whats))
    return st.builds(r.Trigger, ways)


def _odd(*, others: bool = False) -> st.Chance[r.Step]:
    ways = st.builds(
        Way,
        asks=st.integers(1, 2),
        plans=st.integers(1, 2),
        reads=st.integers(1, 2),
        commit=st.sampled_from(("late", "twice", "never", "at once", "at once")),
        others=st.integers(-1, 2) if others else st.just(-1),
    )
    return st.builds(r.Trigger, ways)


def _restarts(**options: Sequence[object]) -> st.Chance[r.Step]:
    changes = [st.sampled_from([((name, value),) for value in values]) for name, values in options.items()]
    return st.builds(r.Restart, st.one_of(st.just(()), *changes))


#: What befalls a stream, in bundles of steps that make sense together. A scenario has only some bundles, so
#: that it tells a story of few things and not a little of everything.
_BUNDLES: dict[str, tuple[st.Chance[Any], ...]] = {
    "neighbours": (
        st.builds(r.Take, st.integers(1, 3), _SOURCE, st.just("holds")),
        st.builds(r.EndTake, st.booleans()),
    ),
    "late commits": (st.builds(r.SendLate, _COUNT, _SOURCE), st.builds(r.EndLate, st.booleans())),
    "expiry": (
        st.just(r.TimePasses()),
        st.builds(r.Send, _COUNT, _SOURCE, st.sampled_from(("expired", "perishable"))),
    ),
    "in transit": (st.builds(r.Send, _COUNT, _SOURCE, st.just("in transit")),),
    "poison": (st.builds(r.Send, _COUNT, _SOURCE, st.just("poison")),),
    "equal ids": (st.builds(r.Send, _COUNT, _SOURCE, st.just("of one id")),),
    "crashes": (st.builds(r.Crash, st.booleans()), st.just(r.Notice())),
    "cuts": (st.builds(r.Cut, st.booleans()), st.just(r.Notice())),
    "fail-over": (st.just(r.Replicate()), st.builds(r.FailOver, st.booleans())),
    "old checkpoints": (st.just(r.SaveCheckpoint()), st.just(r.RestoreCheckpoint())),
    "dumps": (st.just(r.Dump()), st.just(r.EndDump())),
    "pauses": (st.just(r.Idle()), st.just(r.Trigger(Way(commit="at once")))),
    "restored rows": (st.builds(r.SaveRows, _SOURCE), st.just(r.PutBackRows())),
    "operators": (st.builds(r.Alter, _SOURCE), st.builds(r.Truncate, _SOURCE)),
}

#: What waits is moved back by a mover, which may die.
_MOVED: st.Chance[r.Step] = st.builds(r.MoveBack, st.sampled_from((None, None, *death_steps.DUE_STEPS)))

_SENDS = st.builds(r.Send, _COUNT, _SOURCE)
_DIES = _faulty((q.BATCH_WRITTEN, q.BATCH_LOGGED), *_DEATHS)
_OTHERWISE: st.Chance[r.Step] = st.builds(
    r.Restart,
    st.sampled_from([(("mode", RECEIVE_ONLY),), (("mode", ATOMIC),), (("stream", "B"),), (("stream", "A"),)]),
)
_TO_BOTH = [st.builds(r.Send, _COUNT, st.just(source)) for source in range(2)]
_SENDS_THERE: st.Chance[r.Step] = st.builds(r.Send, _COUNT, st.just(2))
_TAKEN_OFF = _restarts(reads=(SOURCES[:1], SOURCES[1:]))
_DOWN: st.Chance[r.Step] = st.builds(f.GoDown, _SOURCE)
_UP: st.Chance[r.Step] = st.builds(f.ComeBack, _SOURCE)
_UP_ALL: tuple[st.Chance[r.Step], ...] = tuple(st.just(f.ComeBack(n)) for n in range(len(DESTINATIONS)))
_DOWN_ALL: tuple[st.Chance[r.Step], ...] = tuple(st.just(f.GoDown(n)) for n in range(len(DESTINATIONS)))
_LOOKS: st.Chance[Any] = st.just(f.Look())
_LOOKS_BADLY: st.Chance[r.Step] = st.builds(
    f.Look, st.sampled_from(death_steps.PUT_BACK_STEPS), st.sampled_from((*_DEATHS, *_CUTS, *_LOST_COMMITS))
)
#: A session without a client still holds what the driver was putting back.
_HOLDS: st.Chance[r.Step] = st.just(f.Look(fail_points.WAITING_SENT, "cut that is not noticed"))
_HELD: tuple[st.Chance[Any], ...] = (_SENDS, *_DOWN_ALL, _PLAIN, *_UP_ALL, _HOLDS, _LOOKS, _PLAIN)
_RETRIED: st.Chance[r.Step] = st.builds(r.RetryErrors, st.sampled_from((None, *death_steps.FAILED_STEPS)))
_WAITS_AND_DIES = _faulty((fail_points.CHUNK_SENT, q.BATCH_WRITTEN), *_DEATHS)
_TASK_DIES = _faulty(_SENDING, "the task dies")
_TASK_WAITS_AND_DIES = _faulty((fail_points.CHUNK_SENT,), "the task dies")
_COMMITS = st.builds(r.Take, st.integers(1, 3), _SOURCE, st.just("commits"))
_RENAMED: st.Chance[r.Step] = st.builds(r.Rename, _SOURCE, st.booleans())
#: A new queue, or one that has the name of a queue that is renamed or dropped.
_APPEARS: st.Chance[r.Step] = st.builds(r.Appear, st.sampled_from((APPEARS, *SOURCES)), st.booleans())
_STORED: st.Chance[r.Step] = st.builds(f.StoreByUs, _COUNT, st.sampled_from((None, *_SENDING)))
_STORED_OR_SENT: st.Chance[r.Step] = st.builds(
    f.StoreByUs, _COUNT, st.sampled_from((None, *_SENDING)), st.sampled_from(((True, False), (False, True)))
)
_BACK: st.Chance[r.Step] = st.builds(r.Send, _COUNT, _SOURCE, st.just("put back by ServiceControl"))
#: On their way to their own queue, which is no way, or to another database.
_JUDGED: st.Chance[r.Step] = st.builds(
    r.Send, _COUNT, _SOURCE, st.sampled_from([each for each in WAYS if each != "in transit"])
)
_TRIES_AND_DIES = _faulty(_SENDING, *_DEATHS)
_ONE_ID: st.Chance[r.Step] = st.builds(r.Send, st.integers(2, 5), _SOURCE, st.just("of one id"))
_DAYS: st.Chance[Any] = st.just(f.DaysPass())
_REFUSES: st.Chance[r.Step] = st.builds(f.Refuse, _SOURCE, st.sampled_from(REFUSALS))
_REFUSE_ALL: tuple[st.Chance[r.Step], ...] = tuple(
    st.builds(f.Refuse, st.just(n), st.sampled_from(REFUSALS)) for n in range(len(DESTINATIONS))
)
_MANY: st.Chance[r.Step] = st.builds(r.Send, st.integers(3, 5), _SOURCE)
#: A database goes down when it hears a commit, before it answers: what was sent has arrived, and waits.
_UNANSWERED = tuple(f"{to} goes down before it answers a commit" for to in DESTINATIONS)
_TURNED_DOWN = _faulty((fail_points.IDS_INSERTED,), *_UNANSWERED)
_ACCEPTS: st.Chance[r.Step] = st.builds(f.Accept, _SOURCE)
_ACCEPT_ALL: tuple[st.Chance[r.Step], ...] = tuple(st.just(f.Accept(n)) for n in range(len(DESTINATIONS)))
_DROP_ALL: tuple[st.Chance[r.Step], ...] = tuple(st.just(f.DropQueue(n)) for n in range(len(DESTINATIONS)))
_CREATE_ALL: tuple[st.Chance[r.Step], ...] = tuple(
    st.just(f.CreateQueue(n)) for n in range(len(DESTINATIONS))
)
#: A job goes on with other options, or tries to; and with those that it had at first.
_JUDGED_OTHERWISE: st.Chance[r.Step] = st.builds(r.Judge, st.sampled_from((*job.GIVEN, job.URLS)))
_JUDGED_AS_BEFORE: st.Chance[r.Step] = st.builds(r.Judge, st.sampled_from(("", "", job.LEGACY)))
_ANOTHER_URL: st.Chance[r.Step] = st.builds(
    r.Judge, st.sampled_from((job.URLS, job.URLS, job.OTHER_ERRORS, ""))
)
_NOTICED: st.Chance[r.Step] = st.just(r.Notice())
_ENDS: st.Chance[Any] = st.just(r.RunToEnd())
#: What had waited is back in its queue when it has seen its end.
_ENDS_AND_LOOKS: st.Chance[r.Step] = st.just(r.RunToEnd(Way(at=q.BATCH_WRITTEN, what="the driver looks")))
#: What waits is put back by another mover than the job's look.
_BY_A_MOVER: st.Chance[r.Step] = st.one_of(st.just(f.MovedByOthers()), st.just(f.GiveUp()))
#: Steps that mean something in this order, by the name of a bundle.
#: Stories with that bundle tell them now and then.
_PHRASES: dict[str, tuple[tuple[st.Chance[Any], ...], ...]] = {
    "crashes": ((_SENDS, _faulty((q.BATCH_LOGGED,), *_DEATHS), _faulty(death_steps.LEFT_STEPS, *_DEATHS)),),
    "late commits": (
        (
            *[st.builds(r.SendLate, st.integers(1, 2), st.just(0))] * 2,
            st.builds(r.Send, st.integers(3, 5), st.just(0)),
            _PLAIN,
            st.just(r.EndLate()),
            _PLAIN,
            st.just(r.EndLate()),
            _PLAIN,
        ),
    ),
    "fail-over": ((_SENDS, st.just(r.Replicate()), _PLAIN, _PLAIN, st.just(r.FailOver())),),
    "restored rows": ((_SENDS, st.just(r.SaveRows()), _PLAIN, _PLAIN, st.just(r.PutBackRows()), _PLAIN),),
    "dumps": ((_SENDS, _PLAIN, st.just(r.Dump()), _PLAIN, _COMMITS, st.just(r.EndDump())),),
    "changed_half_way": (
        (
            _SENDS,
            _faulty((fail_points.CHUNK_SENT, q.BATCH_WRITTEN), *_DEATHS),
            st.builds(r.Restart, st.sampled_from([(("queue", to),) for to in ("shipping", "billing")])),
        ),
    ),
    "subscribing": (
        (
            _SENDS,
            _faulty((fail_points.CHUNK_SENT, q.BATCH_WRITTEN), *_DEATHS),
            st.builds(r.Subscribe, st.booleans()),
            _PLAIN,
        ),
    ),
    "tried_again": ((_SENDS, _faulty(_SENDING, *_DEATHS), _PLAIN),),
    "moved_back": (
        (_SENDS, _PLAIN, _PLAIN, _MOVED, _PLAIN),
        (_SENDS, st.just(r.Replicate()), _PLAIN, _MOVED, _PLAIN, _PLAIN, _PLAIN, st.just(r.FailOver())),
    ),
    "failed": ((_SENDS, _PLAIN, _PLAIN, _RETRIED, _PLAIN), (_SENDS, _PLAIN, _RETRIED, _DIES, _RETRIED)),
    "judged": ((_JUDGED, _TRIES_AND_DIES, _PLAIN), (_BACK, _TRIES_AND_DIES, _JUDGED, _PLAIN, _RETRIED)),
    "acknowledged": ((_BACK, _TRIES_AND_DIES, _PLAIN, _RETRIED, _PLAIN),),
    "taken_off": ((*_TO_BOTH, _DIES, _TAKEN_OFF, _PLAIN),),
    "renamed": (
        (*_TO_BOTH, _DIES, _RENAMED, _PLAIN),
        (*_TO_BOTH, _DIES, st.builds(r.Rename, _SOURCE, st.just(True)), _SENDS_THERE, _PLAIN),
    ),
    "appearing": (
        (_PLAIN, _APPEARS, *_TO_BOTH, _SENDS_THERE, _PLAIN),
        (*_TO_BOTH, _DIES, st.builds(r.Drop, _SOURCE), _APPEARS, _SENDS_THERE, _PLAIN),
    ),
    "finished_otherwise": ((_SENDS, _DIES, _OTHERWISE, _DIES, _OTHERWISE, _PLAIN),),
    "given_up": (
        (_SENDS, _DOWN, _WAITS_AND_DIES, st.just(f.GiveUp()), *_UP_ALL, _PLAIN),
        (_SENDS, _DOWN, _PLAIN, st.just(f.GiveUp()), *_UP_ALL, _RETRIED, _PLAIN),
        (_SENDS, _DOWN, _WAITS_AND_DIES, _PLAIN, st.just(f.GiveUp())),
    ),
    "put_back": (
        (_SENDS, _DOWN, _PLAIN, *_UP_ALL, _LOOKS_BADLY, _PLAIN, st.one_of(_LOOKS, st.just(f.GiveUp()))),
        (_SENDS, _DOWN, _PLAIN, st.just(r.Crash()), *_UP_ALL, _LOOKS),
    ),
    "held": (_HELD, _HELD),
    "tasks_that_die": (
        (
            _PLAIN,
            _LOOKS,
            *[st.just(r.Send())] * 2,
            *_DOWN_ALL,
            _TASK_WAITS_AND_DIES,
            *_UP_ALL,
            _PLAIN,
            _LOOKS,
        ),
    ),
    "dropped": (
        (_SENDS, st.builds(f.DropQueue, _SOURCE), _PLAIN, st.builds(f.CreateQueue, _SOURCE), _RETRIED),
        (_SENDS, *_DROP_ALL, _WAITS_AND_DIES, *_CREATE_ALL, _PLAIN),
    ),
    "refusing": (
        (_SENDS, *_REFUSE_ALL, _PLAIN, *_ACCEPT_ALL, _LOOKS, _PLAIN),
        (_SENDS, *_REFUSE_ALL, _WAITS_AND_DIES, *_ACCEPT_ALL, _PLAIN),
        (_SENDS, _WAITS_AND_DIES, _REFUSES, _PLAIN, *_ACCEPT_ALL, _LOOKS),
    ),
    "other_options": (
        (_MANY, _WAITS_AND_DIES, _JUDGED_OTHERWISE, _PLAIN),
        (_MANY, _TURNED_DOWN, _JUDGED_OTHERWISE, *_UP_ALL, _JUDGED_OTHERWISE, _PLAIN),
        (_MANY, _TURNED_DOWN, *_UP_ALL, _LOOKS, _JUDGED_OTHERWISE, _PLAIN),
        (_MANY, _TURNED_DOWN, *_UP_ALL, st.one_of(_ENDS, _ENDS_AND_LOOKS), _JUDGED_OTHERWISE, _PLAIN),
        (_MANY, _TURNED_DOWN, st.one_of(_PLAIN, _ENDS), _BY_A_MOVER, *_UP_ALL, _JUDGED_OTHERWISE, _PLAIN),
        (_MANY, _WAITS_AND_DIES, _NOTICED, _ENDS, _JUDGED_OTHERWISE, _MANY, _PLAIN, _JUDGED_AS_BEFORE),
    ),
    "another_url": (
        (_MANY, _PLAIN, _DIES, _ANOTHER_URL, _PLAIN),
        (_MANY, _PLAIN, _DIES, _NOTICED, _ENDS, _ANOTHER_URL, _MANY, _PLAIN, _DIES, _ANOTHER_URL, _PLAIN),
    ),
    "ids_of_handled": ((_ONE_ID, *[_PLAIN] * 3), (_ONE_ID, *[_PLAIN] * 3, _RETRIED, _PLAIN)),
    "one_id": (
        (_ONE_ID, _DOWN, _PLAIN, *_UP_ALL, _LOOKS, _PLAIN),
        (_ONE_ID, _WAITS_AND_DIES, _DOWN, _PLAIN, *_UP_ALL, _LOOKS),
    ),
    "stored_by_us": (
        (_STORED_OR_SENT, _PLAIN),
        (
            _STORED_OR_SENT,
            _DOWN,
            _PLAIN,
            st.just(r.Replicate()),
            *_UP_ALL,
            _LOOKS,
            _PLAIN,
            st.just(r.FailOver()),
        ),
    ),
    "days": (
        (_MANY, _TURNED_DOWN, _DAYS, _PLAIN, *_UP_ALL, _LOOKS, _DAYS, _PLAIN, _PLAIN, _PLAIN),
        (_MANY, _TURNED_DOWN, _DAYS, _DAYS, *_UP_ALL, _PLAIN, _LOOKS, _PLAIN),
        (_MANY, _TURNED_DOWN, _DAYS, *_UP_ALL, _LOOKS, st.just(r.Crash()), _DAYS, _PLAIN, _PLAIN),
    ),
    "moved_by_others": (
        (_SENDS, _DOWN, _PLAIN, st.just(f.MovedByOthers()), _PLAIN, *_UP_ALL, _LOOKS),
        (_SENDS, *_DOWN_ALL, _WAITS_AND_DIES, st.just(f.MovedByOthers()), _PLAIN, *_UP_ALL),
    ),
    "fail_over_there": (
        (_SENDS, st.builds(f.ReplicateThere, _SOURCE), _PLAIN, st.builds(f.FailOverThere, _SOURCE), _PLAIN),
    ),
}


def _scenarios(
    setup: st.Chance[Setup],
    steps: Sequence[str],
    *,
    always: tuple[st.Chance[r.Step], ...] = (),
    **own: tuple[st.Chance[r.Step], ...],
) -> st.Chance[Scenario]:
    """:param steps: the named steps that the stream passes.
    :param always: what befalls a stream of this family in every story.
    :param own: bundles of this family.
    """
    bundles = {
        **_BUNDLES,
        **own,
        "crashes": (*_BUNDLES["crashes"], _faulty(steps, *_DEATHS)),
        "cuts": (*_BUNDLES["cuts"], _faulty(steps, *_CUTS)),
        "lost commits": (_faulty(steps, *_LOST_COMMITS),),
        "fail-over": (
            *_BUNDLES["fail-over"],
            st.builds(r.FailOver, st.booleans()),
            _faulty([each for each in steps if each in _TURNS], "the replica is as far"),
        ),
    }
    turn = _faulty([each for each in steps if each in _TURNS], "the replica is as far")
    phrases = {name: found for name, found in _PHRASES.items() if name in bundles}
    phrases["fail-over"] = (*phrases["fail-over"], (_SENDS, turn, st.just(r.FailOver()), _PLAIN))

    def story(chosen: list[str], *, often: int, fewest: int, most: int) -> st.Chance[tuple[r.Step, ...]]:
        """:param often: how often a single step is told where each phrase is told once."""
        befalls = [*always, *(step for name in chosen for step in bundles[name])]
        plain = [_PLAIN] * max(1, len(befalls) // 2)
        one = st.one_of(st.just(r.Nothing()), _SENDS, *plain, _COMMITS, *befalls).map(lambda step: (step,))
        told = [st.tuples(*phrase) for name in chosen for phrase in phrases.get(name, ())]
        parts = st.lists(st.one_of(*([one] * often), *told), min_size=fewest, max_size=most)
        return parts.map(lambda found: tuple(step for part in found for step in part))

    # Half of the stories are about anything, the other half about things that must happen in a certain order.
    names = [*sorted(bundles), *own]
    anything = st.some_of(names, most=3).flatmap(lambda chosen: story(chosen, often=5, fewest=5, most=16))
    # A family to which something befalls always has phrases enough of its own.
    begun = sorted(name for name in phrases if name in own or not always)
    phrased = st.tuples(st.sampled_from(begun), st.sampled_from(names)).flatmap(
        lambda chosen: story(sorted(set(chosen)), often=2, fewest=2, most=6)
    )
    return st.builds(Scenario, setup, st.one_of(anything, phrased))


_LIMIT = st.integers(1, 4)
_HEADROOMS = ("auto", "0", "1", "3")
_HEADROOM = st.sampled_from(_HEADROOMS)


def storing() -> st.Chance[Scenario]:
    """Scenarios with receiveOnly and a sink that knows batches by their number."""
    setup = st.builds(
        Setup,
        options=st.builds(Options, limit=_LIMIT, ahead=st.booleans(), headroom=_HEADROOM),
        follows=st.booleans(),
        sources=st.integers(1, 2),
    )
    return _scenarios(
        setup,
        _RECEIVING,
        oddities=(_odd(),),
        restarts=(_restarts(limit=(1, 3, 10), ahead=(True, False), headroom=_HEADROOMS),),
    )


_ROUTES = st.sampled_from(
    (((None,),), (("billing",), ("shipping",)), (("billing", "shipping"),), ((None,), ("shipping",)))
)

_EVENTS = st.sampled_from((((q.EVENT,),), ((q.EVENT,), ("billing",)), ((q.EVENT,), (None,))))


def atomic() -> st.Chance[Scenario]:
    """Scenarios with sendsAtomicWithReceive, now and then in other modes, and two destinations."""
    setup = st.builds(
        Setup,
        options=st.builds(
            Options, mode=st.just(ATOMIC), limit=_LIMIT, ahead=st.booleans(), headroom=_HEADROOM
        ),
        stores=st.just(False),
        follows=st.booleans(),
        sources=st.sampled_from((1, 1, 1, 2)),
        both_atomic=st.booleans(),
        sinks=st.integers(1, 2),
        errors=st.booleans(),
        routes=_ROUTES,
    )
    restart = _restarts(
        mode=(ATOMIC, RECEIVE_ONLY), stream=("A", "B"), limit=(1, 3, 10), queue=("billing", "shipping")
    )
    return _scenarios(
        setup,
        (*_RECEIVING, *_STAGING),
        oddities=(_odd(others=True),),
        restarts=(restart,),
        finished_otherwise=(_DIES, _OTHERWISE),
    )


def sending() -> st.Chance[Scenario]:
    """Scenarios with receiveOnly and destinations, under each kind of outbox."""
    setup = st.builds(
        Setup,
        options=st.builds(
            Options,
            outbox=st.sampled_from(("optimistic", "pessimistic", "none")),
            limit=_LIMIT,
            ahead=st.booleans(),
        ),
        stores=st.just(False),
        follows=st.booleans(),
        sinks=st.integers(1, 2),
        errors=st.booleans(),
        routes=st.one_of(_ROUTES, _EVENTS),
    )
    restart = _restarts(
        queue=("shipping", "billing"),
        outbox=("optimistic", "pessimistic"),
        limit=(1, 3, 10),
        ahead=(True, False),
    )
    changed = (_faulty(_SENDING, *_DEATHS), _restarts(queue=("shipping", "billing")))
    return _scenarios(
        setup,
        (*_RECEIVING, *_SENDING),
        oddities=(_odd(),),
        restarts=(restart,),
        changed_half_way=changed,
        subscribing=(st.builds(r.Subscribe, st.booleans()),),
    )


def taking() -> st.Chance[Scenario]:
    """Scenarios with mode none, now and then with receiveOnly."""
    setup = st.builds(
        Setup,
        options=st.builds(
            Options, mode=st.just(NO_TRANSACTION), limit=_LIMIT, ahead=st.booleans(), headroom=_HEADROOM
        ),
        follows=st.booleans(),
    )
    restart = _restarts(mode=(NO_TRANSACTION, RECEIVE_ONLY), limit=(1, 3, 10))
    return _scenarios(setup, _TAKING, oddities=(_odd(),), restarts=(restart,))


def several() -> st.Chance[Scenario]:
    """Scenarios with one source over two queues, in each mode; now and then it reads only one of them.

    A source with a pattern reads all queues that it matches, which come, go and are renamed.
    """
    modes = [_joined(mode) for mode in (RECEIVE_ONLY, RECEIVE_ONLY, RECEIVE_ONLY, NO_TRANSACTION, ATOMIC)]
    restart = _restarts(
        limit=(1, 3, 10),
        ahead=(True, False),
        headroom=_HEADROOMS,
        reads=(SOURCES, SOURCES[:1], SOURCES[1:], SOURCES[::-1]),
    )
    listed = _several(st.one_of(*modes), restart, taken_off=(_DIES, _TAKEN_OFF))
    sends = _joined(RECEIVE_ONLY).map(lambda found: replace(found, stores=False))
    matched = st.one_of(*modes[2:], sends).map(lambda found: replace(found, pattern=True))
    restart = _restarts(limit=(1, 3, 10), ahead=(True, False), headroom=_HEADROOMS)
    appearing: tuple[st.Chance[r.Step], ...] = (_APPEARS, st.builds(r.Drop, st.integers(0, 2)))
    always: tuple[st.Chance[r.Step], ...] = (_RENAMED, _SENDS_THERE)
    found = _several(matched, restart, always=always, renamed=(_DIES,), appearing=appearing)
    return st.one_of(listed, listed, found)


def _joined(mode: str) -> st.Chance[Setup]:
    return st.builds(
        Setup,
        options=st.builds(Options, mode=st.just(mode), limit=_LIMIT, ahead=st.booleans(), headroom=_HEADROOM),
        stores=st.just(mode != ATOMIC),
        follows=st.booleans(),
        sources=st.just(2),
        joined=st.just(True),
    )


def _several(
    setup: st.Chance[Setup],
    restart: st.Chance[r.Step],
    *,
    always: tuple[st.Chance[r.Step], ...] = (),
    **own: tuple[st.Chance[r.Step], ...],
) -> st.Chance[Scenario]:
    steps = (*_RECEIVING, *_STAGING, *_TAKING)
    return _scenarios(setup, steps, always=always, oddities=(_odd(),), restarts=(restart,), **own)


def handling() -> st.Chance[Scenario]:
    """Scenarios in which each message has an outcome, under an outbox or atomically,
    and not always the same.
    """
    setup = st.builds(
        Setup,
        options=st.builds(
            Options,
            mode=st.sampled_from((RECEIVE_ONLY, RECEIVE_ONLY, ATOMIC)),
            outbox=st.sampled_from(("optimistic", "pessimistic")),
            limit=_LIMIT,
            ahead=st.booleans(),
        ),
        stores=st.just(False),
        follows=st.booleans(),
        handles=st.just(True),
        errors=st.just(True),
        routes=st.sampled_from((((None,),), ((q.EVENT,),))),
    )
    within = _restarts(
        mode=(ATOMIC, RECEIVE_ONLY),
        outbox=("optimistic", "pessimistic"),
        limit=(1, 3, 10),
        ahead=(True, False),
    )
    elsewhere = _restarts(outbox=("optimistic", "pessimistic"), limit=(1, 3, 10), ahead=(True, False))
    there = setup.map(
        lambda found: replace(found, elsewhere=True, options=replace(found.options, mode=RECEIVE_ONLY))
    )
    found = _handling(there, elsewhere, another_url=(_ANOTHER_URL, _ENDS))
    return st.one_of(_handling(setup, within), _handling(setup, within), found)


def _handling(
    setup: st.Chance[Setup], restart: st.Chance[r.Step], **own: tuple[st.Chance[r.Step], ...]
) -> st.Chance[Scenario]:
    again: tuple[st.Chance[r.Step], ...] = (_faulty(_SENDING, *_DEATHS), st.builds(r.Trigger))
    return _scenarios(
        setup,
        (*_RECEIVING, *_SENDING, *_STAGING),
        oddities=(_odd(), _MOVED),
        restarts=(restart,),
        tried_again=again,
        moved_back=(_MOVED, st.builds(r.Trigger)),
        failed=(_RETRIED,),
        ids_of_handled=(_ONE_ID,),
        acknowledged=(_BACK,),
        judged=(_JUDGED,),
        **own,
    )


_TURNS_THERE = (
    "goes down",
    "goes down and notices nothing",
    "comes back",
    "goes down before it hears a commit",
    "goes down before it answers a commit",
)


def forwarding() -> st.Chance[Scenario]:
    """Scenarios of a store-and-forward job between three databases, of which two go down and come back."""
    billing, shipping = DESTINATIONS
    setup = st.builds(
        Setup,
        options=st.builds(
            Options,
            outbox=st.sampled_from(("optimistic", "pessimistic")),
            limit=_LIMIT,
            ahead=st.booleans(),
            judging=st.sampled_from(("", "", job.LEGACY)),
        ),
        stores=st.just(False),
        forwards=st.just(True),
        errors=st.just(True),
        gives_up=st.sampled_from((True, False, False)),
        routes=st.sampled_from(
            (
                ((billing,),),
                ((billing,), (shipping,)),
                ((billing,), (shipping,), (None,)),
                ((shipping,), (billing,), (billing,), (NOWHERE,)),
            )
        ),
    )
    steps = (*_RECEIVING, *_SENDING)
    whats = [f"{to} {what}" for to in DESTINATIONS for what in _TURNS_THERE]
    looks = (_LOOKS, _LOOKS_BADLY)
    gives_up: st.Chance[r.Step] = st.builds(f.GiveUp, st.sampled_from((None, None, *death_steps.DUE_STEPS)))
    return _scenarios(
        setup,
        steps,
        always=(_DOWN, _UP, _LOOKS),
        oddities=(_odd(),),
        restarts=(
            _restarts(
                queue=DESTINATIONS,
                outbox=("optimistic", "pessimistic"),
                limit=(1, 3, 10),
                ahead=(True, False),
            ),
        ),
        half_way=(
            _faulty((q.OFFSET_NOT_LOGGED, fail_points.OFFSET_LOGGED, *_SENDING, q.BATCH_WRITTEN), *whats),
            st.builds(f.GoDown, _SOURCE, st.booleans()),
            st.just(r.Notice()),
        ),
        tried_again=(_faulty(_SENDING, *_DEATHS), _PLAIN),
        given_up=(gives_up, _RETRIED, _WAITS_AND_DIES),
        put_back=looks,
        held=(_HOLDS, st.just(r.Notice())),
        tasks_that_die=(_TASK_DIES, _faulty(_SENDING, "the driver looks")),
        dropped=(st.builds(f.DropQueue, _SOURCE), st.builds(f.CreateQueue, _SOURCE), _RETRIED),
        refusing=(_REFUSES, _ACCEPTS, _ACCEPTS),
        one_id=(_ONE_ID,),
        acknowledged=(_BACK,),
        days=(_DAYS, st.just(r.Crash())),
        moved_by_others=(st.just(f.MovedByOthers()),),
        stored_by_us=(_STORED, _STORED, _STORED_OR_SENT),
        other_options=(_JUDGED_OTHERWISE, _JUDGED_AS_BEFORE, st.one_of(_ENDS, _ENDS_AND_LOOKS)),
        fail_over_there=(
            st.builds(f.ReplicateThere, _SOURCE),
            st.builds(f.FailOverThere, _SOURCE),
            _faulty(
                [each for each in steps if each in _TURNS],
                *(f"{to} replica is as far" for to in DESTINATIONS),
            ),
        ),
    )


SHARDS = {each.__name__: each for each in (storing, atomic, sending, taking, several, handling, forwarding)}
