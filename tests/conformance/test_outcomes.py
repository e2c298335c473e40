"""A received message has one outcome, the first that is committed: what it sends,
or its way to the error queue.
"""

import json
import threading
from datetime import timedelta
from uuid import UUID

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.outgoing import derived_ids
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import queue_table
from tests.support import messages
from tests.support.delayed import DelayedRows
from tests.support.driver import at_step
from tests.support.messages import message_id, row_id
from tests.support.outboxes import OutboxRows
from tests.support.outcomes import (
    failed_in,
    failure,
    frame,
    options,
    outcome,
    outgoing,
    sent_to,
    settle,
    settle_all,
    settled_all,
)
from tests.support.sending import OUTBOXES, batch, ids_in, send, sent_all, steps
from tests.support.subscriptions import SubscriptionRows
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("reads_json_as_documented")

FAILED_QUEUE = "NServiceBus.FailedQ"
MESSAGE_ID = "NServiceBus.MessageId"
EXCEPTION = "NServiceBus.ExceptionInfo."


@pytest.fixture
def orders(engine, queue):
    """The queue in which the messages were received; their rows are gone."""
    return queue


@pytest.fixture
def billing(engine, orders):
    return engine.create_queue("billing")


@pytest.fixture
def error(engine, orders):
    return engine.create_queue("error")


@pytest.fixture
def remembered(engine, orders):
    """The outbox table of the endpoint Sales."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return OutboxRows(engine)


@pytest.fixture(params=OUTBOXES)
def given(request, engine, billing, error, remembered):
    """The options of a sink, with each kind of outbox."""
    return options(engine, outbox=request.param)


def put_back(number, **changes):
    """What is different when a message comes again as another row, as after a retry."""
    return {"RowVersion": number + 1000, "Id": str(row_id(number + 1000)), **changes}


# -- one message, one outcome ---------------------------------------------------------------------


def test_a_received_message_sends_all_that_it_sends(engine, given, billing, error, remembered):
    """By one key for its origin, and one for its id. One more tells that there are outcomes."""
    assert settle(given, outcome(1, outgoing("billing", 10), outgoing("billing", 11)), outcome(2)) == (
        2,
        0,
        0,
    )
    assert (sent_to(billing), error.count()) == ([10, 11], 0)
    shown = sorted(key.partition(">")[0] for key in remembered.ids())
    digits = digits_of(engine, "orders")
    origins = [f"{row_id(1)}-1-{digits}", f"{row_id(2)}-2-{digits}"]
    assert shown == [*origins, message_id(1), message_id(2), "outcomes"]


def test_each_received_message_of_a_frame_is_counted_whatever_becomes_of_it(engine, given):
    """In each try: a job compares their number with that of the messages that came."""
    SubscriptionRows(engine).create()
    outcomes = [
        outcome(1, outgoing("billing", 10), outgoing("billing", 11)),
        outcome(2),
        outcome(3, fails=failure()),
        outcome(4, outgoing("nowhere", 12)),
        outcome(5, Headers="no JSON"),
        outcome(6, outgoing(None, 13, EventType="Shop.NoneHasSubscribed")),
        outcome(7, **dict.fromkeys(["Outgoing", "Failure"])),
        outcome(8, Headers=json.dumps({MESSAGE_ID: "8", "$.store-and-forward.destination": "billing"})),
    ]
    tries = [settled_all(given, frame(outcomes[:5]), frame(outcomes[5:])) for _ in range(2)]
    assert [each.received for each in tries] == [8, 8]
    assert tries == [Sent(sent=3, handled=3, failed=4, unsubscribed=1), Sent(repeated=8, unsubscribed=1)]
    plain = batch([1, 2], Destination="billing", Headers=None)
    assert sent_all(given, plain).received == 0


def digits_of(engine, queue):
    """What tells the queue's rows from those of another queue."""
    target = Target(url=engine.url)
    with connect(target) as connection, connection.transaction():
        table = Table(table=queue, schema=target.dialect.default_schema)
        found = queue_table.find(connection, table)
    assert found is not None
    return found.digits


def test_rows_of_two_queues_with_one_id_and_one_number_have_an_outcome_each(engine, given, billing, error):
    """A trigger copies what comes into a queue into another one, and both count from 1."""
    engine.create_queue("wiretap")
    rows = [outcome(1, outgoing("billing", 1)), outcome(2, fails=failure())]
    copies = [
        outcome(1, outgoing("billing", 3), Queue="wiretap"),
        outcome(2, Queue="wiretap", fails=failure()),
    ]
    assert [settle(given, *its) for its in (rows, copies, rows, copies)] == [
        (1, 0, 1),
        (1, 0, 1),
        (0, 2, 0),
        (0, 2, 0),
    ]
    names = ("orders", "wiretap")
    failed = [[name for name in names if name in each[FAILED_QUEUE]] for each in failed_in(error)]
    assert (sent_to(billing), failed) == ([1, 3], [["orders"], ["wiretap"]])


def test_what_has_no_id_gets_one_of_the_received_message(given, billing, engine):
    """So that it is the same message whenever the received one is handled."""
    settle(given, outcome(1, outgoing("billing", 10), outgoing("billing", 11, MessageId="mine")))
    assert ids_in(billing) == [*derived_ids([message_id(1)], [str(row_id(1))], [0]).to_pylist(), "mine"]


def test_a_batch_that_comes_again_sends_nothing(given, billing):
    rows = [outcome(number, outgoing("billing", number)) for number in range(1, 10)]
    assert settle(given, *rows[:4]) == (4, 0, 0)
    assert settle(given, *rows) == (5, 4, 0)
    assert sent_to(billing) == [*range(1, 10)]


@pytest.mark.parametrize(
    "again",
    [(outgoing("billing", 12), outgoing("billing", 13)), (), (outgoing("gone", 12),)],
    ids=["others", "none", "unreachable"],
)
def test_another_answer_to_the_same_message_does_not_count(given, billing, error, again):
    assert settle(given, outcome(1, outgoing("billing", 10))) == (1, 0, 0)
    assert settle(given, outcome(1, *again)) == (0, 1, 0)
    assert (sent_to(billing), error.count()) == ([10], 0)


def test_a_message_that_failed_first_is_not_handled_in_the_replay(given, billing, error):
    assert settle(given, outcome(1, fails=failure())) == (0, 0, 1)
    assert settle(given, outcome(1, outgoing("billing", 10))) == (0, 1, 0)
    assert (billing.count(), error.count()) == (0, 1)


def test_a_message_that_was_handled_does_not_fail_in_the_replay(given, billing, error):
    assert settle(given, outcome(1, outgoing("billing", 10))) == (1, 0, 0)
    assert settle(given, outcome(1, fails=failure())) == (0, 1, 0)
    assert (billing.count(), error.count()) == (1, 0)


def test_a_failed_message_sends_nothing_of_its_answer(given, billing, error):
    assert settle(given, outcome(1, outgoing("billing", 10), fails=failure())) == (0, 0, 1)
    assert (billing.count(), sent_to(error)) == (0, [1])


def test_a_message_that_is_put_back_may_fail_again(given, error):
    """It comes as another row, so it is another try."""
    assert settle(given, outcome(1, fails=failure())) == (0, 0, 1)
    assert settle(given, outcome(1, fails=failure(), **put_back(1))) == (0, 0, 1)
    assert sent_to(error) == [1, 1]


def test_a_message_that_is_put_back_may_be_handled(given, billing, error):
    assert settle(given, outcome(1, fails=failure())) == (0, 0, 1)
    assert settle(given, outcome(1, outgoing("billing", 10), **put_back(1))) == (1, 0, 0)
    assert (sent_to(billing), sent_to(error)) == ([10], [1])


@pytest.mark.parametrize("fails", [None, failure()], ids=["handled", "failed"])
def test_a_message_that_was_handled_as_another_row_does_nothing(given, billing, error, fails):
    assert settle(given, outcome(1, outgoing("billing", 10))) == (1, 0, 0)
    assert settle(given, outcome(1, outgoing("billing", 11), fails=fails, **put_back(1))) == (0, 1, 0)
    assert (sent_to(billing), error.count()) == ([10], 0)


def test_two_rows_of_one_message_in_a_batch_are_handled_once(given, billing):
    rows = outcome(1, outgoing("billing", 10)), outcome(1, outgoing("billing", 11), **put_back(1))
    assert settle(given, *rows) == (1, 1, 0)
    assert settle(given, *rows) == (0, 2, 0)
    assert sent_to(billing) == [10]


def test_of_two_rows_of_one_message_the_first_may_fail(given, billing, error):
    rows = outcome(1, fails=failure()), outcome(1, outgoing("billing", 11), **put_back(1))
    assert settle(given, *rows) == (1, 0, 1)
    assert settle(given, *reversed(rows)) == (0, 2, 0)
    assert (sent_to(billing), sent_to(error)) == ([11], [1])


def test_one_message_in_two_queues_is_handled_in_both(given, billing, engine):
    engine.create_queue("returns")
    rows = outcome(1, outgoing("billing", 10)), outcome(1, outgoing("billing", 11), Queue="returns")
    assert settle(given, *rows) == (2, 0, 0)
    assert settle(given, *rows) == (0, 2, 0)
    assert sent_to(billing) == [10, 11]


def test_a_queue_by_two_names_is_one_queue(given, billing, orders):
    assert settle(given, outcome(1, outgoing("billing", 10))) == (1, 0, 0)
    assert settle(given, outcome(1, outgoing("billing", 11), Queue=orders.address)) == (0, 1, 0)


def test_a_message_without_an_id_is_known_by_its_row(given, billing):
    assert settle(given, outcome(1, outgoing("billing", 10), Headers="{}")) == (1, 0, 0)
    assert settle(given, outcome(1, outgoing("billing", 11), Headers="{}", RowVersion=9)) == (0, 1, 0)
    assert sent_to(billing) == [10]


def test_what_an_outcome_sends_makes_and_meets_no_key_of_a_send(given, engine, billing):
    """A message of the same id was sent by a plain frame, before and after."""
    plain = options(engine, outbox=given.outbox, queue="billing")
    assert send(plain, batch([7])) == (1, 0)
    assert settle(given, outcome(1, outgoing("billing", 7, MessageId=message_id(7)))) == (1, 0, 0)
    assert settle(given, outcome(2, outgoing("billing", 8, MessageId=message_id(8)))) == (1, 0, 0)
    assert send(plain, batch([8])) == (1, 0)
    assert sent_to(billing) == [7, 7, 8, 8]


def test_a_message_that_sends_more_than_a_chunk_sends_it_at_once(given, billing):
    """Cut between two of its statements, nothing of it is there."""
    rows = [
        outcome(1, *(outgoing("billing", number) for number in range(9_000))),
        outcome(2, outgoing("billing", 2)),
    ]

    def look():
        assert billing.count() == 0

    with steps(), at_step(fail_points.ROWS_INSERTED, look) as looked:
        assert settle(given, *rows) == (9_001, 0, 0)
    assert (sent_to(billing), looked) == ([*range(9_000), 2], [1])


def test_without_an_outbox_every_try_counts(engine, billing, error):
    given = options(engine, outbox="none")
    row = outcome(1, outgoing("billing", 10))
    assert [settle(given, row), settle(given, row), settle(given, outcome(2, fails=failure()))] == [
        (1, 0, 0),
        (1, 0, 0),
        (0, 0, 1),
    ]
    assert (sent_to(billing), sent_to(error)) == ([10, 10], [2])


# -- two at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["handled", "failed"])
@pytest.mark.parametrize("step", [fail_points.IDS_CHECKED, fail_points.ROWS_INSERTED])
def test_of_two_tries_at_once_one_counts(engine, billing, error, remembered, first, step):
    """One handles the messages, and in the other one they fail."""
    given = options(engine, outbox="optimistic")
    handled = [outcome(number, outgoing("billing", number)) for number in range(5)]
    failed = [outcome(number, fails=failure()) for number in range(5)]
    mine, theirs = (handled, failed) if first == "failed" else (failed, handled)
    with steps(), at_step(step, lambda: settle(given, *theirs)) as overtaken:
        counts = settle(given, *mine)
    assert (counts, overtaken) == ((0, 5, 0), [1])
    assert (billing.count(), error.count()) == ((0, 5) if first == "failed" else (5, 0))


def test_a_twin_waits_for_the_outcome(engine, billing, error, remembered):
    given = options(engine, outbox="pessimistic")
    counts: list[tuple[int, int, int]] = []
    twin = threading.Thread(target=lambda: counts.append(settle(given, outcome(1, fails=failure()))))

    def begin_the_twin():
        twin.start()
        eventually(remembered.blocked)

    with steps(), at_step(fail_points.ROWS_INSERTED, begin_the_twin):
        assert settle(given, outcome(1, outgoing("billing", 10))) == (1, 0, 0)
    twin.join()
    assert (counts, sent_to(billing), error.count()) == ([(0, 1, 0)], [10], 0)


def test_another_row_of_a_message_waits_until_that_one_is_handled(engine, billing, error, remembered):
    """Then it does nothing."""
    given = options(engine, outbox="pessimistic")
    counts: list[tuple[int, int, int]] = []
    again = outcome(1, outgoing("billing", 11), **put_back(1))
    other = threading.Thread(target=lambda: counts.append(settle(given, again)))

    def begin_the_other():
        other.start()
        eventually(remembered.blocked)

    with steps(), at_step(fail_points.ROWS_INSERTED, begin_the_other):
        assert settle(given, outcome(1, outgoing("billing", 10))) == (1, 0, 0)
    other.join()
    assert (counts, sent_to(billing), error.count()) == ([(0, 1, 0)], [10], 0)


@pytest.mark.parametrize(
    "step", [fail_points.ROWS_INSERTED, fail_points.IDS_INSERTED, fail_points.CHUNK_SENT]
)
def test_cut_connections_lose_and_double_no_outcome(given, engine, billing, error, step):
    rows = [
        outcome(number, outgoing("billing", number), fails=failure() if number % 3 == 0 else None)
        for number in range(10)
    ]
    with steps(), at_step(step, engine.cut_connections, on={1}) as cuts:
        settle(given, *rows)
    settle(given, *rows)
    assert (sent_to(billing), sent_to(error), cuts) == ([1, 2, 4, 5, 7, 8], [0, 3, 6, 9], [1])


# -- what fails by itself -------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["gone", "a@b@c@d", "billing@[nowhere]"])
def test_a_message_to_nowhere_fails_the_one_that_sends_it(given, billing, error, to):
    """Nothing of its answer goes out. The others go on."""
    rows = [outcome(1, outgoing("billing", 10), outgoing(to, 11)), outcome(2, outgoing("billing", 12))]
    assert settle(given, *rows) == (1, 0, 1)
    assert settle(given, *rows) == (0, 2, 0)
    assert (sent_to(billing), sent_to(error)) == ([12], [1])
    (failed,) = failed_in(error)
    assert failed[FAILED_QUEUE].count("orders") == 1
    assert to.partition("@")[0] in failed[f"{EXCEPTION}Message"]


def test_a_message_without_a_destination_fails_the_one_that_sends_it(given, billing, error):
    rows = [
        outcome(1, outgoing(None, 10)),
        outcome(2, outgoing("billing", 12)),
        outcome(3, outgoing(None, 13)),
    ]
    assert settle(given, *rows) == (1, 0, 2)
    assert (sent_to(billing), sent_to(error)) == ([12], [1, 3])


@pytest.mark.parametrize(
    "wrong",
    [
        {"Headers": [("NServiceBus.MessageId", "another")], "MessageId": "m"},
        {"Destination": ""},
        {"ReplyToAddress": "a@b@c@d"},
    ],
    ids=["two ids", "no destination", "no address to reply to"],
)
def test_messages_that_cannot_be_made_fail_those_that_send_them(given, billing, error, wrong):
    """However many they are."""
    rows = [
        outcome(
            number, {**outgoing("billing", number), **wrong} if number % 2 else outgoing("billing", number)
        )
        for number in range(200)
    ]
    assert settle(given, *rows) == (100, 0, 100)
    assert (sent_to(billing), sent_to(error)) == ([*range(0, 200, 2)], [*range(1, 200, 2)])


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_what_goes_to_another_database_is_stored_in_the_queue_of_its_message(
    engine, elsewhere, billing, error, remembered, outbox
):
    """A function may answer otherwise the next time, so nothing of it goes to another database at once."""
    far = elsewhere.create_queue("far")
    given = options(engine, outbox=outbox, **{"endpoint.far.url": elsewhere.url})
    rows = [outcome(1, outgoing("billing", 10), outgoing("far", 11)), outcome(2, outgoing("billing", 12))]
    orders = engine.queue("orders")
    before = orders.count()
    assert [settle(given, *rows) for _ in range(2)] == [(3, 0, 0), (0, 2, 0)]
    assert (sent_to(billing), far.count(), error.count()) == ([10, 12], 0, 0)
    (stored,) = orders.rows()[before:]
    headers = json.loads(stored.headers)
    assert json.loads(stored.body)["order"] == 11
    assert "far" in headers["$.store-and-forward.destination"]
    assert headers["sqlqueue.Stored"] == headers[MESSAGE_ID]


def test_a_table_that_refuses_one_message_fails_only_that_one(postgresql, outbox_given):
    given, billing, error = outbox_given
    postgresql.execute('ALTER TABLE "public"."billing" ADD CHECK (length(body) <> 65)')
    odd = {"Body": b'{"order": 99, "x": "' + b"x" * 43 + b'"}'}
    assert len(odd["Body"]) == 65
    rows = [outcome(number, outgoing("billing", number)) for number in range(20)]
    rows[7] = outcome(7, outgoing("billing", 7), {"Destination": "billing", **odd})
    assert settle(given, *rows) == (19, 0, 1)
    assert settle(given, *rows) == (0, 20, 0)
    assert sent_to(billing) == [each for each in range(20) if each != 7]
    assert sent_to(error) == [7]


@pytest.fixture(params=OUTBOXES)
def outbox_given(request, postgresql):
    orders, billing, error = (postgresql.create_queue(name) for name in ("orders", "billing", "error"))
    assert orders.count() == 0
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    return options(postgresql, outbox=request.param), billing, error


def test_poison_goes_to_the_error_queue_whatever_its_outcome(given, billing, error):
    rows = [outcome(1, outgoing("billing", 10), Headers="no JSON"), outcome(2, outgoing("billing", 12))]
    assert settle(given, *rows) == (1, 0, 1)
    (failed,) = failed_in(error)
    assert (failed["sqlqueue.RawHeaders"], failed[MESSAGE_ID]) == ("no JSON", str(row_id(1)))
    assert failed[f"{EXCEPTION}ExceptionType"] == "sqlqueue_spark.errors.UnreadableHeaders"


def test_a_message_in_transit_is_not_handled(given, billing, error):
    """A retry sends it to where it was to go."""
    text = messages.headers(1)[:-1] + ',"NServiceBus.SqlServer.ForwardDestination":"gone"}'
    assert settle(given, outcome(1, outgoing("billing", 10), Headers=text)) == (0, 0, 1)
    (failed,) = failed_in(error)
    assert (billing.count(), failed[FAILED_QUEUE].count("gone")) == (0, 1)
    assert "NServiceBus.SqlServer.ForwardDestination" not in failed


def test_a_failed_message_says_why_where_and_when(given, error):
    told = failure(StackTrace="at line 1", Data=[("article", "4711")])
    settle(given, outcome(1, fails=told))
    (row,) = error.rows()
    (failed,) = failed_in(error)
    assert row.headers.startswith(messages.headers(1)[:-1])
    assert {name: failed[name] for name in failed if name.startswith(EXCEPTION)} == {
        f"{EXCEPTION}ExceptionType": "orders.OutOfStock",
        f"{EXCEPTION}Message": "nothing left",
        f"{EXCEPTION}StackTrace": "at line 1",
        f"{EXCEPTION}Data.article": "4711",
    }
    assert (failed["NServiceBus.ProcessingEndpoint"], row.body, row.expires) == (
        "orders",
        messages.body(1),
        None,
    )
    assert row.id != UUID(str(row_id(1)))


@pytest.mark.parametrize("later", [False, True])
def test_a_message_fails_and_waits_as_it_was_received_whatever_a_transform_made_of_it(
    engine, given, orders, error, later
):
    """A frame may have unpacked the body before a function saw it: what comes back is unpacked again."""
    waiting = DelayedRows(engine, "orders").create()
    orders.insert_row(id=row_id(1), headers=messages.headers(1), body=b"packed")
    (row,) = orders.rows()
    fails = failure(RetryAfter=timedelta(hours=1)) if later else failure()
    changed = {"RowVersion": row.row_version, "Headers": '{"own":"1"}', "Body": b"unpacked"}
    assert settle(given, outcome(1, fails=fails, **changed)) == (0, 0, 0 if later else 1)
    found = (
        [(each.headers, each.body) for each in waiting.rows()]
        if later
        else [(json.loads(each.headers), each.body) for each in error.rows()]
    )
    ((headers, body),) = found
    assert (headers[MESSAGE_ID], "own" in headers, body) == (message_id(1), False, b"packed")


def test_an_error_queue_that_is_missing_ends_the_batch(engine, billing, remembered):
    given = options(engine, errorQueue="nowhere")
    with pytest.raises(QueueError, match="There is no queue table nowhere"):
        settle(given, outcome(1, outgoing("billing", 10)))
    assert billing.count() == 0


@pytest.mark.parametrize("name", ["errorQueue", "auditQueue"])
def test_what_would_be_received_again_for_ever_is_refused(engine, orders, billing, error, remembered, name):
    """Messages that end in the queue in which they were received."""
    given = options(engine, **{name: orders.address})
    with pytest.raises(ConfigurationError, match=f"The option {name} names orders@.* round for ever"):
        settle(given, outcome(1, outgoing("billing", 10)), outcome(2, fails=failure()))
    assert (orders.count(), billing.count()) == (0, 0)


@pytest.fixture
def guarded(postgresql, guarded_url):
    """The options of a sink whose login may write to all queues but billing."""
    for name in ("orders", "billing", "error", "shipping"):
        queue = postgresql.create_queue(name)
        if name != "billing":
            postgresql.execute(f"GRANT INSERT ON {queue.name} TO guarded")
            postgresql.execute(f"GRANT USAGE ON SEQUENCE {queue.name}_seq_seq TO guarded")
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    postgresql.execute('GRANT SELECT, INSERT ON "Sales_OutboxData" TO guarded')
    return guarded_url


@pytest.mark.parametrize("outbox", OUTBOXES)
def test_a_destination_without_the_right_fails_those_that_send_there(postgresql, guarded, outbox):
    given = SinkOptions.parse({"url": guarded, "endpoint": "Sales", "outbox": outbox, "errorQueue": "error"})
    rows = [
        outcome(1, outgoing("shipping", 10), outgoing("billing", 11)),
        outcome(2, outgoing("shipping", 12)),
        outcome(3, outgoing("billing", 13)),
    ]
    assert settle(given, *rows) == (1, 0, 2)
    assert settle(given, *rows) == (0, 3, 0)
    billing, shipping, error = (postgresql.queue(name) for name in ("billing", "shipping", "error"))
    assert (billing.count(), sent_to(shipping), sent_to(error)) == (0, [12], [1, 3])
    assert {failed[FAILED_QUEUE] for failed in failed_in(error)} == {'"public"."orders"'}
    assert all("lacks a right" in failed[f"{EXCEPTION}Message"] for failed in failed_in(error))


# -- what cannot be an outcome --------------------------------------------------------------------


def test_a_received_message_with_two_rows_is_refused(given, billing):
    rows = [outcome(1, outgoing("billing", 10)), outcome(1, outgoing("billing", 11))]
    with pytest.raises(
        ConfigurationError, match="The received message with RowVersion 1 of orders has two rows"
    ):
        settle(given, *rows)
    assert billing.count() == 0


def test_a_second_row_in_a_later_chunk_is_refused(given, billing):
    first = frame(
        [outcome(number, *(outgoing("billing", number) for _ in range(1_000))) for number in range(8)]
    )
    with pytest.raises(ConfigurationError, match="RowVersion 3 of orders has two rows"):
        settle_all(given, first, frame([outcome(3, outgoing("billing", 3))]))


@pytest.mark.parametrize("name", ["Queue", "RowVersion", "Id"])
def test_a_row_that_tells_no_origin_is_refused(given, name):
    with pytest.raises(ConfigurationError, match=f"A row has no {name}"):
        settle(given, outcome(1, **{name: None}))


@pytest.mark.parametrize(
    "to, known",
    [("\0origin", f"{row_id(7)}-7"), ("orders@[{schema}]\0handled", message_id(7))],
    ids=["row", "id"],
)
def test_no_address_of_a_message_is_taken_for_what_the_outbox_knows_of_a_row(given, engine, error, to, known):
    """A message that fails, because its address cannot be read, does not say that another one is done."""
    to = to.format(schema=engine.default_schema)
    assert send(given, batch([1], Destination=to, MessageId=known)) == (0, 0)
    assert error.count() == 1
    assert settle(given, outcome(7, outgoing("billing", 7))) == (1, 0, 0)
