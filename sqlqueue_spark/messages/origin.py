"""The header ``sqlqueue.Origin`` of a row that we have moved: which row the message was at first.

A message that is tried again, or waits for a database, comes back as a row with another Id. By the header it
is still known as the row that it was, and how often it was moved since. The value is
``<Id of this row>:<Id of the first row>:<its RowVersion>:<moves>``. A row with another Id than the header
says is another one: the header was copied, or a mover of .NET has given the row a new Id.
"""

import re
from typing import NamedTuple

_VALUE = re.compile(
    r"(?P<own>[0-9a-f-]{36}):(?P<row_id>[0-9a-f-]{36}):(?P<version>-?[0-9]{1,19}):(?P<moves>[0-9]{1,6})"
)


class Origin(NamedTuple):
    """What a received row is known by."""

    row_id: str
    row_version: int
    moves: int = 0

    @classmethod
    def of(cls, row_id: str, row_version: int, header: str | None) -> "Origin":
        """The origin of a row.

        :param header: its header ``sqlqueue.Origin``.
        """
        told = _VALUE.fullmatch(header or "")
        if told is None or told["own"] != row_id.lower():
            return cls(row_id.lower(), row_version)
        return cls(told["row_id"], int(told["version"]), int(told["moves"]))

    def moved(self) -> "Origin":
        """The same, of the row that the message comes back as."""
        return self._replace(moves=self.moves + 1)

    def header(self, own: str) -> str:
        """The value of the header of a row with this Id."""
        return f"{own}:{self.row_id}:{self.row_version}:{self.moves}"

    @property
    def key(self) -> str:
        """A text that no other row has, nor the same message at another move."""
        moves = f"+{self.moves}" if self.moves else ""
        return f"{self.row_id}-{self.row_version}{moves}"
