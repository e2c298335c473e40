"""A queue table of one shape: which entries a row has, and what is in the table."""

from dataclasses import dataclass
from typing import NamedTuple

from tests.lock_model.locks import Resource

#: The lock on the table itself. Sch-S and Sch-M are modes of it.
TABLE = Resource("table")


@dataclass(frozen=True)
class Shape:
    """How a table is stored, and what a server does with it that no manual tells.

    ``heap``: Index_RowVersion is nonclustered; else it is the clustered index. ``expires_first``: a change
    comes to Index_Expires before Index_RowVersion. ``frees_keys``: the index key of a row that is stepped
    over is freed at once.
    """

    heap: bool
    index_expires: bool
    expires_first: bool = False
    frees_keys: bool = False

    def __str__(self) -> str:
        return ("heap" if self.heap else "clustered") + (" with Index_Expires" if self.index_expires else "")

    def key(self, row: int) -> Resource:
        """The entry in Index_RowVersion; on a clustered table this is the row itself."""
        return Resource("key", row)

    def row(self, row: int) -> Resource:
        """The row itself."""
        return Resource("rid" if self.heap else "key", row)

    def expires(self, row: int) -> Resource:
        """The entry in Index_Expires."""
        return Resource("expires", row)

    def entries(self, row: int) -> list[Resource]:
        """All entries of a row, in the order in which a change comes to them:
        the row first, then its indexes.
        """
        indexes = [
            *([self.key(row)] if self.heap else []),
            *([self.expires(row)] if self.index_expires else []),
        ]
        return [self.row(row), *(reversed(indexes) if self.expires_first else indexes)]

    def way(self, row: int) -> list[Resource]:
        """The entries by which a seek in Index_RowVersion comes to the row."""
        return list(dict.fromkeys((self.key(row), self.row(row))))


SHAPES = [Shape(heap=heap, index_expires=expires) for heap in (False, True) for expires in (False, True)]


class Rows(NamedTuple):
    """What is in a table: committed rows, and changes to entries that are not committed, by who made them."""

    committed: frozenset[int]
    added: frozenset[tuple[int, Resource]] = frozenset()
    removed: frozenset[tuple[int, Resource]] = frozenset()
    #: Every row that was ever committed.
    born: frozenset[int] = frozenset()

    def is_met(self, entry: Resource) -> bool:
        """Whether a seek or a scan comes by the entry; an entry that is being deleted is still met."""
        return entry.row in self.committed or any(each == entry for _, each in self.added)

    def is_counted(self, entry: Resource) -> bool:
        """Whether a statement that takes no locks sees the entry."""
        return self.is_met(entry) and all(each != entry for _, each in self.removed)

    def is_there(self, row: int, owner: int) -> bool:
        """Whether the row is there for an owner of its lock."""
        gone = any(who == owner and entry.row == row for who, entry in self.removed)
        return row in self.committed and not gone

    def ended(self, owner: int, how: str) -> "Rows":
        """What is in the table after the owner's transaction has ended."""
        mine = ({entry.row for who, entry in part if who == owner} for part in (self.added, self.removed))
        added, removed = mine if how == "commit" else (set(), set())
        return Rows(
            (self.committed | added) - removed,
            frozenset(each for each in self.added if each[0] != owner),
            frozenset(each for each in self.removed if each[0] != owner),
            self.born | added,
        )
