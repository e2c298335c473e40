"""What survives a step: databases, the batch that Spark has logged, and the tries that run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

HOME, OTHER, THIRD = "home", "other", "third"

Key = tuple[object, ...]
Keys = dict[Key, str]


class Header(NamedTuple):
    """What a row that we moved carries: its first origin, the number of its moves, the Id of its own row."""

    origin: str
    moves: int
    row_id: str


class Row(NamedTuple):
    """A row of a table, or a message of a frame (table ``source``). Only checks read ``root`` and ``hop``."""

    table: str
    id: str  # the message id
    root: str  # of which row of the configuration, or message of a function, it is a copy
    kind: (
        str  # pass (to its places), handle, poison, stored (by us, for another database), plain; sent, failed
    )
    to: tuple[str, ...] = ()  # names of tables; the urls tell the database of each
    row_id: str = ""  # the Id of the row
    header: Header | None = None
    owes: bool = False  # ServiceControl waits for an acknowledgement
    overdue: bool = False  # it has waited for its database for too long
    failed_as: Key = ()  # of a stored error row or result: origin and moves of the row that it is of
    was: tuple[str, tuple[str, ...]] = ("", ())  # of a row in error or delayed: kind and places
    hop: int = 0  # how often the message became a new row, of ours or by ServiceControl
    answer: str = ""  # to which answer of a function it belongs


class Outcome(NamedTuple):
    """An outcome that home has committed; for checks only."""

    root: str
    hop: int
    outcome: str
    id: str
    kind: str
    answer: str
    base: str  # what the ids of its messages are made of


class Written(NamedTuple):
    """What a transaction at home writes: nothing where it refuses a message, which is then marked."""

    text: str
    rows: tuple[Row, ...] = ()
    keys: frozenset[tuple[Key, str]] = frozenset()
    outcomes: frozenset[Outcome] = frozenset()
    marked: int | None = None
    acknowledges_later: bool = False


class Try(NamedTuple):
    """One run of a task at one row. A zombie goes on though no driver waits for it."""

    row: Row
    step: str
    to: tuple[tuple[str, str], ...]  # database and table of each message
    found: tuple[str | None, ...]  # what became of each message: sent, refused, down
    answer: str = ""
    zombie: bool = False
    decided: Written | None = None  # what its open transaction at home has decided to write


class Staged(NamedTuple):
    """What a task has staged."""

    run: Try
    written: Written


class Replica(NamedTuple):
    """What an asynchronous replica has."""

    rows: tuple[Row, ...]
    outbox: frozenset[tuple[Key, str]]
    outcomes: frozenset[Outcome]
    staged: frozenset[Staged]
    seal: frozenset[Staged]


class Database(NamedTuple):
    tables: frozenset[str]
    rows: tuple[Row, ...] = ()
    outbox: frozenset[tuple[Key, str]] = frozenset()  # key, and what became of it: known, sent, failed
    outcomes: frozenset[Outcome] = frozenset()
    state: str = "up"  # up, readonly, down
    staged: frozenset[Staged] = frozenset()  # of the batch, in the atomic mode
    seal: frozenset[Staged] = frozenset()
    replica: Replica | None = None

    def says(self, key: Key) -> str | None:
        return next((value for each, value in self.outbox if each == key), None)

    def write(
        self, rows: Iterable[Row] = (), keys: Mapping[Key, str] | None = None, gone: Sequence[Row] = ()
    ) -> "Database":
        """The database after one transaction."""
        left = list(self.rows)
        for each in gone:
            if each in left:  # equal rows are one too many already
                left.remove(each)
        rows = tuple(sorted([*left, *rows], key=repr))
        return self._replace(rows=rows, outbox=self.outbox | frozenset((keys or {}).items()))

    def commit(self, written: Written) -> "Database":
        after = self.write(written.rows, dict(written.keys))
        return after._replace(outcomes=self.outcomes | written.outcomes)


class Batch(NamedTuple):
    rows: tuple[Row, ...]
    done: bool = False  # Spark has logged it as done
    held: bool = True  # the transaction of its claim stands, so home has forgotten nothing since
    alive: bool = True  # a driver runs its tasks
    ready: frozenset[str] = frozenset()  # the rows for which a task has come to its end
    accepted: frozenset[Staged] = frozenset()  # what Spark has accepted of their tasks, in the atomic mode


class World(NamedTuple):
    home: Database
    other: Database
    third: Database
    batch: Batch | None
    tries: tuple[Try, ...] = ()
    urls: frozenset[tuple[str, str]] = (
        frozenset()
    )  # the tables that lie in another database than home, and which
    given: frozenset[str] = frozenset()  # the note beside the checkpoint: Ids of rows that recovery gave back
    spent: tuple[str, ...] = ()  # the faults that have happened
    era: int = 0  # how often home was promoted

    def at(self, name: str) -> Database:
        return {HOME: self.home, OTHER: self.other, THIRD: self.third}[name]

    def with_at(self, name: str, database: Database) -> "World":
        return self._replace(**{name: database})  # type: ignore[arg-type] # a database's name is a field

    def place(self, table: str) -> str:
        return next((database for each, database in self.urls if each == table), HOME)

    def with_tries(self, tries: Iterable[Try]) -> "World":
        return self._replace(tries=tuple(sorted(tries, key=repr)))

    def replaced(self, run: Try, by: Try | None) -> "World":
        tries = list(self.tries)
        tries.remove(run)
        return self.with_tries(tries if by is None else [*tries, by])

    def after(self, fault: str) -> "World":
        return self._replace(spent=tuple(sorted((*self.spent, fault))))


class Step(NamedTuple):
    text: str
    after: World
    fault: str = ""
