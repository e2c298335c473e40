"""The families of scenarios: which queries, and what befalls them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from sqlqueue_spark import faults
from sqlqueue_spark.options import ATOMIC, NO_TRANSACTION, RECEIVE_ONLY
from tests.machine import query as q
from tests.machine import rules as r
from tests.machine.query import Options, Setup, Way
from tests.machine.scenario import Scenario

_COUNT = st.integers(1, 5)
_SOURCE = st.integers(0, 1)
_WHATS = (
    "crash",
    "cut",
    "the replica is as far",
    "crash that nobody notices",
    "cut before the next commit is answered",
    "cut before the next commit is heard",
    "cut that nobody notices",
)
_RECEIVING = (
    faults.ROWS_LOCKED,
    q.OFFSET_NOT_LOGGED,
    faults.OFFSET_LOGGED,
    faults.HALF_READ,
    q.BATCH_WRITTEN,
    q.BATCH_LOGGED,
    faults.COMMIT_LOGGED,
    faults.DELETED,
    faults.COMMITTED,
)
_STAGING = (faults.ROWS_STAGED, faults.STAGE_SEALED)
_SENDING = (faults.IDS_CHECKED, faults.ROWS_INSERTED, faults.IDS_INSERTED, faults.CHUNK_SENT)
_TAKING = (faults.OFFSET_LOGGED, faults.ROWS_TAKEN, q.BATCH_WRITTEN, q.OFFSET_NOT_LOGGED)


def _ways(steps: Sequence[str], *, others: bool = False) -> st.SearchStrategy[r.Step]:
    odd = st.builds(
        Way,
        asks=st.integers(1, 2),
        plans=st.integers(1, 2),
        reads=st.integers(1, 2),
        commit=st.sampled_from(("late", "twice", "never")),
        others=st.integers(-1, 2) if others else st.just(-1),
    )
    faulty = st.builds(Way, at=st.sampled_from(steps), what=st.sampled_from(_WHATS))
    return st.builds(r.Trigger, st.one_of(st.just(Way()), faulty, st.just(Way()), odd))


def _restarts(**options: Sequence[object]) -> st.SearchStrategy[r.Step]:
    changes = [
        st.tuples(st.sampled_from(values)).map(lambda v, name=name: ((name, v[0]),))
        for name, values in options.items()
    ]
    return st.builds(r.Restart, st.one_of(st.just(()), *changes))


_SENDS = st.builds(
    r.Send, _COUNT, _SOURCE, st.sampled_from(("plain", "plain", "plain", "expired", "perishable", "of one id"))
)
_EVERYBODY: tuple[st.SearchStrategy[Any], ...] = (
    st.builds(r.Take, st.integers(1, 3), _SOURCE, st.sampled_from(("commits", "holds"))),
    st.builds(r.EndTake, st.booleans()),
    st.builds(r.SendLate, _COUNT, _SOURCE),
    st.builds(r.EndLate, st.booleans()),
    st.just(r.TimePasses()),
    st.builds(r.Crash, st.booleans()),
    st.builds(r.Cut, st.booleans()),
    st.just(r.Notice()),
    st.just(r.Replicate()),
    st.builds(r.FailOver, st.booleans()),
    st.one_of(st.just(r.SaveCheckpoint()), st.just(r.RestoreCheckpoint())),
    st.just(r.Dump()),
    st.just(r.EndDump()),
    st.one_of(
        st.builds(r.SaveRows, _SOURCE),
        st.just(r.PutBackRows()),
        st.builds(r.SaveRows, _SOURCE),
        st.just(r.PutBackRows()),
        st.builds(r.Alter, _SOURCE),
        st.builds(r.Truncate, _SOURCE),
    ),
)


def _scenarios(
    setup: st.SearchStrategy[Setup], trigger: st.SearchStrategy[r.Step], restart: st.SearchStrategy[r.Step]
) -> st.SearchStrategy[Scenario]:
    step = st.one_of(st.just(r.Nothing()), trigger, _SENDS, trigger, restart, trigger, *_EVERYBODY)
    return st.builds(Scenario, setup, st.lists(step, min_size=14, max_size=30).map(tuple))


_LIMIT = st.integers(1, 4)


def storing() -> st.SearchStrategy[Scenario]:
    """receiveOnly into a sink that knows batches by their number."""
    setup = st.builds(
        Setup,
        options=st.builds(Options, limit=_LIMIT, ahead=st.booleans()),
        follows=st.booleans(),
        sources=st.integers(1, 2),
    )
    return _scenarios(setup, _ways(_RECEIVING), _restarts(limit=(1, 3, 10), ahead=(True, False)))


_ROUTES = st.sampled_from(
    (((None,),), (("billing",), ("shipping",)), (("billing", "shipping"),), ((None,), ("shipping",)))
)


def atomic() -> st.SearchStrategy[Scenario]:
    """sendsAtomicWithReceive into two destinations, now and then in other modes."""
    setup = st.builds(
        Setup,
        options=st.builds(Options, mode=st.just(ATOMIC), limit=_LIMIT, ahead=st.booleans()),
        stores=st.just(False),
        follows=st.booleans(),
        sources=st.sampled_from((1, 1, 1, 2)),
        sinks=st.integers(1, 2),
        routes=_ROUTES,
    )
    restart = _restarts(mode=(ATOMIC, RECEIVE_ONLY), stream=("A", "B"), limit=(1, 3, 10), queue=("billing", "shipping"))
    return _scenarios(setup, _ways((*_RECEIVING, *_STAGING), others=True), restart)


def sending() -> st.SearchStrategy[Scenario]:
    """receiveOnly into destinations, under each kind of outbox."""
    setup = st.builds(
        Setup,
        options=st.builds(
            Options, outbox=st.sampled_from(("optimistic", "pessimistic", "none")), limit=_LIMIT, ahead=st.booleans()
        ),
        stores=st.just(False),
        follows=st.booleans(),
        sinks=st.integers(1, 2),
        routes=_ROUTES,
    )
    restart = _restarts(
        queue=("shipping", "billing"), outbox=("optimistic", "pessimistic"), limit=(1, 3, 10), ahead=(True, False)
    )
    return _scenarios(setup, _ways((*_RECEIVING, *_SENDING)), restart)


def taking() -> st.SearchStrategy[Scenario]:
    """Mode none, now and then receiveOnly."""
    setup = st.builds(
        Setup,
        options=st.builds(Options, mode=st.just(NO_TRANSACTION), limit=_LIMIT, ahead=st.booleans()),
        follows=st.booleans(),
    )
    restart = _restarts(mode=(NO_TRANSACTION, RECEIVE_ONLY), limit=(1, 3, 10))
    return _scenarios(setup, _ways(_TAKING), restart)


SHARDS = {each.__name__: each for each in (storing, atomic, sending, taking)}
