"""PostgreSQL: the tables of the benchmarks, and one-row receivers and senders in C (pgbench)."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from subprocess import PIPE
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from servers.base import DESTINATION, QUEUE, Jdbc, Server
from sqlqueue_spark.embedded.programs import binary

_TABLE = "id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, seq bigserial UNIQUE"
_HEADERS = (
    """'{"NServiceBus.MessageId":"' || gen_random_uuid() || '","NServiceBus.ConversationId":"' || """
    """gen_random_uuid() || '","NServiceBus.EnclosedMessageTypes":"Sales.Messages.OrderPlaced, """
    """Sales.Messages","NServiceBus.ContentType":"""
    """"application\\/json","NServiceBus.TimeSent":"2026-01-01 00:00:00:000000 Z"}'"""
)
_BODY = "convert_to(repeat(md5(n::text), 12), 'UTF8')"
_RECEIVE_ONE = """WITH message AS (
  DELETE FROM {queue} WHERE id = (SELECT id FROM {queue} ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
  RETURNING id, expires, headers, body, seq)
SELECT id, expires, headers, body FROM message;
"""


class PostgreSQL(Server):
    """A PostgreSQL server."""

    jdbc_driver: ClassVar[str] = "org.postgresql:postgresql:42.7.7"
    row_version: ClassVar[str] = "seq"
    pasts: ClassVar[Mapping[str, bool | None]] = {
        "new": None,
        "10,000,000 came and went, vacuumed by itself": True,
        "10,000,000 came and went, never vacuumed": False,
    }

    def jdbc(self) -> Jdbc:
        parts = urlsplit(self.url)
        login = {"user": unquote(parts.username or "postgres"), "password": unquote(parts.password or "")}
        return Jdbc(
            f"jdbc:postgresql://{self.url.partition('@')[2]}?stringtype=unspecified",
            {**login, "driver": "org.postgresql.Driver"},
        )

    def columns_to_append(self) -> Mapping[str, str]:
        return {"id": "uuid()", "headers": "Headers", "body": "Body"}

    def bulk_inserts(self) -> Mapping[str, Callable[[int], float]]:
        return {
            "(b) a raw binary COPY of bytes made beforehand": self.raw_copy,
            "(b) a binary COPY of rows, by psycopg": self.copy_of_rows,
        }

    def fill(self, count: int, table: str = QUEUE, *, new_table: bool = True) -> None:
        queue = Identifier(table)
        with psycopg.connect(self.url, autocommit=True) as connection:
            if new_table:
                connection.execute(SQL("DROP TABLE IF EXISTS {}").format(queue))
                connection.execute(SQL("CREATE TABLE {} (" + _TABLE + ")").format(queue))
            connection.execute(
                SQL(
                    "INSERT INTO {} (id, headers, body) SELECT gen_random_uuid(), {}, {} FROM "
                    "generate_series(1, {}) n"
                ).format(queue, SQL(_HEADERS), SQL(_BODY), count)
            )
            if new_table:
                connection.execute(SQL("VACUUM ANALYZE {}").format(queue))
        self.come_to_rest()

    def come_to_rest(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    def come_and_go(self, count: int, table: str, *, forgotten: bool) -> None:
        # Without vacuum their index entries stay, at the head of the index.
        queue, wish = Identifier(table), SQL("on" if forgotten else "off")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(SQL("ALTER TABLE {} SET (autovacuum_enabled = {})").format(queue, wish))
            for _ in range(count // 500_000):
                connection.execute(
                    SQL(
                        "INSERT INTO {} (id, headers) SELECT gen_random_uuid(), "
                        "'' FROM generate_series(1, 500000)"
                    ).format(queue)
                )
                connection.execute(SQL("DELETE FROM {}").format(queue))

    def forget(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            while connection.execute(
                "SELECT FROM pg_stat_user_tables JOIN pg_class ON pg_class.oid = relid"
                " WHERE n_dead_tup > 100000 AND NOT coalesce('autovacuum_enabled=off' = ANY "
                "(reloptions), false) UNION ALL SELECT FROM pg_stat_progress_vacuum"
            ).fetchone():
                time.sleep(1)

    def take_half(self, *, at_random: bool) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                f"DELETE FROM {QUEUE} WHERE {'random() < 0.5' if at_random else 'seq % 2 = 0'}"
            )
            connection.execute(f"VACUUM ANALYZE {QUEUE}")

    def create_destination(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {DESTINATION}")
            connection.execute(f"CREATE TABLE {DESTINATION} ({_TABLE})")

    def empty_destination(self, endpoint: str, *others: str) -> None:
        more = "".join(f', "{name}"' for name in others)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'TRUNCATE {DESTINATION}, "{endpoint}_OutboxData"{more}')
        self.come_to_rest()

    def fill_outbox(self, endpoint: str, count: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                f'INSERT INTO "{endpoint}_OutboxData" SELECT gen_random_uuid()::text, true, now(), '
                f"'1', '[]' FROM generate_series(1, {count})"
            )
            connection.execute(f'VACUUM ANALYZE "{endpoint}_OutboxData"')
        self.come_to_rest()

    def raw_copy(self, count: int) -> float:
        """Messages a second of one binary COPY into the destination, of bytes made beforehand by another."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {DESTINATION}")
            with connection.cursor().copy(
                f"COPY (SELECT id, expires, headers, body FROM {QUEUE} LIMIT {count}) TO "
                "STDOUT (FORMAT binary)"
            ) as source:
                stream = b"".join(source)
            began = time.perf_counter()
            with connection.cursor().copy(
                f"COPY {DESTINATION} (id, expires, headers, body) FROM STDIN (FORMAT binary)"
            ) as target:
                for start in range(0, len(stream), 1 << 20):
                    target.write(stream[start : start + (1 << 20)])
            return count / (time.perf_counter() - began)

    def copy_of_rows(self, count: int) -> float:
        """Messages a second of one binary COPY into the destination, of rows in hand,
        as psycopg writes them.
        """
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {DESTINATION}")
            rows = (
                connection.cursor(binary=True)
                .execute(f"SELECT id, headers, body FROM {QUEUE} LIMIT {count}")
                .fetchall()
            )
            began = time.perf_counter()
            with connection.cursor().copy(
                f"COPY {DESTINATION} (id, headers, body) FROM STDIN (FORMAT binary)"
            ) as target:
                target.set_types(["uuid", "text", "bytea"])
                for row in rows:
                    target.write_row(row)
            return count / (time.perf_counter() - began)

    def one_row_senders(self, connections: int, *, seconds: int) -> float:
        return self._pgbench_rate(
            f"INSERT INTO {DESTINATION} (id, headers, body) SELECT gen_random_uuid(), {_HEADERS}, {_BODY} "
            "FROM (SELECT 1 AS n) AS one;\n",
            connections,
            seconds,
        )

    @contextmanager
    def sending(self) -> Iterator[Callable[[], object]]:
        statement = SQL(
            "INSERT INTO {} (id, headers, body) SELECT gen_random_uuid(), {}, {} FROM (SELECT 1 AS n) AS one"
        )
        insert = statement.format(Identifier(QUEUE), SQL(_HEADERS), SQL(_BODY))
        with psycopg.connect(self.url, autocommit=True) as connection:
            yield lambda: connection.execute(insert)

    def scans(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM "
                "pg_stat_user_tables WHERE relname = %s",
                (QUEUE,),
            ).fetchone()
        assert row is not None
        return int(row[0])

    def delete_up_to(self, row_version: int) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(f"DELETE FROM {QUEUE} WHERE seq <= %s", [row_version])

    def one_delete(self) -> float:
        with psycopg.connect(self.url) as connection, connection.cursor(binary=True) as cursor:
            began = time.perf_counter()
            cursor.execute(f"DELETE FROM {QUEUE} RETURNING id, expires, headers, body, seq")
            count = len(cursor.fetchall())
            connection.commit()
            return count / (time.perf_counter() - began)

    def one_row_receivers(self, connections: int, *, seconds: int) -> float:
        return self._pgbench_rate(_RECEIVE_ONE.format(queue=QUEUE), connections, seconds)

    @contextmanager
    def old_transaction(self) -> Iterator[None]:
        with psycopg.connect(self.url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT 1")
            yield

    @contextmanager
    def receivers_beside(self, table: str, connections: int) -> Iterator[list[float]]:
        with self._pgbench(_RECEIVE_ONE.format(queue=table), connections, 3600, "-P", "1") as running:
            paces: list[float] = []

            def listen() -> None:
                told = (re.match(r"progress: [\d.]+ s, ([\d.]+) tps", line) for line in running.stderr or ())
                paces.extend(float(found[1]) for found in told if found)

            listener = threading.Thread(target=listen, daemon=True)
            listener.start()
            yield paces
            running.terminate()
            listener.join()

    def _pgbench_rate(self, statement: str, connections: int, seconds: int) -> float:
        with self._pgbench(statement, connections, seconds) as running:
            said, _ = running.communicate()
        found = re.search(r"tps = ([\d.]+)", said)
        assert found is not None, said
        return float(found[1])

    @contextmanager
    def _pgbench(
        self, statement: str, connections: int, seconds: int, *more: str
    ) -> Iterator[subprocess.Popen[str]]:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(statement)
            script.flush()
            command = [str(binary("pgbench")), "-n", "-M", "prepared", "-f", script.name, *more]
            parts: dict[str, Any] = conninfo_to_dict(self.url)
            password = str(parts.pop("password", ""))  # not on the command line, which everybody may read
            command += ["-c", str(connections), "-j", "2", "-T", str(seconds), make_conninfo(**parts)]
            login = {**os.environ, "PGPASSWORD": password}
            with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=login) as running:
                yield running
