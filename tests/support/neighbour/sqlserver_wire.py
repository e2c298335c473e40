"""A neighbour's connection to SQL Server, over pyodbc.

No SQL Server has seen it yet: its T-SQL is read by a grammar only.
"""

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

import pyodbc

from tests.support.neighbour import addresses
from tests.support.neighbour.addresses import Place, UnknownQueueError
from tests.support.neighbour.statements import SQLSERVER as SAYS
from tests.support.neighbour.wire import Taken, Wire
from tests.support.sqlserver import opened, quoted

#: SQLSTATE of a table that is not there.
_MISSING = "42S02"


class SqlServerWire(Wire):
    lost: ClassVar = (pyodbc.OperationalError,)
    refuses_null: ClassVar = False

    def __init__(self, url: str, queue: Place) -> None:
        self.connection = opened(url)
        self._names = {
            "queue": _table(queue),
            "delayed": _table(Place(queue.schema, f"{queue.table}.Delayed")),
            "subscriptions": _table(Place(queue.schema, "SubscriptionRouting")),
        }

    def look(self) -> int:
        found = self.connection.execute(SAYS.look.format(**self._names)).fetchval()
        self.connection.commit()
        return int(found)

    def take(self) -> Taken | None:
        found = self.connection.execute(SAYS.take.format(**self._names)).fetchone()
        if found is None:
            return None
        row_id, row_version, expired, headers, body = found
        return Taken(
            id=UUID(str(row_id)), row_version=row_version, expired=bool(expired), headers=headers, body=body
        )

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def insert(self, address: str, id: UUID, headers: str, body: bytes) -> None:
        try:
            self.connection.execute(
                SAYS.insert.format(queue=_table(self.place(address))), str(id), headers, body
            )
        except pyodbc.ProgrammingError as error:
            if error.args[0] != _MISSING:
                raise
            raise UnknownQueueError(address) from error

    def place(self, address: str) -> Place:
        return addresses.of_sqlserver(address)

    def subscribers(self, topics: Sequence[str]) -> list[str]:
        marks = ", ".join("?" * len(topics))
        statement = SAYS.subscribers.format(**self._names, topics=marks)
        return [address for (address,) in self.connection.execute(statement, *topics).fetchall()]

    def delay(self, headers: str, body: bytes, after: timedelta) -> None:
        self.connection.execute(
            SAYS.delay.format(**self._names), headers, body, round(after.total_seconds() * 1000)
        )

    def move_due(self) -> tuple[int, float | None]:
        moved = self.connection.execute(SAYS.move_due.format(**self._names)).rowcount
        seconds = self.connection.execute(SAYS.next_due.format(**self._names)).fetchval()
        self.connection.commit()
        return moved, None if seconds is None else float(seconds)

    def cut(self) -> None:
        """Nothing: pyodbc shows no socket, and to close a connection on which a thread works may crash.

        That thread closes it.
        """

    def close(self) -> None:
        with contextlib.suppress(pyodbc.Error):
            self.connection.close()


def _table(place: Place) -> str:
    return f"{quoted(place.schema)}.{quoted(place.table)}"
