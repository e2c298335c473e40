"""Checkpoints, stages and outboxes that an earlier commit has written are understood: a stream goes on as if
nothing had changed.

The texts are those of version 0.2.0 before its modules moved, but for the names of table and database.
"""

import hashlib
import json

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ATOMIC, NO_TRANSACTION, RECEIVE_ONLY, ConnectionOptions
from sqlqueue_spark.tables import queue_table, queues
from tests.support.driver import streaming
from tests.support.forwarding import NAME, STAGE, forwarding, staged
from tests.support.messages import message_id, message_ids, row_ids
from tests.support.sending import ids_in
from tests.support.stages import opened

#: The RowVersions 1 to 4 and 5 to 8.
ROWS = ("eJxjYgMAAAwACQ==", "eJzjYgMAABwAEQ==")


def offsets(engine, queue, mode):
    """The end offsets of two batches of four rows each, as texts."""
    with connect(Target(url=engine.url)) as connection:
        found = queue_table.find(connection, Table(table=queue.name, schema=engine.default_schema))
        assert found is not None
        identity = queues.Queue(connection, found).identity()
    return [
        json.dumps(
            {
                "version": 1,
                **({} if mode == RECEIVE_ONLY else {"mode": mode}),
                "serial": number + 1,
                **({"stage": f"{STAGE}@[{engine.default_schema}]"} if mode == ATOMIC else {}),
                "queue": found.name,
                "table": identity,
                "rows": 4,
                "live": rows,
                "expired": "",
                "witnesses": {}
                if mode == NO_TRANSACTION
                else {str(n + 1): str(row_ids([n])[0]) for n in range(4 * number, 4 * number + 4)},
            }
        )
        for number, rows in enumerate(ROWS)
    ]


def without_the_first(queue, count):
    with queue.session() as other:
        for _ in range(count):
            other.take()
        other.commit()


def test_a_batch_that_was_done_is_deleted(engine, queue):
    """The stream goes on."""
    queue.insert(10)
    with streaming(engine, queue) as stream:
        stream.offsets, stream.done = offsets(engine, queue, RECEIVE_ONLY)[:1], 1
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(4, 10)), 0)
        assert json.loads(stream.offsets[1])["serial"] == 2


def test_a_logged_batch_runs_again_with_its_rows(engine, queue):
    queue.insert(10)
    without_the_first(queue, 4)
    with streaming(engine, queue) as stream:
        stream.offsets, stream.done = offsets(engine, queue, RECEIVE_ONLY), 1
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[5, 6, 7, 8], [9, 10]], 0)


def test_a_logged_batch_of_mode_none_is_not_taken_again(engine, queue):
    queue.insert(10)
    without_the_first(queue, 4)
    with streaming(engine, queue, transactionMode=NO_TRANSACTION) as stream:
        stream.offsets, stream.done = offsets(engine, queue, NO_TRANSACTION), 1
        stream.drain()
        assert (stream.batches(), queue.count()) == ([[], [5, 6, 7, 8, 9, 10]], 0)


@pytest.mark.needs("reads_json_as_documented")
def test_what_a_batch_has_staged_goes_out_with_its_rows(postgresql):
    """The stage as PostgreSQL has it: a row of arrays a chunk, and the mark."""
    queue, billing = postgresql.create_queue("orders"), postgresql.create_queue("billing")
    queue.insert(10)
    (first, _) = offsets(postgresql, queue, ATOMIC)
    claim = hashlib.sha256(json.dumps(json.loads(first), sort_keys=True).encode()).hexdigest()
    to = f"{billing.name}@[public]@[{json.loads(first)['queue'].rpartition('[')[2]}"
    mark = {
        "claim": claim,
        "run": "42af1896-e72b-45ed-adcd-2dffc58376e0",
        "mode": "",
        "batch": {"query": "stream 1", "number": 0, "attempt": "8814098d-6856-481b-93d6-502fb0724f51"},
        "sealed": True,
        "tasks": {"6dc06539-cb4a-4bcf-baf2-09fd8735a0ef": 2},
        "destinations": [to],
        "after": -9223372036854775808,
    }
    headers = ", ".join(f"""'{{"NServiceBus.MessageId":"{message_id(n)}"}}'""" for n in (0, 1))
    with opened(postgresql):
        postgresql.execute(
            f"""INSERT INTO "{STAGE}" (task, destination, mark) VALUES ('', '', '{json.dumps(mark)}')"""
        )
        postgresql.execute(
            f"""INSERT INTO "{STAGE}" (task, destination, ids, expires, headers, bodies)
            VALUES ('6dc06539-cb4a-4bcf-baf2-09fd8735a0ef', '{to}',
                    ARRAY['01a2056d-0b92-7000-8491-f8313e177499',
                      '01a2056d-0b92-7001-89ef-2c691e14d609']::uuid[],
                    ARRAY[NULL, NULL]::timestamp[], ARRAY[{headers}], ARRAY['x', 'y']::bytea[])"""
        )
    with forwarding(postgresql, queue) as stream:
        stream.offsets, stream.done = [first], 1
        stream.drain()
    assert ids_in(billing) == message_ids([0, 1, *range(4, 10)])
    assert (queue.count(), staged(postgresql)) == (0, 0)


@pytest.mark.provokes("lock timeout")
def test_a_message_that_was_sent_is_not_sent_again(engine, queue):
    """Its key is that of version 0.2.0: the id, and a digest of ``billing@[schema]``."""
    billing = engine.create_queue("billing")
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    digest = {"postgresql": "lcufhjcnae", "sqlserver": "687lsoodil"}[engine.name]
    key = f"{message_id(0)}>{digest}"
    table = {"postgresql": f'public."{NAME}_OutboxData"', "sqlserver": f"dbo.[{NAME}_OutboxData]"}[
        engine.name
    ]
    columns = {
        "postgresql": '("MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations")',
        "sqlserver": "(MessageId, Dispatched, DispatchedAt, PersistenceVersion, Operations)",
    }[engine.name]
    now, yes = {"postgresql": ("now()", "true"), "sqlserver": ("SYSUTCDATETIME()", "1")}[engine.name]
    engine.execute(f"INSERT INTO {table} {columns} VALUES ('{key}', {yes}, {now}, 'sqlqueue 0.2.0', '[]')")
    queue.insert(3)
    with forwarding(engine, queue, transactionMode=RECEIVE_ONLY) as stream:
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids([1, 2]), 0)
