"""What the plan of each statement must be like: by which index it goes,
and that it scans no table that fills up.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.engines.statements import Parameters, Statement
from sqlqueue_spark.tables.subscriptions import NAME as SUBSCRIPTIONS
from tests.verdict.probes import Facts, NotApplicable, Probe, Verdict
from tests.verdict.said import DELAYED, DESTINATION, QUEUE, STAGE, Heard, Tables, say_everything

#: A memory grant above this waits for its turn on a busy server (error 8645).
MOST_MEMORY_KB = 1024


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a plan says of the tables of queues, outboxes and stages."""

    indexes: frozenset[str] = frozenset()
    #: Tables that are read from end to end, by themselves or by an index;
    #: not those of which only the first rows are read.
    scans: frozenset[str] = frozenset()
    #: Columns that are converted before they are compared (CONVERT_IMPLICIT), so that no index serves. None,
    #: here and below: the engine's plans do not say.
    conversions: frozenset[str] | None = None
    memory_kb: int | None = None
    #: The plan reads ahead, and so keeps the locks of what it has read.
    reads_ahead: bool | None = None
    parallel: bool = False


@dataclass(frozen=True, kw_only=True)
class Way:
    """``index`` is the word for an index that the engine knows by a name of its own;
    ``scans`` are allowed.
    """

    index: str = ""
    scans: frozenset[str] = field(default_factory=frozenset)
    #: Rows are locked one at a time while the statement looks for them, so nothing may be read ahead.
    one_at_a_time: bool = False


_WHOLE_QUEUE = frozenset({QUEUE})
_WHOLE_STAGE = frozenset({STAGE})
_BY_NUMBER = Way(index="row version")
_ONE_BY_ONE = Way(index="row version", one_at_a_time=True)
#: A stage holds one batch and is emptied between batches, so it is scanned, but for its mark.
_BY_STAGE = Way(scans=_WHOLE_STAGE)

#: By which way each statement goes that has a plan.
WAYS: Mapping[str, Way] = {
    **dict.fromkeys(("claim", "claim_runs", "look", "take", "purge"), _ONE_BY_ONE),
    **dict.fromkeys(("read", "read_unexpired", "read_versions", "peek", "peek_headers"), _ONE_BY_ONE),
    **dict.fromkeys(("lock", "ids", "headers_of", "lock_in_transit"), _ONE_BY_ONE),
    **dict.fromkeys(("delete", "delete_range", "count_range"), _BY_NUMBER),
    **dict.fromkeys(("highest", "waiting", "stopping_row", "oldest"), _BY_NUMBER),
    "purge_expired": Way(index="expires", one_at_a_time=True),
    **dict.fromkeys(("length", "count_up_to", "count_rows"), Way(scans=_WHOLE_QUEUE)),
    **dict.fromkeys(("insert", "insert_by_policy"), Way()),
    **dict.fromkeys(
        ("outbox_seen", "outbox_seen_of", "outbox_has_outcomes", "outbox_add_new"), Way(index="message id")
    ),
    "outbox_add": Way(),
    "outbox_clean": Way(index="dispatched at"),
    "outbox_oldest": Way(index="oldest"),
    "outbox_report": Way(scans=frozenset({"Verdict_OutboxData"})),
    **dict.fromkeys(("stage_mark", "stage_seal"), Way(index="mark")),
    **dict.fromkeys(
        ("stage_last", "stage_count", "stage_next", "stage_move", "stage_rows", "stage_try"), _BY_STAGE
    ),
    **dict.fromkeys(("stage_open", "stage_insert"), Way()),
    "delayed_next": Way(index="due"),
    **dict.fromkeys(
        ("delayed_due", "delayed_due_behind", "delayed_waiting"), Way(index="due", one_at_a_time=True)
    ),
    **dict.fromkeys(("delayed_send", "delayed_headers"), Way(index="delayed row")),
    "delayed_length": Way(scans=frozenset({DELAYED})),
    **dict.fromkeys(
        ("subscribers", "subscriptions", "subscribe", "unsubscribe"), Way(scans=frozenset({SUBSCRIPTIONS}))
    ),
}

#: The first key column of each index. To convert it is to lose the index;
#: to convert another column costs next to nothing.
COLUMNS = {
    "row version": "RowVersion",
    "expires": "Expires",
    "message id": "MessageId",
    "dispatched at": "DispatchedAt",
    "oldest": "DispatchedAt",
    "mark": "Task",
    "due": "Due",
    "delayed row": "Due",
}

#: Looks at the plan of a statement with its parameters; None where the engine makes none for it.
Look = Callable[[str, Statement, Parameters], Plan | None]


def probes(
    indexes: Mapping[str, str], plans: Mapping[str, Plan | None], known: Mapping[str, str]
) -> Iterable[Probe[None]]:
    """The verdict on each statement, from the plans that were seen.

    :param indexes: the names of the indexes, by the words of :data:`WAYS`.
    :param known: why a statement is known to have another plan, by its name.
    """
    for name, way in sorted(WAYS.items()):
        index = indexes.get(way.index, "")

        def look(_: None, name: str = name, way: Way = way, index: str = index) -> Facts:
            if name not in plans:
                raise NotApplicable("this engine does not say it, or may choose any way here")
            plan = plans[name]
            if plan is None:
                raise NotApplicable("a bulk load has no plan")
            return facts(plan, way, index)

        yield Probe(
            id=f"plan:{name}",
            rule=_rule(way, index),
            done=f"The plan of the statement {name}, with the parameters with which the package calls it.",
            expected=(_expected(plans.get(name), way, index),),
            look=look,
            known=known.get(name, ""),
        )


def facts(plan: Plan, way: Way, index: str) -> Facts:
    found: dict[str, object] = {}
    if index:
        found[f"goes by {index}"] = any(each.startswith(index) for each in plan.indexes)
    found["scans"] = sorted(plan.scans - way.scans)
    if plan.conversions is not None:
        found["converts"] = sorted(plan.conversions & {COLUMNS.get(way.index, "")})
    if plan.memory_kb is not None:
        found["memory"] = "under 1 MB" if plan.memory_kb < MOST_MEMORY_KB else f"{plan.memory_kb:,} KB"
    if way.one_at_a_time:
        found["in parallel"] = plan.parallel
        if plan.reads_ahead is not None:
            found["reads ahead"] = plan.reads_ahead
    return found


def verdicts(
    connection: Connection,
    tables: Tables,
    looks: Mapping[str, Look],
    indexes: Mapping[str, str],
    known: Mapping[str, str] = MappingProxyType({}),
    unjudged: Collection[str] = (),
) -> list[Verdict]:
    """Say every statement and judge its plans; of a statement that is said more than once,
    the last one counts.

    :param looks: by the words of the report for each plan that a statement may get.
    :param unjudged: statements that may go by any way here.
    """
    seen: dict[str, dict[str, Plan | None]] = {where: {} for where in looks}

    def hear(name: str, statement: Statement, parameters: Parameters) -> None:
        if name in WAYS and name not in unjudged:
            for where, look in looks.items():
                seen[where][name] = look(name, statement, parameters)

    say_everything(Heard(connection, hear), tables)
    return [each.verdict(None, where) for where in looks for each in probes(indexes, seen[where], known)]


def _rule(way: Way, index: str) -> str:
    by = f"It goes by {index}" if index else "It goes by no index of a table"
    scans = f" and scans nothing but {', '.join(sorted(way.scans))}" if way.scans else " and scans no table"
    return f"{by}{scans}{', one row at a time' if way.one_at_a_time else ''}."


def _expected(plan: Plan | None, way: Way, index: str) -> Facts:
    """The facts of a plan as it must be, as far as the engine's plans tell."""
    plan = plan or Plan()
    right = Plan(
        indexes=frozenset({index}),
        conversions=None if plan.conversions is None else frozenset(),
        memory_kb=None if plan.memory_kb is None else 0,
        reads_ahead=None if plan.reads_ahead is None else False,
    )
    return facts(right, way, index)


#: Tables whose plans are looked at.
TABLES = frozenset({QUEUE, DESTINATION, STAGE, DELAYED, SUBSCRIPTIONS, "Verdict_OutboxData"})
