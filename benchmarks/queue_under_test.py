"""The queue table of the benchmarks, and what others do to it: all by plain SQL, none of it ours."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time

import psycopg

from sqlqueue_spark.postgresql_programs import binary

QUEUE = "q"
DESTINATION = "sent"
_TABLE = "id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, seq bigserial UNIQUE"
_HEADERS = (
    """'{"NServiceBus.MessageId":"' || gen_random_uuid() || '","NServiceBus.ConversationId":"' || gen_random_uuid() || """
    """'","NServiceBus.EnclosedMessageTypes":"Sales.Messages.OrderPlaced, Sales.Messages","NServiceBus.ContentType":"""
    """"application\\/json","NServiceBus.TimeSent":"2026-01-01 00:00:00:000000 Z"}'"""
)
_BODY = "convert_to(repeat(md5(n::text), 12), 'UTF8')"
_RECEIVE_ONE = f"""WITH message AS (
  DELETE FROM {QUEUE} WHERE id = (SELECT id FROM {QUEUE} ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
  RETURNING id, expires, headers, body, seq)
SELECT id, expires, headers, body FROM message;
"""


def fill(url: str, count: int, *, new_table: bool = True) -> None:
    """Put so many messages of about 0.7 KB into the queue, in a new table with its statistics or as it is."""
    with psycopg.connect(url, autocommit=True) as connection:
        if new_table:
            connection.execute(f"DROP TABLE IF EXISTS {QUEUE}")
            connection.execute(f"CREATE TABLE {QUEUE} ({_TABLE})")
        connection.execute(
            f"INSERT INTO {QUEUE} (id, headers, body)"
            f" SELECT gen_random_uuid(), {_HEADERS}, {_BODY} FROM generate_series(1, {count}) n"
        )
        if new_table:
            connection.execute(f"VACUUM ANALYZE {QUEUE}")
        connection.execute(
            "CHECKPOINT"
        )  # or what was written before is still being written while others are measured


def checkpoint_now(url: str) -> None:
    """Write what is to be written."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def came_and_went(url: str, count: int, *, vacuum: bool) -> None:
    """Let so many small rows come and go. Without vacuum their index entries stay, at the head of the index."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {QUEUE} SET (autovacuum_enabled = {'on' if vacuum else 'off'})")
        for _ in range(count // 500_000):
            connection.execute(
                f"INSERT INTO {QUEUE} (id, headers) SELECT gen_random_uuid(), '' FROM generate_series(1, 500000)"
            )
            connection.execute(f"DELETE FROM {QUEUE}")


def take_half(url: str, *, at_random: bool) -> None:
    """Delete every second row, or each with even chances."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DELETE FROM {QUEUE} WHERE {'random() < 0.5' if at_random else 'seq % 2 = 0'}")
        connection.execute(f"VACUUM ANALYZE {QUEUE}")


def create_destination(url: str) -> None:
    """The queue table that is sent to."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {DESTINATION}")
        connection.execute(f"CREATE TABLE {DESTINATION} ({_TABLE})")


def empty_destination(url: str, endpoint: str) -> None:
    """Nothing was sent, and the outbox remembers nothing."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'TRUNCATE {DESTINATION}, "{endpoint}_OutboxData"')
        connection.execute("CHECKPOINT")


def fill_outbox(url: str, endpoint: str, count: int) -> None:
    """Let an outbox remember so many ids."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO \"{endpoint}_OutboxData\" SELECT gen_random_uuid()::text, true, now(), '1', '[]'"
            f" FROM generate_series(1, {count})"
        )
        connection.execute(f'VACUUM ANALYZE "{endpoint}_OutboxData"')
        connection.execute("CHECKPOINT")


def raw_copy(url: str, count: int) -> float:
    """Messages a second of one binary COPY into the destination, of bytes made beforehand by another."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {DESTINATION}")
        with connection.cursor().copy(
            f"COPY (SELECT id, expires, headers, body FROM {QUEUE} LIMIT {count}) TO STDOUT (FORMAT binary)"
        ) as source:
            stream = b"".join(source)
        began = time.perf_counter()
        with connection.cursor().copy(
            f"COPY {DESTINATION} (id, expires, headers, body) FROM STDIN (FORMAT binary)"
        ) as target:
            for start in range(0, len(stream), 1 << 20):
                target.write(stream[start : start + (1 << 20)])
        return count / (time.perf_counter() - began)


def copy_of_rows(url: str, count: int) -> float:
    """Messages a second of one binary COPY into the destination, of rows in hand, as psycopg writes them."""
    with psycopg.connect(url, autocommit=True) as connection:
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


def one_row_senders(url: str, connections: int, *, seconds: int) -> float:
    """Messages a second of senders that insert one row a transaction, in C."""
    return _pgbench_rate(url, f"INSERT INTO {DESTINATION} (id, headers, body) SELECT gen_random_uuid(), {_HEADERS}, {_BODY} FROM (SELECT 1 AS n) AS one;\n", connections, seconds)  # fmt: skip


def scans(url: str) -> int:
    """How often the table or its indexes were ever scanned."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = %s",
            (QUEUE,),
        ).fetchone()
    assert row is not None
    return int(row[0])


def one_delete(url: str) -> float:
    """Messages a second of one client that deletes all rows in one statement and fetches them."""
    with psycopg.connect(url) as connection, connection.cursor(binary=True) as cursor:
        began = time.perf_counter()
        cursor.execute(f"DELETE FROM {QUEUE} RETURNING id, expires, headers, body, seq")
        count = len(cursor.fetchall())
        connection.commit()
        return count / (time.perf_counter() - began)


def one_row_receivers(url: str, connections: int, *, seconds: int) -> float:
    """Messages a second of receivers that take one row a transaction, in C."""
    return _pgbench_rate(url, _RECEIVE_ONE, connections, seconds)


def _pgbench_rate(url: str, statement: str, connections: int, seconds: int) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(statement)
        script.flush()
        command = [str(binary("pgbench")), "-n", "-M", "prepared", "-f", script.name]
        command += ["-c", str(connections), "-j", "2", "-T", str(seconds), url]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"tps = ([\d.]+)", said)
    assert found is not None, said
    return float(found[1])
