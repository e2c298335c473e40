"""The neighbour of the tests behaves as .NET endpoints were seen to behave."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from tests.support import dotnet
from tests.support.messages import Row, body, headers, message_id, row_id, row_ids
from tests.support.neighbour import Counts, Habits, Neighbour, NeighbourProcess, Pauses
from tests.support.waiting import eventually

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone
FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"
#: Where the defaults are those of real endpoints, a test does not wait so long.
QUICK = timedelta(milliseconds=20)
#: Of an endpoint called orders, with its neighbour Billing, as they write them.
FULL = {
    "postgresql": '"public"."{}"',
    "sqlserver": "{}@[dbo]",
}
DELAYED = {
    "postgresql": (
        'CREATE TABLE "orders.Delayed" (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, '
        "headers text NOT NULL, "
        "body bytea, due timestamptz NOT NULL)"
    ),
    "sqlserver": (
        "CREATE TABLE [orders.Delayed] (Headers nvarchar(max) NOT NULL, Body varbinary(max), "
        "Due datetime NOT NULL, RowVersion bigint IDENTITY(1,1) NOT NULL)"
    ),
}
SUBSCRIPTIONS = {
    "postgresql": (
        'CREATE TABLE "SubscriptionRouting" (queueaddress varchar(200) NOT NULL, '
        "endpoint varchar(200) NOT NULL, "
        "topic varchar(200) NOT NULL, PRIMARY KEY (endpoint, topic))"
    ),
    "sqlserver": (
        "CREATE TABLE [SubscriptionRouting] (QueueAddress nvarchar(200) NOT NULL, "
        "Endpoint nvarchar(200) NOT NULL, Topic nvarchar(200) NOT NULL, PRIMARY KEY (Endpoint, Topic))"
    ),
}
SUBSCRIBE = {
    "postgresql": """INSERT INTO "SubscriptionRouting" VALUES ('{}', '{}', '{}')""",
    "sqlserver": "INSERT INTO SubscriptionRouting VALUES ('{}', '{}', '{}')",
}


def without_looks(counts):
    """What it did to messages. How often it looked, and when, is chance."""
    return Counts(**{**vars(counts), "looks": 0, "empty": 0, "by_second": Counter()})


def full(engine, name):
    return FULL[engine.name].format(name)


def in_transit(engine, number, to):
    return json.dumps({**json.loads(headers(number)), FORWARD_DESTINATION: to})


def settled(counts):
    """How many rows it has taken for good."""
    return counts.handled + counts.moved_on + counts.poison + counts.failed + counts.expired


def drained(neighbour, queue):
    """Run it until it has settled each row.

    SQL Server's readers do not see rows that it holds, so it is asked itself.
    """
    rows = queue.count()
    with neighbour.running():
        eventually(lambda: settled(neighbour.counts()) == rows)
    assert queue.count() == 0
    return neighbour


def test_it_handles_each_message_in_the_order_of_row_versions(engine, queue):
    queue.insert(50)
    neighbour = drained(Neighbour(engine, queue, Habits(concurrency=1, rest=QUICK)), queue)
    assert neighbour.handled == row_ids(range(50))
    assert without_looks(neighbour.counts()) == Counts(handled=50)
    assert neighbour.counts().by_second.total() == 50


def test_it_starts_no_more_receives_than_its_look_says_and_its_concurrency_allows(engine, queue):
    queue.insert(3)
    with Neighbour(engine, queue, Habits(concurrency=8, rest=QUICK)).running() as neighbour:
        # Or it would hang with some of these, and not with others.
        eventually(lambda: neighbour.counts().handled == 3)
        neighbour.hang()
        queue.insert(20, start=3)
        eventually(lambda: len(neighbour.holding()) == 8)
        assert neighbour.holding() == list(range(4, 12))
        with queue.session() as other:  # it holds them, so another receiver steps over them
            assert other.take().row_version == 12
            other.rollback()
        neighbour.go_on()
        eventually(lambda: neighbour.counts().handled == 23)
    assert sorted(neighbour.handled) == row_ids(range(23))


def test_it_steps_over_rows_that_others_hold_and_rests_when_nothing_is_free(engine, queue):
    queue.insert(5)
    with (
        queue.locked(1, 3),
        Neighbour(engine, queue, Habits(rest=timedelta(hours=1))).running() as neighbour,
    ):
        eventually(lambda: neighbour.counts().handled == 3)
    assert sorted(neighbour.handled) == row_ids([1, 3, 4])
    assert queue.row_versions() == [1, 3]


def test_it_rolls_back_a_share_of_its_receives_and_takes_these_rows_again(engine, queue):
    queue.insert(400)
    neighbour = drained(Neighbour(engine, queue, Habits(rolls_back=0.25, rest=QUICK)), queue)
    counts = neighbour.counts()
    assert sorted(neighbour.handled) == row_ids(range(400))
    assert without_looks(counts) == Counts(handled=400, rolled_back=counts.rolled_back)
    assert 60 < counts.rolled_back < 240


def test_it_drops_what_has_expired(engine, queue):
    queue.insert(2, expires=PAST)
    queue.insert(1, start=2)
    neighbour = drained(Neighbour(engine, queue, Habits(rest=QUICK)), queue)
    assert neighbour.handled == row_ids([2])
    assert without_looks(neighbour.counts()) == Counts(handled=1, expired=2)


def test_it_moves_on_what_is_in_transit_and_handles_what_has_arrived(engine, queue):
    billing = engine.create_queue("Billing")
    queue.insert_row(id=row_id(0), headers=in_transit(engine, 0, full(engine, "Billing")), body=body(0))
    queue.insert_row(id=row_id(1), headers=in_transit(engine, 1, full(engine, "orders")), body=body(1))
    neighbour = drained(Neighbour(engine, queue, Habits(rest=QUICK)), queue)
    assert without_looks(neighbour.counts()) == Counts(handled=1, moved_on=1)
    assert neighbour.handled == [row_id(1)]
    (moved,) = billing.rows()
    assert (moved.headers, moved.body, moved.id == row_id(0)) == (headers(0), body(0), False)


@pytest.mark.parametrize("text", ["no JSON", '["a"]', '{"a":{"b":"c"}}', '"text"', '{"a":"b",}'])
def test_it_moves_what_it_cannot_read_to_error_as_it_is(engine, queue, text):
    error = engine.create_queue("error")
    queue.insert_row(id=row_id(7), headers=text, body=b"as it is")
    neighbour = drained(Neighbour(engine, queue, Habits(rest=QUICK)), queue)
    assert without_looks(neighbour.counts()) == Counts(poison=1)
    assert error.rows() == [Row(id=row_id(7), headers=text, body=b"as it is", row_version=1)]


@pytest.mark.parametrize(
    "text, read",
    [
        *((each, {}) for each in ("", "{}", "[]")),
        ('{"number":7.50,"truth":true}', {"number": "7.50", "truth": "true"}),
        ('{"NServiceBus.MessageId":""}', {"NServiceBus.MessageId": ""}),
    ],
)
def test_it_reads_headers_leniently_and_takes_the_row_id_for_the_message_id(engine, queue, text, read):
    queue.insert_row(id=row_id(7), headers=text, body=b"")
    seen = []
    neighbour = Neighbour(engine, queue, Habits(rest=QUICK), lambda handling: seen.append(handling.message))
    drained(neighbour, queue)
    (found,) = seen
    assert (found.message_id, found.headers, found.body) == (str(row_id(7)), read, b"")


def test_a_handler_that_fails_is_tried_again_and_then_the_message_goes_to_error(engine, queue):
    error = engine.create_queue("error")
    queue.insert(2)
    tries = []

    def handle(handling):
        tries.append(handling.message.message_id)
        if handling.message.message_id == message_id(0):
            raise ValueError

    habits = Habits(concurrency=1, immediate_retries=2, rest=QUICK)
    neighbour = drained(Neighbour(engine, queue, habits, handle), queue)
    assert without_looks(neighbour.counts()) == Counts(handled=1, failed=1, failures=3)
    assert tries == [message_id(0)] * 3 + [message_id(1)]
    (failed,) = error.rows()
    added = {
        name: text for name, text in json.loads(failed.headers).items() if name not in json.loads(headers(0))
    }
    assert added.pop("NServiceBus.TimeOfFailure")
    assert (added, failed.body) == (
        {
            "NServiceBus.FailedQ": full(engine, "orders"),
            "NServiceBus.ExceptionInfo.ExceptionType": "System.InvalidOperationException",
            "NServiceBus.ExceptionInfo.Message": "the handler has failed",
            "NServiceBus.ProcessingEndpoint": "orders",
        },
        body(0),
    )


def test_it_replies_to_where_the_message_says(engine, queue):
    billing = engine.create_queue("Billing")
    asked = {**json.loads(headers(0)), "NServiceBus.ReplyToAddress": full(engine, "Billing")}
    queue.insert_row(id=row_id(0), headers=json.dumps(asked), body=body(0))
    queue.insert_row(id=row_id(1), headers="{}", body=body(1))
    neighbour = drained(Neighbour(engine, queue, Habits(replies="Shop.Answer", rest=QUICK)), queue)
    assert without_looks(neighbour.counts()) == Counts(handled=2, replied=1)
    (reply,) = billing.rows()
    found = json.loads(reply.headers)
    assert UUID(found.pop("NServiceBus.MessageId")).version == 4
    assert found.pop("NServiceBus.TimeSent")
    assert found == {
        "NServiceBus.MessageIntent": "Reply",
        "NServiceBus.ConversationId": asked["NServiceBus.ConversationId"],
        "NServiceBus.CorrelationId": message_id(0),
        "NServiceBus.RelatedTo": message_id(0),
        "NServiceBus.ReplyToAddress": full(engine, "orders"),
        "NServiceBus.ContentType": "application/json",
        "NServiceBus.EnclosedMessageTypes": "Shop.Answer",
    }


def test_it_publishes_to_each_subscriber_of_the_type_and_of_what_it_inherits_from_once(engine, queue):
    subscribers = [engine.create_queue(name) for name in ("Billing", "Shipping", "Other")]
    engine.execute(SUBSCRIPTIONS[engine.name])
    for name, topic in [
        ("Billing", "Shop.Placed"),
        ("Billing", "Shop.Event"),
        ("Shipping", "Shop.Event"),
        ("Other", "Shop.Else"),
    ]:
        endpoint = f"{name} of {topic}"
        engine.execute(SUBSCRIBE[engine.name].format(full(engine, name), endpoint, topic))
    queue.insert(2)
    habits = Habits(publishes=("Shop.Placed", "Shop.Event"), rest=QUICK)
    neighbour = drained(Neighbour(engine, queue, habits), queue)
    assert without_looks(neighbour.counts()) == Counts(handled=2, published=4)
    sent = [
        [json.loads(row.headers)["NServiceBus.EnclosedMessageTypes"] for row in each.rows()]
        for each in subscribers
    ]
    assert sent == [["Shop.Placed;Shop.Event"] * 2, ["Shop.Placed;Shop.Event"] * 2, []]


def test_what_a_handler_sends_later_waits_in_its_table_and_comes_by_way_of_its_queue(engine, queue):
    billing = engine.create_queue("Billing")
    engine.execute(DELAYED[engine.name])
    queue.insert(1)

    def handle(handling):
        handling.send(full(engine, "Billing"), "Shop.Late", b"late", after=timedelta(milliseconds=1))

    habits = Habits(delivers_delayed=True, longest_pause=timedelta(milliseconds=50), rest=QUICK)
    with Neighbour(engine, queue, habits, handle).running() as neighbour:
        eventually(lambda: billing.count() == 1)
    assert without_looks(neighbour.counts()) == Counts(handled=1, sent=1, delivered=1, moved_on=1)
    (late,) = billing.rows()
    assert (FORWARD_DESTINATION in late.headers, late.body) == (False, b"late")


def test_a_dead_neighbour_frees_what_it_held(engine, queue):
    queue.insert(10)
    neighbour = Neighbour(engine, queue, Habits(concurrency=4, rest=QUICK))
    neighbour.hang()
    neighbour.start()
    eventually(lambda: len(neighbour.holding()) == 4)
    neighbour.die()
    assert (neighbour.handled, neighbour.troubles, neighbour.holding()) == ([], [], [])

    def free():
        with queue.session() as other:
            return other.take().row_version == 1

    eventually(free)
    assert queue.ids() == row_ids(range(10))


def test_it_goes_on_when_its_connections_were_cut(engine, queue):
    queue.insert(1)
    with Neighbour(engine, queue, Habits(concurrency=2, rest=QUICK)).running() as neighbour:
        eventually(lambda: neighbour.counts().handled == 1)
        engine.cut_connections()
        queue.insert(1, start=1)
        eventually(lambda: neighbour.counts().handled == 2)
    assert neighbour.handled == row_ids([0, 1])
    assert neighbour.counts().lost >= 2


@pytest.mark.parametrize("poison", [(headers(1), None), ("null", b"")], ids=["a NULL body", "headers null"])
def test_it_stands_still_until_the_row_is_gone(postgresql, poison):
    queue = postgresql.create_queue()
    text, content = poison
    queue.insert(1)
    stops = queue.insert_row(id=row_id(1), headers=text, body=content)
    with Neighbour(postgresql, queue, Habits(concurrency=1, rest=QUICK)).running() as neighbour:
        eventually(lambda: neighbour.stands_still)
        queue.insert(3, start=2)
        seen = neighbour.counts().stood_still
        eventually(lambda: neighbour.counts().stood_still > seen + 3)
        assert (neighbour.handled, queue.ids()) == (row_ids([0]), row_ids([1, 2, 3, 4]))
        queue.execute(f"DELETE FROM {{table}} WHERE seq = {stops}")
        eventually(lambda: queue.count() == 0)
        assert not neighbour.stands_still
    assert neighbour.handled == row_ids([0, 2, 3, 4])


def test_many_receivers_stand_still_at_the_same_row(postgresql):
    queue = postgresql.create_queue()
    queue.insert_row(id=uuid4(), headers=headers(0), body=None)
    with Neighbour(postgresql, queue, Habits(concurrency=8, rest=QUICK)).running() as neighbour:
        # Receives that have begun before it stands still are together, and one may step over the row. The
        # ninth has begun when these have ended.
        eventually(lambda: neighbour.counts().stood_still > 8)
        assert neighbour.stands_still
        queue.insert(50)
        seen = neighbour.counts().stood_still
        eventually(lambda: neighbour.counts().stood_still > seen + 3)
        assert (neighbour.handled, queue.count()) == ([], 51)


def test_an_empty_body_of_null_is_no_hindrance_on_sqlserver(sqlserver):
    queue = sqlserver.create_queue()
    queue.insert_row(id=row_id(0), headers=headers(0), body=None)
    assert drained(Neighbour(sqlserver, queue, Habits(rest=QUICK)), queue).handled == row_ids([0])


@pytest.mark.parametrize(
    "to", ["Shop.Web", '"public"."nowhere"'], ids=["a dot without quotes", "no such queue"]
)
def test_a_reply_that_cannot_go_out_fails_its_message(postgresql, to):
    """One receiver: PostgreSQL frees the row with the error,
    so that another one may be quicker than the count of tries.
    """
    queue, error = postgresql.create_queue(), postgresql.create_queue("error")
    postgresql.create_queue("Shop.Web")
    queue.insert_row(id=row_id(0), headers=json.dumps({"NServiceBus.ReplyToAddress": to}), body=b"{}")
    neighbour = drained(
        Neighbour(
            postgresql, queue, Habits(replies="Shop.Answer", immediate_retries=1, concurrency=1, rest=QUICK)
        ),
        queue,
    )
    assert without_looks(neighbour.counts()) == Counts(failed=1, failures=2)
    assert error.count() == 1


def test_an_event_for_an_address_with_a_dot_and_no_quotes_fails_the_publisher(postgresql):
    queue, error = postgresql.create_queue(), postgresql.create_queue("error")
    good = postgresql.create_queue("Good")
    postgresql.execute(SUBSCRIPTIONS["postgresql"])
    for address, endpoint in [('"public"."Good"', "Good"), ("Shop.Web", "Shop.Web")]:
        postgresql.execute(SUBSCRIBE["postgresql"].format(address, endpoint, "Shop.Placed"))
    queue.insert(1)
    habits = Habits(publishes=("Shop.Placed",), immediate_retries=0, concurrency=1, rest=QUICK)
    neighbour = drained(Neighbour(postgresql, queue, habits), queue)
    assert without_looks(neighbour.counts()) == Counts(failed=1, failures=1)
    assert (good.count(), error.count()) == (0, 1)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
def test_its_mover_reads_due_as_the_utc_wall_clock_in_the_zone_of_the_database(postgresql, zone):
    """So the stored instant is hours away from the time that is meant,
    and the message comes in time all the same.
    """
    postgresql.execute(f"ALTER DATABASE {postgresql.url.rpartition('/')[2]} SET TimeZone = '{zone}'")
    queue = postgresql.create_queue()
    postgresql.execute(DELAYED["postgresql"])
    put = """INSERT INTO "orders.Delayed" (id, headers, body, due) VALUES ('{}', '{{}}', '{}',
        ((now() AT TIME ZONE 'UTC') + interval '{}')::timestamp AT TIME ZONE '{}')"""
    for number, when in enumerate(["-1 second", "300 milliseconds", "1 hour"]):
        postgresql.execute(put.format(row_id(number), number, when, zone))
    habits = Habits(delivers_delayed=True, rest=QUICK)
    with Neighbour(postgresql, queue, habits).running() as neighbour:
        eventually(lambda: len(neighbour.handled) == 2)
    assert neighbour.handled == row_ids([0, 1])  # the row id is that of the delayed table
    assert postgresql.fetch('SELECT id FROM "orders.Delayed"') == [(row_id(2),)]
    assert without_looks(neighbour.counts()) == Counts(handled=2, delivered=2)


def test_its_mover_rests_twice_as_long_each_time_that_nothing_is_due_up_to_a_minute():
    pauses = Pauses()
    rests = [pauses.after(0, None) for _ in range(9)]
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (pauses.after(0, 7.5), pauses.after(0, -3.0)) == (7.5, 0.0)  # until the next one is due
    assert [pauses.after(1, None), pauses.after(0, None), pauses.after(0, None)] == [1, 2, 4]


@pytest.mark.parametrize("file", sorted(dotnet.QUEUES))
def test_it_handles_what_real_endpoints_wrote(postgresql, file):
    alive = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    rows = [replace(row, expires=row.expires and alive) for row in dotnet.rows(file)]
    queue = dotnet.create_queue(postgresql, "Interop.Orders", rows)
    moved = dotnet.create_queue(postgresql, "poison")
    seen = []
    habits = Habits(concurrency=1, error_queue='"public"."poison"', rest=QUICK)
    drained(Neighbour(postgresql, queue, habits, lambda handling: seen.append(handling.message)), queue)
    poison = [row for row in rows if row.headers == "not json"]
    assert [(each.id, each.body) for each in seen] == [
        (row.id, row.body) for row in rows if row not in poison
    ]
    assert [(row.id, row.headers, row.body) for row in moved.rows()] == [
        (row.id, row.headers, row.body) for row in poison
    ]


def test_it_delivers_what_real_endpoints_delayed(postgresql):
    """Into its own queue under the ids that they had there; what is for another queue goes on from there."""
    for table in ("Interop.Recorder", "Interop.Subscriber"):
        dotnet.create_queue(postgresql, table)
    dotnet.create_table(postgresql, dotnet.DELAYED)
    lines = [{**line, "due": "2020-01-01 00:00:00+00"} for line in dotnet.lines("delayed")]
    dotnet.insert(postgresql, dotnet.DELAYED, lines)
    recorder, subscriber = (postgresql.queue(name) for name in ("Interop.Recorder", "Interop.Subscriber"))
    neighbour = Neighbour(postgresql, recorder, Habits(delivers_delayed=True, concurrency=1, rest=QUICK))
    with neighbour.running():
        eventually(lambda: neighbour.counts().handled == 2)
        eventually(lambda: subscriber.count() == 1)
    assert without_looks(neighbour.counts()) == Counts(delivered=3, handled=2, moved_on=1)
    read = [json.loads(line["headers"]) for line in lines]
    own = [
        UUID(line["id"])
        for line, each in zip(lines, read, strict=True)
        if "Recorder" in each[FORWARD_DESTINATION]
    ]
    assert sorted(neighbour.handled) == sorted(own)
    (other,) = (each for each in read if "Subscriber" in each[FORWARD_DESTINATION])
    (arrived,) = subscriber.rows()
    del other[FORWARD_DESTINATION]
    assert json.loads(arrived.headers) == other


def test_a_neighbour_in_processes_of_its_own_handles_each_message_once(postgresql):
    queue = postgresql.create_queue()
    queue.insert(500)
    habits = Habits(concurrency=3, rolls_back=0.1, rest=QUICK)
    with NeighbourProcess(postgresql.url, "orders", habits, processes=2).running() as neighbour:
        eventually(lambda: queue.count() == 0)
        counts = neighbour.stop()
    assert without_looks(counts) == Counts(handled=500, rolled_back=counts.rolled_back)
    assert counts.by_second.total() == 500


def test_a_neighbour_that_is_killed_frees_what_it_held(postgresql):
    queue = postgresql.create_queue()
    queue.insert(20)
    habits = Habits(concurrency=4, handling=timedelta(hours=1))
    with NeighbourProcess(postgresql.url, "orders", habits).running() as neighbour:
        held = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'neighbour of orders' AND "
            "xact_start IS NOT NULL"
        )
        eventually(lambda: len(postgresql.fetch(f"{held} AND state = 'idle in transaction'")) == 4)
        neighbour.kill()
        eventually(lambda: not postgresql.fetch(held))
    assert (queue.count(), queue.take().row_version) == (20, 1)
    assert neighbour.counts().handled == 0
