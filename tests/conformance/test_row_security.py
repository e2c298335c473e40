"""Tables with row security: what goes in by policies, and what a login is told of them. PostgreSQL only."""

import json
from datetime import timedelta

import pytest

from sqlqueue_spark.administration import outbox_tables, queue_restore, queue_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.inspection.doctor.database_checks import checks
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.tables import queue_table
from sqlqueue_spark.tables.insert import insert
from sqlqueue_spark.tables.rights import held
from tests.support.delayed import DelayedRows, in_an_hour
from tests.support.messages import body, message_id, message_ids
from tests.support.outboxes import OutboxRows
from tests.support.postgresql import PostgresEngine
from tests.support.sending import Outgoing, batch, composed, ids_in, options, outgoing_rows, send


def secure(postgresql, table, check="true", policy="INSERT"):
    """From here on only those rows go in that pass the policy; with no policy none does."""
    postgresql.execute(f'ALTER TABLE "{table}" ENABLE ROW LEVEL SECURITY')
    if policy:
        postgresql.execute(f'CREATE POLICY sends ON "{table}" FOR {policy} TO guarded WITH CHECK ({check})')


@pytest.fixture
def orders(postgresql):
    return postgresql.create_queue()


@pytest.fixture
def sender(postgresql, guarded_url, orders):
    """A login that may send to orders and to the error queue, with the outbox Sales."""
    postgresql.create_queue("error")
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    for table in ("orders", "error"):
        postgresql.execute(f"GRANT INSERT ON {table} TO guarded")
        postgresql.execute(f"GRANT USAGE ON SEQUENCE {table}_seq_seq TO guarded")
    postgresql.execute('GRANT SELECT, INSERT ON "Sales_OutboxData" TO guarded')
    return PostgresEngine(guarded_url)


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic", "none"])
def test_messages_go_in_by_a_policy(postgresql, orders, sender, outbox):
    secure(postgresql, "orders")
    rows = batch(range(5), TimeToBeReceived=[timedelta(days=1), None, None, None, None])
    assert send(options(sender, outbox=outbox, errorQueue="error"), rows) == (5, 0)
    found = orders.rows()
    assert [json.loads(row.headers)["NServiceBus.MessageId"] for row in found] == message_ids(range(5))
    assert [row.body for row in found] == [body(number) for number in range(5)]
    assert [row.expires is None for row in found] == [False, True, True, True, True]
    assert postgresql.queue("error").count() == 0


def test_messages_go_in_by_a_policy_that_comes_while_the_sink_runs(postgresql, orders, sender):
    """It found the table before."""
    given = options(sender, errorQueue="error")
    found = Destinations(given)

    def send_more(numbers):
        with Sender(found) as task:
            return task.send(composed(given, batch(numbers), destinations=found))

    before = send_more(range(5))
    secure(postgresql, "orders")
    assert send_more(range(5, 10)) == before
    assert ids_in(orders) == message_ids(range(10))


def test_a_row_by_policy_is_the_row_that_goes_in_without(postgresql, orders, sender):
    """Also where the body is empty, large or NULL, headers have odd letters, and there are more columns."""
    plain = postgresql.create_queue("plain")
    postgresql.execute("ALTER TABLE orders ADD correlationid text, ADD recoverable boolean")
    postgresql.execute("GRANT INSERT ON plain TO guarded")
    postgresql.execute("GRANT USAGE ON SEQUENCE plain_seq_seq TO guarded")
    secure(postgresql, "orders")
    bodies = [b"", None, b"x" * 100_000, bytes(range(256))]
    headers = '{"a":"\\\\ \\" é € \U0001f600 {},\\"NULL\\""}'
    rows = outgoing_rows([Outgoing(number.to_bytes(16), headers, each) for number, each in enumerate(bodies)])
    with connect(Target(url=sender.url)) as connection, connection.transaction():
        for name in ("orders", "plain"):
            found = queue_table.find(
                connection,
                ConnectionOptions.parse({"url": sender.url}).naming(connection.dialect).table(name),
            )
            assert found is not None
            insert(connection, found, rows)
    assert orders.rows() == plain.rows()
    assert orders.count() == 4


def test_a_message_waits_in_a_table_with_row_security(postgresql, orders, sender):
    waiting = DelayedRows(postgresql, "Sales").create()
    postgresql.execute('GRANT INSERT ON "Sales.Delayed" TO guarded')
    secure(postgresql, "Sales.Delayed")
    due = in_an_hour()
    assert send(options(sender, errorQueue="error"), batch([1], DeliverAt=due)) == (1, 0)
    assert [(row.body, row.due) for row in waiting.rows()] == [(body(1), due)]


@pytest.mark.parametrize("outbox", ["optimistic", "pessimistic"])
def test_only_the_message_that_a_policy_refuses_fails(postgresql, orders, sender, outbox):
    secure(postgresql, "orders", check=f"headers NOT LIKE '%{message_id(2)}%'")
    assert send(options(sender, outbox=outbox, errorQueue="error"), batch(range(5))) == (4, 0)
    assert ids_in(orders) == message_ids([0, 1, 3, 4])
    assert ids_in(postgresql.queue("error")) == message_ids([2])


def test_without_an_error_queue_a_refusal_is_said(postgresql, orders, sender):
    secure(postgresql, "orders", policy="")
    with pytest.raises(SqlQueueError, match="new row violates row-level security policy for table"):
        send(options(sender), batch(range(3)))
    assert (orders.count(), OutboxRows(postgresql).ids()) == (0, set())


def test_a_person_sends_by_a_policy(postgresql, orders, sender):
    secure(postgresql, "orders")
    given = ConnectionOptions.parse({"url": sender.url})
    sent = queue_tables.send(given, "orders", queue_tables.Draft(body=b"{}", message_type="A"))
    assert ids_in(orders) == [sent]


def rights_of(engine):
    with connect(Target(url=engine.url)) as connection, connection.transaction():
        found = queue_table.find(
            connection,
            ConnectionOptions.parse({"url": engine.url}).naming(connection.dialect).table("orders"),
        )
        assert found is not None
        return held(connection, found)


def test_a_login_without_a_policy_may_not_send(postgresql, orders, sender):
    """As inspect and doctor say it."""
    postgresql.execute("GRANT SELECT, DELETE, UPDATE ON orders TO guarded")
    assert (rights_of(sender).sender_lacks, rights_of(sender).receiver_lacks) == ((), ())
    secure(postgresql, "orders", policy="")
    missing = rights_of(sender)
    assert missing.sender_lacks == ("a policy for INSERT (row security)",)
    assert missing.receiver_lacks == tuple(
        f"a policy for {name} (row security)" for name in ("SELECT", "UPDATE", "DELETE")
    )
    assert (rights_of(postgresql).sender_lacks, rights_of(postgresql).receiver_lacks) == ((), ())
    postgresql.execute("CREATE POLICY all_of_it ON orders TO guarded USING (true)")
    assert (rights_of(sender).sender_lacks, rights_of(sender).receiver_lacks) == ((), ())


def test_the_doctor_asks_for_a_policy(postgresql, orders, sender):
    given = ConnectionOptions.parse({"url": sender.url})
    secure(postgresql, "orders", policy="")
    said = {check.name: check.said for check in checks(given, "orders", "sender")}
    assert said["rights"].startswith(
        "The user 'guarded' may not send (to send it lacks a policy for INSERT (row security)); "
    )
    postgresql.execute("CREATE POLICY sends ON orders FOR INSERT TO guarded WITH CHECK (true)")
    said = {check.name: check.said for check in checks(given, "orders", "sender")}
    assert said["rights"] == "guarded may send"


def test_lines_go_in_by_a_policy(postgresql, orders, sender, tmp_path):
    secure(postgresql, "orders")
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps({"headers": {"n": str(n)}, "body": "x"}) + "\n" for n in range(3)))
    with lines.open("rb") as source:
        given = queue_restore.Input(source=source, name="lines", again=True)
        queue_restore.restore(ConnectionOptions.parse({"url": sender.url}), "orders", given)
    assert [json.loads(row.headers) for row in orders.rows()] == [{"n": str(n)} for n in range(3)]
