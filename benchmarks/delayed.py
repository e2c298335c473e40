"""What delayed delivery costs, as ratios within one run: `python benchmarks/delayed.py`;
`make bench-send` runs it too.

Storing messages against sending the same ones at once, by our sink with an optimistic outbox; moving those
that are due against an INSERT … SELECT of them in the server; how late messages come that are due at 1,000 a
second; and what a look and a move cost while 1,000,000 others wait. It speaks to PostgreSQL alone. Rounds are
interleaved and medians compared.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
from machine import add_url, database, run_by, session
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from send import ENDPOINT, ERROR, medians, messages_of, sink, timed
from servers import DESTINATION, Server

from sqlqueue_spark.administration import delayed_tables, outbox_tables, queue_tables
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.waiting.delayed_mover import DelayedMover

WAITING = f"{ENDPOINT}.Delayed"
_FILL = f"""
INSERT INTO "{WAITING}" (headers, body, due)
SELECT '{{"NServiceBus.MessageId":"' || gen_random_uuid() || '","x":"' || repeat('h', 300)
       || '","NServiceBus.SqlServer.ForwardDestination":"\\"public\\".\\"{DESTINATION}\\""}}',
       repeat('b', 200)::bytea, now() AT TIME ZONE 'UTC' + %(first)s::interval + %(step)s::interval * n
FROM generate_series(0, %(count)s - 1) AS n
"""
#: As a look in the destination tells when messages came: each statement is one event.
_ARRIVALS = f"""
CREATE TABLE arrivals (at timestamptz, due text);
CREATE FUNCTION arrived() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO arrivals SELECT clock_timestamp(), (SELECT min(headers::json ->> 'due') FROM new_rows);
    RETURN NULL;
END $$;
CREATE TRIGGER arrived AFTER INSERT ON {DESTINATION} REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION arrived()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    add_url(parser)
    chosen = parser.parse_args()
    print(run_by())
    with database(chosen.url) as server:
        own = ConnectionOptions.parse({"url": server.url})
        server.create_destination()
        outbox_tables.create(own, ENDPOINT)
        delayed_tables.create(own, ENDPOINT)
        queue_tables.create(own, [ERROR])
        storing_and_moving(server, chosen.messages, chosen.rounds)
        lateness(server)


def storing_and_moving(server: Server, count: int, rounds: int) -> None:
    """Ratios of rates."""
    spark = session(server)
    messages = messages_of(spark, server, count)
    later = messages.withColumn("DelayDeliveryFor", F.expr("INTERVAL '1' HOUR"))

    def sent(frame) -> float:  # type: ignore[no-untyped-def] # a DataFrame
        server.empty_destination(ENDPOINT)
        run(server, f'TRUNCATE "{WAITING}"')
        return timed(count, lambda: sink(server, "optimistic")(frame, 0))

    def filled(action: Callable[[], object]) -> float:
        server.empty_destination(ENDPOINT)
        run(server, f'TRUNCATE "{WAITING}"')
        fill(server, count, first="-1 hour", step="1 millisecond")
        run(server, f'VACUUM ANALYZE "{WAITING}"')
        return timed(count, action)

    def insert_select() -> None:
        run(
            server,
            f"INSERT INTO {DESTINATION} (id, headers, body) SELECT id, headers, "
            f'body FROM "{WAITING}" ORDER BY due',
        )

    measures: dict[str, Callable[[], float]] = {
        "sending at once": lambda: sent(messages),
        "storing until they are due": lambda: sent(later),
        "INSERT … SELECT in the server": lambda: filled(insert_select),
        "moving what is due": lambda: filled(lambda: mover(server).move_due()),
    }
    middle = medians(measures, rounds)
    spark.stop()
    print(f"\n{count:,} messages, median of {rounds} rounds\n\n| | messages/s | ratio |\n|---|---|---|")
    pairs = [*middle.items()]
    for number, (name, rate) in enumerate(pairs):
        print(f"| {name} | {rate:,.0f} | {rate / pairs[number - number % 2][1]:.2f} |")


def lateness(server: Server, seconds: int = 10, rate: int = 1_000, waiting: int = 1_000_000) -> None:
    """How late messages come, and what a look costs, beside a million that wait."""
    server.empty_destination(ENDPOINT)
    run(server, f'TRUNCATE "{WAITING}"')
    fill(server, waiting, first="1 day", step="1 millisecond")
    run(server, f'VACUUM ANALYZE "{WAITING}"')
    run(server, _ARRIVALS)
    first = datetime.now(UTC) + timedelta(seconds=3)
    dues = [first + timedelta(seconds=number / rate) for number in range(seconds * rate)]
    way = '\\"public\\".\\"' + DESTINATION + '\\"'
    into = f'COPY "{WAITING}" (headers, body, due) FROM STDIN'
    with (
        psycopg.connect(server.url) as connection,
        connection.cursor() as cursor,
        cursor.copy(into.encode()) as copy,
    ):
        for due in dues:
            text = f'{{"due":"{due.isoformat()}","NServiceBus.SqlServer.ForwardDestination":"{way}"}}'
            copy.write_row((text, b"body", due.replace(tzinfo=None).isoformat()))
    stopping = threading.Event()
    running = threading.Thread(target=mover(server).run, args=[stopping.wait])
    running.start()
    time.sleep(3 + seconds + 2)
    stopping.set()
    running.join()
    with psycopg.connect(server.url) as connection:
        late = [
            (at - datetime.fromisoformat(due)).total_seconds()
            for at, due in connection.execute("SELECT at, due FROM arrivals WHERE due IS NOT NULL")
        ]
        (came,) = connection.execute(f"SELECT count(*) FROM {DESTINATION}").fetchone() or (0,)
        looks = []
        for _ in range(50):
            began = time.perf_counter()
            connection.execute(f'SELECT min(due) FROM "{WAITING}"').fetchall()
            looks.append(time.perf_counter() - began)
    print(
        f"\n{rate:,} a second were due for {seconds} s beside {waiting:,} that wait: {came:,} came; the "
        f"first of a portion was late by {statistics.median(late):.3f} s in the median and {max(late):.3f} s "
        f"at most; a look takes {1e3 * statistics.median(looks):.2f} ms."
    )


def mover(server: Server) -> DelayedMover:
    own = ConnectionOptions.parse({"url": server.url})
    owner = Table(table=ENDPOINT, schema="public")
    return DelayedMover(options=own, owner=owner, error_queue=ERROR, chosen=[owner])


def fill(server: Server, count: int, *, first: str, step: str) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute(_FILL, {"count": count, "first": first, "step": step})


def run(server: Server, statement: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement.encode())


if __name__ == "__main__":
    main()
