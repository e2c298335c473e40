"""What store-and-forward costs, as ratios within one run: `python benchmarks/between_databases.py`.

The job from one database to another against forwarding within one, both with an outbox; and its pace towards
a database that answers, while 1,000,000 messages wait for one that is down; and memory over 5,000,000
messages. It speaks to PostgreSQL alone. Rounds are interleaved and medians compared.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import psutil
import psycopg
from drain import heap, rss, workers
from machine import add_url, database, drained, rate_of, run_by, session, stream
from pyspark.sql import DataFrame, SparkSession
from send import ERROR, medians
from servers import DESTINATION, QUEUE, Server

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.administration import delayed_tables, outbox_tables, queue_tables
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline import as_outgoing
from sqlqueue_spark.pipeline.declared.store_and_forward import StoreAndForward, StoreAndForwardOptions

OTHER, FORWARD, WITHIN = "bench_other", "BenchForward", "BenchWithin"
DOWN = "Down"
#: No server listens there.
_NOWHERE = "postgresql://nobody@127.0.0.1:9/nowhere"
_NAMED = (
    f"UPDATE {QUEUE} SET headers = left(headers, -1) || "
    f"""',"$.store-and-forward.destination":"{DESTINATION}"}}'"""
)
_WAITING = f"""
INSERT INTO "{QUEUE}.Delayed" (headers, body, due)
SELECT '{{"NServiceBus.MessageId":"' || gen_random_uuid() || '","x":"' || repeat('h', 300)
       || '","$.store-and-forward.destination":"{DOWN}","sqlqueue.GiveUpAt":"2100-01-01 00:00:00:000000 Z"'
       || ',"sqlqueue.WaitsFor":"endpoint.down.url"}}',
       repeat('b', 200)::bytea, now() + '1 day'::interval + n * '1 microsecond'::interval
FROM generate_series(1, %(count)s) AS n
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["compare", "beside", "memory"], help="one part")
    add_url(parser)
    chosen = parser.parse_args()
    print(run_by())
    with database(chosen.url) as server:
        spark = session(server)
        other = prepared(server)
        if chosen.only in (None, "compare"):
            compare(spark, server, other, chosen.messages, chosen.rounds)
        if chosen.only in (None, "beside"):
            beside(spark, server, other, chosen.messages, chosen.rounds, waiting=chosen.waiting)
        if chosen.only in (None, "memory"):
            memory(spark, server, other, 5_000_000)
        spark.stop()


def prepared(server: Server) -> str:
    """Create the tables of both databases; the url of the other one."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {OTHER}")
        connection.execute(f"CREATE DATABASE {OTHER}")
    other = server.url.rpartition("/")[0] + f"/{OTHER}"
    own = ConnectionOptions.parse({"url": server.url})
    server.create_destination()
    server.fill(1)
    for endpoint in (FORWARD, WITHIN):
        outbox_tables.create(own, endpoint)
    delayed_tables.create(own, QUEUE)
    queue_tables.create(own, [ERROR])
    there = ConnectionOptions.parse({"url": other})
    outbox_tables.create(there, FORWARD)
    queue_tables.create(there, [DESTINATION])
    return other


def filled(server: Server, other: str, count: int, *, named: bool) -> None:
    """Messages in the queue, the same ones for each pipeline but for a header; nothing where they go."""
    server.fill(count)
    server.empty_destination(WITHIN)
    with psycopg.connect(server.url, autocommit=True) as connection:
        if named:
            connection.execute(_NAMED)
            connection.execute(f'TRUNCATE "{FORWARD}_OutboxData"')
        connection.execute(f"VACUUM ANALYZE {QUEUE}")
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute(f'TRUNCATE {DESTINATION}, "{FORWARD}_OutboxData"')


def forwarding(spark: SparkSession, server: Server, other: str, count: int) -> float:
    filled(server, other, count, named=False)
    send = SqlQueueSink(url=server.url, queue=DESTINATION, endpoint=WITHIN, errorQueue=ERROR)
    return rate_of(drained(as_outgoing(stream(spark, server), QUEUE).writeStream.foreachBatch(send)))


def storing(
    spark: SparkSession,
    server: Server,
    other: str,
    count: int,
    *,
    more: Mapping[str, str] = MappingProxyType({}),
    after: Callable[[], object] = lambda: None,
) -> float:
    """:param more: further options of the sink; ``after`` is called after each batch."""
    filled(server, other, count, named=True)
    options = StoreAndForwardOptions.parse({"checkpoint": "unused"})
    source = {"url": server.url, "queue": QUEUE}
    sink = {"url": other, "endpoint": FORWARD, "errorQueue": ERROR, **more}
    job = StoreAndForward(source, sink, options)
    job.remote.look()
    rows = job.with_outcomes(stream(spark, server), QUEUE)
    carry = job.sink()

    def send(batch: DataFrame, number: int) -> None:
        carry(batch, number)
        after()

    return rate_of(drained(rows.writeStream.foreachBatch(send)))


def compare(spark: SparkSession, server: Server, other: str, count: int, rounds: int) -> None:
    measures: dict[str, Callable[[], float]] = {
        "forwarding within one database": lambda: forwarding(spark, server, other, count),
        "store-and-forward to another one": lambda: storing(spark, server, other, count),
    }
    say(f"{count:,} messages, median of {rounds} rounds", medians(measures, rounds))


def beside(spark: SparkSession, server: Server, other: str, count: int, rounds: int, *, waiting: int) -> None:
    """The pace towards a database that answers, while messages wait for one that is down,
    and while none does.
    """
    down = {f"endpoint.{DOWN}.url": _NOWHERE}

    def waited(rows: int) -> float:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f'TRUNCATE "{QUEUE}.Delayed"')
            connection.execute(_WAITING, {"count": rows})
            connection.execute(f'VACUUM ANALYZE "{QUEUE}.Delayed"')
        return storing(spark, server, other, count, more=down)

    measures: dict[str, Callable[[], float]] = {
        "nothing waits": lambda: waited(0),
        f"{waiting:,} messages wait for a database that is down": lambda: waited(waiting),
    }
    say(
        f"{count:,} messages to a database that answers, median of {rounds} rounds", medians(measures, rounds)
    )


def memory(spark: SparkSession, server: Server, other: str, count: int) -> None:
    """Memory of each process over a long run: flat, if nothing is kept of a message that is done."""
    print(
        f"\n| of {count:,} messages | Spark's heap after a collection, MB | driver, MB | largest worker, MB |"
    )
    print("|---|---|---|---|", flush=True)
    batches = itertools.count(1)
    there = psycopg.connect(other, autocommit=True)

    def look() -> None:
        if next(batches) % 8 == 1:
            done = there.execute(f"SELECT count(*) FROM {DESTINATION}").fetchone()
            assert done is not None
            driver, largest = rss(psutil.Process()), max(map(rss, workers()), default=0)
            print(f"| {done[0]:,} | {heap(spark)} | {driver} | {largest} |", flush=True)

    with there:
        storing(spark, server, other, count, after=look)


def say(title: str, middle: dict[str, float]) -> None:
    whole = next(iter(middle.values()))
    print(f"\n| {title} | messages/s | ratio |\n|---|---|---|")
    for name, rate in middle.items():
        print(f"| {name} | {rate:,.0f} | {rate / whole:.2f} |")


if __name__ == "__main__":
    main()
