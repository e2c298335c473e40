"""The programs of the README and of docs/ run as they are printed, one after another, as a reader would type them."""

import json
import re
from typing import Any

import psycopg
import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.delayed import DelayedRows
from tests.support.messages import body, headers, message_ids, row_id
from tests.support.pages import PROGRAMS
from tests.support.streams import end
from tests.support.subscriptions import SubscriptionRows


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_programs_run_as_printed(spark, postgresql, tmp_path, monkeypatch):
    monkeypatch.setenv("SQLQUEUE_URL", postgresql.url)
    names: dict[str, Any] = {}

    def run(program: str) -> None:
        # Spark takes relative paths from where its JVM was started, not from here.
        printed = re.sub(
            r'"((?:checkpoints|data)/[\w-]+)"', lambda path: repr(str(tmp_path / path[1])), program
        )
        exec(printed, names)  # noqa: S102 -- what a reader would type
        if "query" in names:
            end(names["query"])
            assert names["query"].exception() is None

    receive, send_batch, send, publish, process, fail, handle, forward = (
        program for each in PROGRAMS for program in each.blocks("python")
    )
    orders, billing, shipping = (postgresql.create_queue(name) for name in ("orders", "Billing", "Shipping"))
    for endpoint in ("Shop.Spark", "Shop.Orders"):
        outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), endpoint)

    orders.insert(3)
    run(receive)
    assert names["messages"].columns == ["Id", "CorrelationId", "ReplyToAddress", "Recoverable", "Expires", "Headers", "Body", "RowVersion"]  # fmt: skip
    assert (names["query"].lastProgress.numInputRows, orders.count()) == (3, 0)

    def is_sent(order: int, before: int) -> None:
        assert [row.body for row in shipping.rows()[before:]] == [
            b'{"order":%d,"line":1,"sku":"TEA"}' % order
        ]
        (honey,) = billing.rows()[before:]
        assert honey.body == b'{"order":%d,"line":2,"sku":"HONEY"}' % order
        assert json.loads(honey.headers)["NServiceBus.EnclosedMessageTypes"] == "Shop.LinePlaced, Shop"

    for _ in range(2):  # the second time nothing is sent
        run(send_batch)
        is_sent(4711, before=0)

    lines = spark.createDataFrame([(4712, 1, "TEA"), (4712, 2, "HONEY")], "order int, line int, sku string")
    lines.write.format("delta").save(str(tmp_path / "data" / "lines"))
    run(send)
    is_sent(4712, before=1)

    reports = postgresql.create_queue("Reports")
    SubscriptionRows(postgresql).create().add(reports, "Shop.LinePlaced", "Shop.IEvent")
    run(publish)
    assert sorted(row.body for row in reports.rows()) == [
        b'{"order":4712,"line":1,"sku":"TEA"}',
        b'{"order":4712,"line":2,"sku":"HONEY"}',
    ]

    postgresql.execute("CREATE TABLE placed (id varchar(200), body text)")
    for _ in range(2):  # the second time as other rows with the same message ids
        orders.insert(4)
        run(process)
        with psycopg.connect(postgresql.url) as connection:
            found = connection.execute("SELECT id, body FROM placed ORDER BY id").fetchall()
        assert found == [*zip(message_ids(range(4)), (body(n).decode() for n in range(4)), strict=True)]

    error = postgresql.create_queue("error")
    orders.insert(2)
    orders.insert_row(id=row_id(9), headers=headers(9), body=b"")
    run(fail)
    assert ([row.body for row in billing.rows()[2:]], shipping.count()) == ([body(0), body(1)], 4)
    (failed,) = error.rows()
    assert json.loads(failed.headers)["NServiceBus.ExceptionInfo.ExceptionType"] == "shop.EmptyOrder"

    web = postgresql.create_queue("web")
    text = '{"NServiceBus.MessageId":"m","NServiceBus.ReplyToAddress":"web"}'
    orders.insert_row(id=row_id(10), headers=text, body=b'{"order":1}')
    orders.insert_row(id=row_id(11), headers=text.replace('"m"', '"n"'), body=b'{"order":-1}')
    waiting = DelayedRows(postgresql, "orders").create()
    run(handle)
    assert [row.body for row in web.rows()] == [b'{"order":1}']
    assert shipping.rows()[-1].body == b'{"order":1}'
    event = reports.rows()[-1]
    assert (reports.count(), event.body) == (3, b'{"order":1}')
    assert json.loads(event.headers)["NServiceBus.MessageIntent"] == "Publish"
    assert [row.body for row in waiting.rows()] == [b'{"order":-1}']

    orders.insert(5)
    run(forward)
    assert orders.count() == 0
    assert [(row.headers, row.body) for row in billing.rows()[4:]] == [
        (headers(n), body(n)) for n in range(5)
    ]
