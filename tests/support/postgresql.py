"""PostgreSQL behind the back of the code under test, with psycopg."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from urllib.parse import quote, urlencode
from uuid import UUID

import psycopg
from psycopg import sql

from sqlqueue_spark.embedded import EmbeddedServer
from tests.support.engines import Engine, QueueTable, Session, address_of
from tests.support.kept_connections import connection_to, forget
from tests.support.messages import HEADERS, Row
from tests.support.waiting import eventually

_CREATE = """
CREATE TABLE {table} (
    id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, seq bigserial UNIQUE)
"""
#: To copy the files of the template takes a third of the time of its default, which writes each page to the
#: log. Versions before 15 always copy them, and do not know the word.
_CREATE_DATABASE = "CREATE DATABASE {} STRATEGY file_copy"
_FILL = """
INSERT INTO {table} (id, expires, headers, body)
SELECT ('00000000-0000-4000-8000-' || hex)::uuid,
       %(expires)s,
       replace(%(headers)s, '{{n}}', hex),
       convert_to(start || repeat('x', %(size)s - length(start) - 2) || '"}}', 'UTF8')
FROM (SELECT number, lpad(to_hex(number), 12, '0') AS hex, '{{"order":' || number || ',"note":"' AS start
      FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number) AS numbers
ORDER BY number
"""
_TAKE_NEXT = """
DELETE FROM {table} WHERE seq = (
    SELECT seq FROM {table}
    WHERE expires IS NULL OR expires > (now() AT TIME ZONE 'UTC')
    ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, headers, body, seq, expires
"""
_TAKE_THIS = "DELETE FROM {table} WHERE seq = %s RETURNING id, headers, body, seq, expires"


@dataclass(frozen=True)
class PostgresSession(Session):
    connection: psycopg.Connection
    table: sql.Identifier

    def insert(self, count: int, *, start: int = 0, size: int = 64) -> range:
        return _fill(self.connection, self.table, count, start, size, None)

    def take(self, row_version: int | None = None) -> Row | None:
        if row_version is None:
            cursor = self.connection.execute(sql.SQL(_TAKE_NEXT).format(table=self.table))
        else:
            cursor = self.connection.execute(sql.SQL(_TAKE_THIS).format(table=self.table), [row_version])
        found = cursor.fetchone()
        return _row(found) if found else None

    def lock(self, *row_versions: int) -> None:
        statement = sql.SQL("SELECT seq FROM {table} WHERE seq = ANY(%s) FOR UPDATE").format(table=self.table)
        found = self.connection.execute(statement, [list(row_versions)]).fetchall()
        assert len(found) == len(row_versions)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


class PostgresQueue(QueueTable):
    def __init__(self, url: str, name: str, schema: str) -> None:
        self.name = name
        self.schema = schema
        self.address = address_of(name, schema)
        self.table = sql.Identifier(schema, name)
        self._url = url

    def insert(self, count: int, *, start: int = 0, size: int = 64, expires: datetime | None = None) -> range:
        with connection_to(self._url) as connection:
            return _fill(connection, self.table, count, start, size, expires)

    def insert_row(
        self, *, id: UUID, headers: str | None, body: bytes | None, expires: datetime | None = None
    ) -> int:
        statement = "INSERT INTO {table} (id, expires, headers, body) VALUES (%s, %s, %s, %s) RETURNING seq"
        with connection_to(self._url) as connection:
            values = [id, expires, headers, body]
            found = connection.execute(sql.SQL(statement).format(table=self.table), values).fetchone()
            assert found is not None
            return int(found[0])

    def rows(self) -> list[Row]:
        statement = sql.SQL("SELECT id, headers, body, seq, expires FROM {table} ORDER BY seq")
        with connection_to(self._url) as connection:
            return [_row(found) for found in connection.execute(statement.format(table=self.table))]

    def count(self) -> int:
        with connection_to(self._url) as connection:
            statement = sql.SQL("SELECT count(*) FROM {table}").format(table=self.table)
            found = connection.execute(statement).fetchone()
            assert found is not None
            return int(found[0])

    def execute(self, statement: str) -> None:
        with connection_to(self._url) as connection:
            connection.execute(sql.SQL(statement).format(table=self.table))

    @contextmanager
    def session(self) -> Iterator[PostgresSession]:
        connection = psycopg.connect(self._url, application_name="another program", client_encoding="utf8")
        try:
            yield PostgresSession(connection, self.table)
        finally:
            connection.close()

    @contextmanager
    def locked(self, *row_versions: int) -> Iterator[None]:
        with self.session() as session:
            session.lock(*row_versions)
            yield


class PostgresEngine(Engine):
    name: ClassVar[str] = "postgresql"
    default_schema: ClassVar[str] = "public"

    def __init__(self, url: str) -> None:
        self.url = url

    def create_queue(self, name: str = "orders", *, schema: str | None = None) -> PostgresQueue:
        queue = self.queue(name, schema=schema)
        with connection_to(self.url) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(queue.schema)))
            connection.execute(sql.SQL(_CREATE).format(table=queue.table))
        return queue

    def queue(self, name: str = "orders", *, schema: str | None = None) -> PostgresQueue:
        return PostgresQueue(self.url, name, schema or self.default_schema)

    def execute(self, statement: str) -> None:
        with connection_to(self.url) as connection:
            connection.execute(statement)

    def fetch(self, statement: str) -> Sequence[tuple[object, ...]]:
        with connection_to(self.url) as connection:
            return connection.execute(statement).fetchall()

    def cut_connections(self) -> int:
        cut = self.fetch(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND "
            "backend_type = 'client backend'"
        )
        left = f"SELECT pid FROM pg_stat_activity WHERE pid = ANY (ARRAY{[pid for pid, _ in cut]}::int[])"
        eventually(lambda: not self.fetch(left))
        return len(cut)


@contextmanager
def fresh_database(server_url: str, name: str, *, encoding: str | None = None) -> Iterator[str]:
    """The url of a new database of this name. At the end of the block it is dropped,
    with every session in it.

    :param encoding: in which it keeps texts; None is that of the server.
    """
    with connection_to(server_url) as connection:
        recent = connection.info.server_version >= 150_000
        create = _CREATE_DATABASE if recent else "CREATE DATABASE {}"
        if encoding is not None:
            create += f" ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            create += " LOCALE_PROVIDER libc" if recent else ""
        connection.execute(sql.SQL(create).format(sql.Identifier(name)))
    url = _url_of({**psycopg.conninfo.conninfo_to_dict(server_url), "dbname": name})
    if not recent:  # as since version 15
        with connection_to(url) as connection:
            connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    try:
        yield url
    finally:
        forget(url)
        with connection_to(server_url) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


def restart(server: EmbeddedServer, *, immediate: bool = True) -> None:
    """Stop a server and start it on the same port; open sessions are cut."""
    server.stop(immediate=immediate)
    server.start()


def _url_of(parts: Mapping[str, object]) -> str:
    """A URL, which the package and the tests understand; other words of it follow the question mark."""
    given = {name: str(value) for name, value in parts.items() if value is not None}
    user, password = given.pop("user", ""), given.pop("password", "")
    login = f"{quote(user, safe='')}{':' + quote(password, safe='') if password else ''}@" if user else ""
    where = f"{given.pop('host', 'localhost')}:{given.pop('port', '5432')}/{quote(given.pop('dbname'))}"
    return f"postgresql://{login}{where}{'?' + urlencode(given) if given else ''}"


def _fill(
    connection: psycopg.Connection,
    table: sql.Identifier,
    count: int,
    start: int,
    size: int,
    expires: datetime | None,
) -> range:
    values = {"expires": expires, "headers": HEADERS, "size": size, "first": start, "last": start + count - 1}
    connection.execute(sql.SQL(_FILL).format(table=table), values)
    return range(start, start + count)


def _row(found: tuple[UUID, str, bytes | None, int, datetime | None]) -> Row:
    identifier, headers, body, seq, expires = found
    return Row(id=identifier, headers=headers, body=body, row_version=seq, expires=expires)
