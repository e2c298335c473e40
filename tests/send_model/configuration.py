"""What a configuration is: rows, answers of functions, and which faults may happen."""

from dataclasses import dataclass, field

from tests.send_model.world import Row

#: A finding that cannot be helped, and the faults without which it must not appear: one of each group.
Inherent = dict[str, tuple[frozenset[str], ...]]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A start, and faults: how often each may happen, and how many together."""

    rows: tuple[Row, ...]
    faults: dict[str, int]
    budget: int = 2
    answers: tuple[tuple[str, ...] | None, ...] = ((),)  # the tables that a function sends to; None: it fails
    urls: dict[str, str] = field(default_factory=lambda: {"billing": "other"})
    tables: tuple[str, ...] = ("home:shop", "other:billing")
    retries: int = 1
    fails_first: bool = False  # the function may fail at a row that was not moved yet
    audits: bool = False  # the job has an audit queue, so that a row that is passed on owes a copy
    atomic: bool = False  # the mode sendsAtomicWithReceive
    inherent: Inherent = field(default_factory=dict)
    slow: bool = False  # more than 100,000 worlds: all faults together only at night


def row(kind: str, to: str = "", root: str = "a", id_: str = "X", *, owes: bool = False) -> Row:
    table = "source" if kind == "plain" else "queue"
    return Row(table, id_, root, kind, tuple(to.split()), row_id=root, owes=owes)


A, B = row("pass", "billing"), row("pass", "billing", "b")
OWES = row("pass", "billing", owes=True)
FAULTS = {"crash": 1, "twin": 1, "lost answer": 1, "down": 1, "readonly": 1}

#: Two tries of one row: a speculative task, a lost executor's, one that outlives its driver.
TWO_TRIES = frozenset({"twin", "crash"})
CHANGED = frozenset({"create other:billing", "drop other:billing", "create home:shop"})
#: Two tries of one row, and a destination that is created or dropped between them.
REFUSED_MEANWHILE: Inherent = {"delivered and in error": (TWO_TRIES, CHANGED)}
LAG = frozenset({"lag home"})
DOWN = frozenset({"down"})


def forgotten(*findings: str, also: tuple[frozenset[str], ...] = ()) -> Inherent:
    """What may be after home has forgotten commits, and these faults too."""
    return dict.fromkeys(findings, (LAG, *also))
