"""Several queues in one stream under Spark: the column ``Queue``,
and what handlers and the sink make of it.
"""

import json

from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.handling import Reply, each_message, recoverability
from sqlqueue_spark.messages.servicecontrol import FAILED_QUEUE
from sqlqueue_spark.options import ConnectionOptions
from tests.support.delayed import DelayedRows
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import failed_in, sent_to
from tests.support.several import Queues
from tests.support.streams import drain, running, to_each
from tests.support.waiting import eventually


def test_a_queue_that_appears_joins_a_running_stream(spark, engine, tmp_path):
    """Callback queues of an endpoint's instances."""
    queues = Queues(engine, "Sales.A", "Sales.B", "Billing")
    for count, table in enumerate(queues, start=1):
        table.insert(count)
    options = {"url": engine.url, "queuePattern": r"Sales\..", "pollInterval": "100ms"}
    peek = spark.read.format("sqlqueue").options(**options).load()
    assert peek.columns[-2:] == ["RowVersion", "Queue"]
    counted = {row.Queue: row["count"] for row in peek.groupBy("Queue").count().collect()}
    assert counted == {queues["Sales.A"].address: 1, queues["Sales.B"].address: 2}
    seen: list[tuple[str, int]] = []
    frame = spark.readStream.format("sqlqueue").options(**options).load()
    assert frame.schema == peek.schema
    rows = frame.select("Queue", "RowVersion")
    with running(to_each(rows, tmp_path, lambda batch, _: seen.extend(map(tuple, batch.collect())))):
        eventually(lambda: len(seen) == 3)
        appeared = engine.create_queue("Sales.C")
        appeared.insert(4)
        eventually(lambda: len(seen) == 7)
    addresses = [queues["Sales.A"].address, *[queues["Sales.B"].address] * 2, *[appeared.address] * 4]
    assert seen == list(zip(addresses, [1, 1, 2, 1, 2, 3, 4], strict=True))
    assert queues["Billing"].count() == 3


def test_a_handler_answers_and_fails_messages_for_the_queue_that_they_were_in(spark, postgresql, tmp_path):
    queues = Queues(postgresql, "orders", "returns")
    web, error = postgresql.create_queue("web"), postgresql.create_queue("error")
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Shop.Spark")
    waiting = {name: DelayedRows(postgresql, name).create() for name in ("orders", "returns")}
    for table in queues:
        for number in range(3):
            text = {"NServiceBus.MessageId": message_id(number), "NServiceBus.ReplyToAddress": "web"}
            table.insert_row(id=row_id(number), headers=json.dumps(text), body=body(number))

    def handle(message):
        if message.json()["order"] == 0:
            raise ValueError("never")
        if message.json()["order"] == 1:
            raise OSError("not now")
        return Reply("Shop.Done, Shop", {"order": 2})

    messages = (
        spark.readStream.format("sqlqueue")
        .options(url=postgresql.url, queues=queues.listed, pollInterval="100ms")
        .load()
    )
    outcomes = messages.transform(each_message(handle, immediateRetries=0, unrecoverable=(ValueError,)))
    outcomes = recoverability(outcomes, delayedRetries=1, delayedRetriesIncrease="1h")
    sink = SqlQueueSink(url=postgresql.url, endpoint="Shop.Spark", errorQueue="error")
    drain(to_each(outcomes, tmp_path, sink))
    replies = sorted(json.loads(row.headers)["NServiceBus.ReplyToAddress"] for row in web.rows())
    # One message id in two queues is two messages.
    assert (sent_to(web), replies) == ([2, 2], ['"public"."orders"', '"public"."returns"'])
    assert sorted(each[FAILED_QUEUE] for each in failed_in(error)) == replies
    assert {name: len(rows.rows()) for name, rows in waiting.items()} == {"orders": 1, "returns": 1}
    assert queues.count() == 0
