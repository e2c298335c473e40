"""A neighbour's connection to PostgreSQL: psycopg, and libpq itself where it must be fast.

To take a row costs two trips to the server, as it does a .NET endpoint: BEGIN goes with the DELETE.
"""

import contextlib
import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, LiteralString
from uuid import UUID

import psycopg
from psycopg import pq, sql

from tests.support.neighbour import addresses
from tests.support.neighbour.addresses import Place, UnknownQueueError
from tests.support.neighbour.statements import POSTGRESQL as SAYS
from tests.support.neighbour.wire import Taken, Wire

_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)


class PostgresWire(Wire):
    lost: ClassVar = (psycopg.OperationalError,)
    refuses_null: ClassVar = True

    def __init__(self, url: str, queue: Place) -> None:
        self.connection = psycopg.connect(
            url, autocommit=True, application_name=f"neighbour of {queue.table}"[:63]
        )
        self._pg = self.connection.pgconn
        self._names = {
            "queue": sql.Identifier(*queue),
            "delayed": sql.Identifier(queue.schema, f"{queue.table}.Delayed"),
            "subscriptions": sql.Identifier(queue.schema, "SubscriptionRouting"),
        }
        self.connection.execute(sql.SQL("PREPARE take AS {}").format(self._named(SAYS.take)))

    def look(self) -> int:
        found = self.connection.execute(self._named(SAYS.look)).fetchone()
        assert found is not None
        return int(found[0])

    def take(self) -> Taken | None:
        found = self._said(b"BEGIN;EXECUTE take", pq.ExecStatus.TUPLES_OK)
        if found.ntuples == 0:
            return None
        row_id, seq, expired, headers, body = (found.get_value(0, column) for column in range(5))
        assert row_id is not None
        assert seq is not None
        return Taken(
            id=UUID(row_id.decode()),
            row_version=int(seq),
            expired=expired == b"t",
            headers=None if headers is None else headers.decode(),
            body=None if body is None else bytes.fromhex(body[2:].decode()),
        )

    def commit(self) -> None:
        said = self._said(b"COMMIT", pq.ExecStatus.COMMAND_OK)
        assert said.command_status == b"COMMIT", (
            said.command_status
        )  # not the ROLLBACK of one that has failed

    def rollback(self) -> None:
        self._said(b"ROLLBACK", pq.ExecStatus.COMMAND_OK)

    def insert(self, address: str, id: UUID, headers: str, body: bytes) -> None:
        table = sql.Identifier(*self.place(address))
        try:
            self.connection.execute(sql.SQL(SAYS.insert).format(queue=table), [id, headers, body])
        except _MISSING as error:
            raise UnknownQueueError(address) from error

    def place(self, address: str) -> Place:
        return addresses.of_postgresql(address)

    def subscribers(self, topics: Sequence[str]) -> list[str]:
        found = self.connection.execute(self._named(SAYS.subscribers), [list(topics)])
        return [address for (address,) in found]

    def delay(self, headers: str, body: bytes, after: timedelta) -> None:
        self.connection.execute(self._named(SAYS.delay), [headers, body, after])

    def move_due(self) -> tuple[int, float | None]:
        moved = self.connection.execute(self._named(SAYS.move_due)).rowcount
        found = self.connection.execute(self._named(SAYS.next_due)).fetchone()
        return moved, None if found is None else float(found[0])

    def cut(self) -> None:
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(self.connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.connection.close()

    def _named(self, statement: LiteralString) -> sql.Composed:
        return sql.SQL(statement).format(**self._names)

    def _said(self, statement: bytes, expected: pq.ExecStatus) -> pq.abc.PGresult:
        result: pq.abc.PGresult = self._pg.exec_(statement)
        if self._pg.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError("the connection is lost")
        if result.status != expected:
            raise psycopg.errors.error_from_result(result)
        return result
