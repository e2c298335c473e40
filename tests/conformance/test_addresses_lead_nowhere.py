"""An address out of a message or a table leads to a queue, and never into code of a stranger.

A login that may send to a queue, and create tables in some schema, names a table of his own. Whatever the
way: his code does not run, no row goes in, the message fails with a reason that names the table, all others
arrive. PostgreSQL only.
"""

import contextlib
import json
import re
import time

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import failed_retry
from sqlqueue_spark.embedded.programs import version
from sqlqueue_spark.engines.connection import Connection
from sqlqueue_spark.engines.statements import NOTHING
from sqlqueue_spark.errors import SqlQueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting import delayed_mover
from sqlqueue_spark.send.waiting.delayed_mover import DelayedMover
from sqlqueue_spark.tables import scripts, table_code
from tests.support.delayed import move
from tests.support.driver import at_step, streaming
from tests.support.error_rows import fail
from tests.support.every_way import BESIDE, BILLING, WAYS, on_its_way
from tests.support.forwarding import forwarding
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import frame, outcome, outgoing, sent_to, settled_all
from tests.support.sending import batch, composed, options, send, sent_all, steps
from tests.support.stored import drained, running, store
from tests.support.strangers import (
    ARMS,
    ATTACKER,
    FEW,
    LAIR,
    NAMES,
    TURN,
    Scene,
    cast,
    inhabited,
    queue,
    trigger,
)
from tests.support.subscriptions import SubscriptionRows

EVENT = "Shop.Placed"
#: Code of the server's own, that the look finds and allows.
HARMLESS = "ALTER TABLE {t} ADD CHECK (length(headers) > 0)"


@pytest.fixture(scope="module")
def roles(server):
    with cast(server):
        yield


@pytest.fixture(scope="module")
def made(server, roles):
    with inhabited(server, "strangers", *ARMS) as scene:
        yield scene


@pytest.fixture(scope="module")
def made_elsewhere(server, roles):
    with inhabited(server, "strangers_elsewhere", *FEW) as scene:
        yield scene


@pytest.fixture
def scene(made):
    made.clear()
    return made


@pytest.fixture
def elsewhere(made_elsewhere):
    made_elsewhere.clear()
    return made_elsewhere


@pytest.fixture
def plain(scene):
    """A table of the stranger that is a destination like others, until a test arms it."""
    scene.stranger.drop("plain")
    scene.stranger.make_plain("plain")
    return scene.stranger.address("plain")


@pytest.fixture(scope="module")
def names(made):
    made.stranger.run(*NAMES)


def assert_refused(scene: Scene, name: str, number: int = 2, *, reason: str | None = None) -> None:
    """The stranger's code has not run, nothing went into the table, and one message has failed for it."""
    assert (scene.stranger.ran(), scene.stranger.took(name)) == (False, 0)
    failed = scene.failed()
    assert [*failed] == [number]
    assert_says(failed[number], name, reason)


def assert_says(text: str, name: str, reason: str | None = None) -> None:
    """A sentence names the table, and what is wrong with it."""
    assert name in text
    assert re.search(reason or ARMS[name].reason, text), text


@pytest.mark.parametrize("name", ARMS)
def test_a_sink_sends_into_no_code_of_a_stranger(scene, name):
    scene.send("sink", scene.stranger.address(name))
    assert sent_to(scene.queue("billing")) == [1, 3]
    assert_refused(scene, name)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "sink"])
def test_no_way_leads_into_code_of_a_stranger(scene, way, name):
    scene.send(way, scene.stranger.address(name))
    assert sent_to(scene.queue("billing")) == [1, 3]
    assert_refused(scene, name)


@pytest.mark.tier("all")
@pytest.mark.parametrize("way", ["sink", "in_transit", "delayed"])
def test_a_login_that_cannot_look_whose_code_runs_sends_no_message_there(scene, plain, way):
    """It says what the login lacks. The other messages arrive."""
    scene.stranger.arm("plain", HARMLESS)
    scene.admin.execute("REVOKE SELECT ON pg_catalog.pg_policy FROM public")
    try:
        scene.send(way, plain)
    finally:
        scene.admin.execute("GRANT SELECT ON pg_catalog.pg_policy TO public")
    assert_refused(scene, "plain", reason="reads the catalogue")


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    "given, theirs, ours",
    [
        ("+*@[lair]", 1, 2),
        ("+trigger*@[lair]", 1, 2),
        ("+billing", 0, 2),
        ("bil*", 0, 2),
        ("billing,+*@[lair]", 1, 2),
        ("*@[lair]", 1, 0),
        ("trigger*", 0, 0),
    ],
)
def test_an_option_widens_or_narrows_where_addresses_lead(scene, given, theirs, ours):
    """With a plus it names tables that may be reached beside those that run no code, else the only ones."""
    name = "trigger before each row"
    rows = batch([1, 2, 3], Destination=[BILLING, scene.stranger.address(name), BILLING])
    send(options(scene.job, errorQueue="error", allowedDestinations=given), rows)
    arrived = scene.stranger.took(name), scene.queue("billing").count(), scene.queue("error").count()
    assert (*arrived, scene.stranger.ran()) == (theirs, ours, 3 - theirs - ours, theirs == 1)


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", ["rule also", "rule instead", "policy", "default of seq", "no seq"])
@pytest.mark.parametrize("way", ["in_transit", "delayed"])
def test_what_a_copy_would_not_run_is_refused_too(scene, way, name):
    """The mover inserts by another statement than the sink."""
    scene.send(way, scene.stranger.address(name))
    assert sent_to(scene.queue("billing")) == [1, 3]
    assert_refused(scene, name)


@pytest.mark.tier("all")
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_into_a_table_beside_the_queues(scene, way, name):
    """Into one of delayed messages a sender would write what else only an endpoint itself does."""
    before = scene.admin.fetch(f'SELECT count(*) FROM "{name}"') if way == "sink" else [(0,)]
    scene.send(way, f'"public"."{name}"')
    assert sent_to(scene.queue("billing")) == [1, 3]
    assert [*scene.failed()] == [2]
    if name != "Sales_OutboxData":  # in which the sink writes its keys
        assert scene.admin.fetch(f'SELECT count(*) FROM "{name}"') == before


@pytest.fixture
def three(scene):
    """Three tables of the stranger that are destinations like others."""
    names = ["first", "second", "third"]
    for name in names:
        scene.stranger.drop(name)
        scene.stranger.make_plain(name)
    return names


@pytest.fixture
def looks(monkeypatch):
    """What is done about code of strangers, one by one."""
    done, execute = [], Connection.execute

    def told(self, statement, parameters=NOTHING, *, doing=""):
        if "code" in doing:
            done.append(str(doing))
        return execute(self, statement, parameters, doing=doing)

    monkeypatch.setattr(Connection, "execute", told)
    return done


def test_one_lock_and_one_look_serve_all_tables_of_a_transaction(scene, three, looks):
    """A second look is about those that have something to look at."""
    scene.stranger.arm("second", HARMLESS)
    where = [scene.stranger.address(name) for name in three]
    send(options(scene.job, errorQueue="error"), batch([1, 2, 3], Destination=where))
    tables = f"first@[{LAIR}] and 2 others"
    assert looks == [
        f"keeping new code out of {tables}",
        f"looking whose code runs in {tables}",
        f"looking whose code runs in second@[{LAIR}]",
    ]
    assert [scene.stranger.took(name) for name in three] == [1, 1, 1]


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    "making, count",
    [
        ([queue()], 1),
        ([queue(seq="serial UNIQUE")], 1),
        ([queue(seq="bigint GENERATED ALWAYS AS IDENTITY")], 1),
        ([queue(id="uuid", headers="varchar", seq="bigserial")], 1),
        ([queue(extra="int")], 2),
        ([queue(extra="int"), "ALTER TABLE {t} DROP extra"], 2),
        ([queue(expires="timestamp DEFAULT now()")], 2),
        ([queue(seq="bigint NOT NULL DEFAULT 7")], 2),
        ([queue(), HARMLESS], 2),
        ([queue(), "CREATE INDEX ON {t} (length(headers))"], 2),
        ([queue(), "CREATE INDEX ON {t} (seq) WHERE seq > 0"], 2),
    ],
)
def test_a_table_that_is_nothing_but_a_queue_takes_one_look(scene, plain, looks, making, count):
    """A message goes in either way."""
    scene.stranger.arm("plain", "DROP TABLE {t}", *making, "GRANT INSERT ON {t} TO PUBLIC")
    scene.stranger.run(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {LAIR} TO PUBLIC")
    send(options(scene.job, errorQueue="error"), batch([1], Destination=[plain]))
    assert [each for each in looks if each.startswith("looking")] == [
        f"looking whose code runs in plain@[{LAIR}]"
    ] * count
    assert scene.stranger.took("plain") == 1


def test_of_several_tables_each_is_refused_for_its_own_reason(scene, three):
    """One cannot be locked, and one has a trigger."""
    first, second, third = (scene.stranger.address(name) for name in three)
    scene.stranger.run(f"REVOKE INSERT ON {first} FROM PUBLIC")
    scene.stranger.arm("third")
    rows = batch([1, 2, 3, 4], Destination=[first, second, third, BILLING])
    send(options(scene.job, errorQueue="error"), rows)
    assert (scene.stranger.ran(), [scene.stranger.took(name) for name in three]) == (False, [0, 1, 0])
    assert sent_to(scene.queue("billing")) == [4]
    failed = scene.failed()
    assert [*failed] == [1, 3]
    assert_says(failed[1], "first", "INSERT")
    assert_says(failed[3], "third", "its trigger 'evil' would run as this login")


@pytest.mark.parametrize("way", WAYS)
def test_an_ordinary_table_of_a_stranger_is_a_destination(scene, plain, way):
    scene.send(way, plain)
    assert (sent_to(scene.queue("billing")), scene.stranger.took("plain")) == ([1, 3], 1)
    assert scene.failed() == {}


@pytest.mark.skipif(version() < 18, reason="before version 18 the key is refused")
@pytest.mark.parametrize("later", ["", "DEFERRABLE INITIALLY DEFERRED"])
@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_key_of_a_stranger_changes_no_name_of_our_session(
    scene, plain, names, monkeypatch, way, later
):
    """The server looks into the other table as the stranger. Our look has no right to lock that, so an index
    may come behind it, and then his code runs in our session.
    """
    scene.stranger.run(f"ALTER TABLE {plain} ADD k int DEFAULT 1 REFERENCES lair.keys {later}")
    found = table_code.found

    def look(*arguments, **more):
        scene.stranger.run("DROP INDEX IF EXISTS lair.turning")
        try:
            return found(*arguments, **more)
        finally:
            scene.stranger.run(TURN)

    monkeypatch.setattr(table_code, "found", look)
    scene.send(way, plain)
    assert scene.admin.fetch("SELECT is_called FROM lair.looked") == [(True,)]  # else it would prove nothing
    assert (scene.stranger.ran(), scene.stranger.took("plain")) == (False, 1)
    assert scene.failed() == {}


# -- ways of their own ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEW)
def test_no_acknowledgement_goes_to_a_stranger(scene, caplog, name):
    """The message is handled all the same."""
    retried = {
        "NServiceBus.MessageId": message_id(1),
        "ServiceControl.Retry.AcknowledgementQueue": scene.stranger.address(name),
        "ServiceControl.Retry.UniqueMessageId": "31ec6466-6a86-9984-a9d7-1fd6c50fdea8",
    }
    rows = frame([outcome(1, outgoing("billing", 10), Headers=json.dumps(retried))])
    done = settled_all(options(scene.job, errorQueue="error"), rows)
    assert (done.sent, done.handled, done.failed) == (1, 1, 0)
    assert (scene.stranger.ran(), scene.stranger.took(name)) == (False, 0)
    assert sent_to(scene.queue("billing")) == [10]
    assert_says(next(each.getMessage() for each in caplog.records if name in each.getMessage()), name)


@pytest.fixture
def full(scene, plain):
    """A table of the stranger that takes no second row."""
    scene.stranger.run(f"CREATE UNIQUE INDEX ON {plain} ((1))")
    scene.admin.execute(f"INSERT INTO {plain} (id, headers) VALUES (gen_random_uuid(), '{{}}')")
    return plain


def test_an_event_that_its_one_subscriber_refuses_fails_alone(scene, full):
    """Its copy has an Id that nothing else can have, so an index that is there refuses it for good."""
    subscribed = SubscriptionRows(scene.admin)
    subscribed.add(full, EVENT)
    subscribed.add(BILLING, "Shop.Billed")
    given = options(scene.job, errorQueue="error")
    rows = batch([1, 2, 3], EventType=["Shop.Billed", EVENT, "Shop.Billed"])
    assert sent_all(given, rows) == Sent(sent=2, failed=1)
    assert (sent_to(scene.queue("billing")), [*scene.failed()]) == ([1, 3], [2])


def test_an_acknowledgement_that_an_index_refuses_ends_no_batch(scene, full, caplog):
    retried = {
        "NServiceBus.MessageId": message_id(1),
        "ServiceControl.Retry.AcknowledgementQueue": full,
        "ServiceControl.Retry.UniqueMessageId": "31ec6466-6a86-9984-a9d7-1fd6c50fdea8",
    }
    rows = frame([outcome(1, outgoing("billing", 10), Headers=json.dumps(retried))])
    assert settled_all(options(scene.job, errorQueue="error"), rows).handled == 1
    assert sent_to(scene.queue("billing")) == [10]
    assert "not_acknowledged queue=plain" in caplog.text


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_an_index_refuses_fails_alone(scene, full, way):
    scene.send(way, full)
    assert (sent_to(scene.queue("billing")), [*scene.failed()]) == ([1, 3], [2])


def test_a_message_that_its_table_refuses_ends_no_atomic_batch(scene, full):
    """It goes to the error queue when the batch is settled: a message has named the table, and no option."""
    orders = scene.queue("orders")
    orders.insert(1, start=2)
    with forwarding(scene.job, orders, full, errorQueue="error", commandTimeout="1s") as stream:
        stream.sink_says = {"errorQueue": "error", "endpoint": "Sales"}
        assert stream.trigger()
        stream.drain()
    assert sent_to(scene.queue("error")) == [2]


@pytest.mark.parametrize("name", FEW)
def test_no_retry_puts_a_message_back_to_a_stranger(scene, name):
    fail(scene.queue("error"), range(1, 3), BILLING)
    fail(scene.queue("error"), range(3, 5), scene.stranger.address(name))
    done = failed_retry.retry(ConnectionOptions.parse({"url": scene.job.url}), "error", Selection())
    assert (scene.stranger.ran(), scene.stranger.took(name)) == (False, 0)
    assert (sent_to(scene.queue("billing")), sent_to(scene.queue("error"))) == ([1, 2], [3, 4])
    (reason,) = done.stayed
    assert_says(reason, name)


@pytest.mark.parametrize("name", FEW)
def test_no_event_goes_to_a_stranger(scene, name):
    subscribed = SubscriptionRows(scene.admin)
    subscribed.add(BILLING, EVENT)
    subscribed.add(scene.stranger.address(name), EVENT)
    given = options(scene.job, errorQueue="error")
    assert sent_all(given, batch([1], EventType=EVENT)).failed == 1
    assert sent_to(scene.queue("billing")) == [1]
    assert_refused(scene, name, 1)


@pytest.mark.parametrize("name", FEW)
def test_no_stored_message_goes_to_a_stranger_in_the_other_database(scene, elsewhere, name):
    outgoing_queue = scene.queue("outgoing")
    store(outgoing_queue, [1, 3])
    store(outgoing_queue, [2], elsewhere.stranger.address(name))
    with running(scene.job, outgoing_queue, elsewhere.job.url) as job:
        assert drained(job) == Sent(sent=2, failed=1)
    assert sorted(sent_to(elsewhere.queue("billing"))) == [1, 3]
    assert (elsewhere.stranger.ran(), elsewhere.stranger.took(name)) == (False, 0)
    assert_says(scene.failed()[2], name)


# -- code that comes later than the first look ------------------------------------------------------


def test_a_sink_that_knows_the_table_looks_again(scene, plain):
    given = options(scene.job, errorQueue="error")
    destinations = Destinations(given)
    for number in (1, 2):
        with Sender(destinations) as sender:
            sender.send(composed(given, batch([number], Destination=plain), destinations=destinations))
        if number == 1:
            assert scene.stranger.took("plain") == 1
            scene.stranger.arm("plain")
    assert_refused(scene, "plain", reason="trigger")


def test_a_stream_that_has_moved_rows_on_looks_again(scene, plain):
    orders = scene.queue("orders")
    with streaming(scene.job, orders, errorQueue="error") as stream:
        for number in (2, 4):
            orders.insert_row(id=row_id(number), headers=on_its_way(number, plain), body=body(number))
            assert not stream.trigger()
            if number == 2:
                assert scene.stranger.took("plain") == 1
                scene.stranger.arm("plain")
    assert_refused(scene, "plain", 4, reason="trigger")


def test_a_mover_looks_again_in_each_of_its_portions(scene, plain, monkeypatch):
    monkeypatch.setattr(delayed_mover, "_PORTION", 100)
    for number in range(2, 242, 2):
        scene.wait(number, plain)
    with steps(), at_step(fail_points.DUE_MOVED, lambda: scene.stranger.arm("plain")):
        assert move(scene.job, "Sales") == (100, 20)
    assert (scene.stranger.ran(), scene.stranger.took("plain")) == (False, 100)
    failed = scene.failed()
    assert [*failed] == [*range(202, 242, 2)]
    assert_says(failed[202], "plain", "trigger")


def test_a_retry_looks_again_in_each_of_its_transactions(scene, plain):
    fail(scene.queue("error"), range(1, 4), plain)
    given = ConnectionOptions.parse({"url": scene.job.url})
    with steps(), at_step(fail_points.FAILED_COMMITTED, lambda: scene.stranger.arm("plain")):
        done = failed_retry.retry(given, "error", Selection(), rate=10)
    assert (scene.stranger.ran(), scene.stranger.took("plain"), done.count) == (False, 1, 1)
    assert sent_to(scene.queue("error")) == [2, 3]
    assert_says(next(iter(done.stayed)), "plain", "trigger")


# -- an atomic pipeline -----------------------------------------------------------------------------


@contextlib.contextmanager
def atomic(scene: Scene, to: str, *, errors: bool):
    """A pipeline that sends row 2 to billing, and the rows 1 and 3 to this address."""
    scene.queue("orders").insert(3, start=1)
    more = {"commandTimeout": "1s", **({"errorQueue": "error"} if errors else {})}
    with forwarding(scene.job, scene.queue("orders"), "billing", to, **more) as stream:
        stream.sink_says = {"endpoint": "Sales", **more}
        yield stream


@pytest.mark.parametrize("name", [*FEW, "rule also", "rule instead"])
def test_an_atomic_pipeline_stages_nothing_for_a_stranger(scene, name):
    with atomic(scene, scene.stranger.address(name), errors=True) as stream:
        stream.drain()
    assert (scene.stranger.ran(), scene.stranger.took(name)) == (False, 0)
    assert (sent_to(scene.queue("billing")), scene.queue("orders").count()) == ([2], 0)
    failed = scene.failed()
    assert sorted(failed) == [1, 3]
    assert_says(failed[1], name)


@pytest.mark.parametrize("name", FEW)
def test_an_atomic_pipeline_without_an_error_queue_sends_nothing_to_a_stranger(scene, name):
    with (
        atomic(scene, scene.stranger.address(name), errors=False) as stream,
        pytest.raises(SqlQueueError) as refusal,
    ):
        stream.drain()
    assert (scene.stranger.ran(), scene.stranger.took(name)) == (False, 0)
    assert (scene.queue("billing").count(), scene.queue("orders").count()) == (0, 3)
    assert_says(str(refusal.value), name)


@pytest.mark.parametrize("errors", [True, False], ids=["error queue", "none"])
@pytest.mark.parametrize("crashes", [False, True], ids=["settled", "recovered"])
def test_a_trigger_that_comes_between_sealing_and_settling_does_not_run(scene, plain, crashes, errors):
    with atomic(scene, plain, errors=errors) as stream:
        assert stream.trigger()
        scene.stranger.arm("plain")
        if crashes:
            stream.crash()
        with contextlib.nullcontext() if errors else pytest.raises(SqlQueueError, match=r"plain.* trigger"):
            stream.drain()
    assert (scene.stranger.ran(), scene.stranger.took("plain")) == (False, 0)
    expected = ([2], 0) if errors else ([], 3)
    assert (sent_to(scene.queue("billing")), scene.queue("orders").count()) == expected
    assert sorted(scene.failed()) == ([1, 3] if errors else [])


@pytest.mark.parametrize("view", [False, True], ids=["dropped", "a view"])
def test_a_table_that_is_gone_when_a_batch_is_settled_fails_its_messages_alone(scene, plain, view):
    with atomic(scene, plain, errors=True) as stream:
        assert stream.trigger()
        more = ["CREATE VIEW {t} AS SELECT * FROM lair.kept", trigger("INSTEAD OF INSERT")] if view else []
        scene.stranger.arm(
            "plain", "DROP TABLE {t}", *more, "GRANT INSERT ON ALL TABLES IN SCHEMA lair TO PUBLIC"
        )
        try:
            stream.drain()
        finally:
            scene.stranger.run(f"DROP {'VIEW' if view else 'TABLE'} IF EXISTS lair.plain")
    assert not scene.stranger.ran()
    assert (sent_to(scene.queue("billing")), scene.queue("orders").count()) == ([2], 0)
    assert sorted(scene.failed()) == [1, 3]


# -- code that depends on nothing but its arguments, and takes long ---------------------------------

#: Seconds for each row; a test gives a statement less.
LONG = " + ".join(["length(repeat(headers, 300000))::bigint"] * 60)
QUICK = {"errorQueue": "error", "commandTimeout": "500ms"}


@pytest.fixture
def slow(scene, plain):
    scene.stranger.arm("plain", f"ALTER TABLE {{t}} ADD CHECK ({LONG} > 0)")
    return plain


def assert_slow_refused(scene: Scene, *numbers: int) -> None:
    assert (sent_to(scene.queue("error")), scene.stranger.took("plain")) == ([*numbers], 0)


@pytest.mark.tier("all")
def test_a_check_that_takes_long_fails_its_message_alone(scene, slow):
    done = sent_all(options(scene.job, **QUICK), batch([1, 2, 3], Destination=["billing", slow, "billing"]))
    assert (done.sent, done.failed, sent_to(scene.queue("billing"))) == (2, 1, [1, 3])
    assert_slow_refused(scene, 2)


@pytest.mark.tier("all")
def test_a_check_that_takes_long_and_fails_is_not_tried_for_each_message(scene, plain):
    """For eight messages that would be fifteen times."""
    long = " + ".join(["length(repeat(headers, 300000))::bigint"] * 6)
    scene.stranger.arm("plain", f"ALTER TABLE {{t}} ADD CHECK ({long} < 0)")
    numbers = list(range(1, 9))
    began = time.monotonic()
    done = sent_all(options(scene.job, errorQueue="error"), batch(numbers, Destination=[plain] * 8))
    once = time.monotonic() - began
    assert (done.sent, done.failed) == (0, 8)
    began = time.monotonic()
    sent_all(options(scene.job, errorQueue="error", outbox="none"), batch([1], Destination=[plain]))
    assert once < 5 * (time.monotonic() - began)


@pytest.mark.tier("all")
def test_a_check_that_takes_long_holds_up_no_stream(scene, slow):
    for number in (1, 2, 3):
        scene.queue("orders").insert_row(
            id=row_id(number), headers=on_its_way(number, slow), body=body(number)
        )
    with streaming(scene.job, scene.queue("orders"), errorQueue="error", commandTimeout="500ms") as stream:
        stream.drain()
    assert sent_to(scene.queue("billing")) == [1, 3]
    assert_slow_refused(scene, 2)


@pytest.mark.tier("all")
def test_a_check_that_takes_long_holds_up_no_mover(scene, slow):
    for number in (1, 2, 3):
        scene.wait(number, slow)
    given = ConnectionOptions.parse({"url": scene.job.url, "commandTimeout": QUICK["commandTimeout"]})
    owner = Table(table="Sales", schema="public")
    moving = DelayedMover(options=given, owner=owner, error_queue="error", chosen=[owner])
    try:
        assert moving.move_due() == Sent(sent=2, failed=1)
    finally:
        moving.close()
    assert_slow_refused(scene, 2)


@pytest.mark.tier("all")
def test_a_check_that_takes_long_holds_up_no_retry(scene, slow):
    fail(scene.queue("error"), range(1, 2), BILLING)
    fail(scene.queue("error"), range(2, 3), slow)
    given = ConnectionOptions.parse({"url": scene.job.url, "commandTimeout": QUICK["commandTimeout"]})
    done = failed_retry.retry(given, "error", Selection())
    assert (done.count, sum(done.stayed.values())) == (1, 1)
    assert_slow_refused(scene, 2)


@pytest.mark.tier("all")
def test_a_check_that_takes_long_holds_up_no_acknowledgement(scene, slow):
    retried = {
        "NServiceBus.MessageId": message_id(1),
        "ServiceControl.Retry.AcknowledgementQueue": slow,
        "ServiceControl.Retry.UniqueMessageId": "x" * 500,
    }
    rows = frame([outcome(1, outgoing("billing", 10), Headers=json.dumps(retried))])
    assert settled_all(options(scene.job, **QUICK), rows).failed == 0
    assert sent_to(scene.queue("billing")) == [10]
    assert_slow_refused(scene)


@pytest.mark.tier("all")
@pytest.mark.parametrize("later", [False, True], ids=["staged", "settled"])
def test_a_check_that_takes_long_holds_up_no_atomic_pipeline(scene, plain, later):
    """It is there before a batch is staged, or comes after the batch was sealed."""
    slow = f"ALTER TABLE {{t}} ADD CHECK ({LONG} > 0)"
    with atomic(scene, plain, errors=True) as stream:
        if not later:
            scene.stranger.arm("plain", slow)
        assert stream.trigger()
        if later:
            scene.stranger.arm("plain", slow)
        stream.drain()
    assert sent_to(scene.queue("billing")) == [2]
    assert_slow_refused(scene, 1, 3)


def test_a_trigger_does_not_run_for_a_batch_without_rows(scene, plain):
    """Which waits on the stage until the source is asked for more."""
    rows = [
        {
            "Headers": json.dumps({"NServiceBus.MessageId": message_id(n)}),
            "Body": body(n),
            "RowVersion": n,
            "Id": str(row_id(n)),
        }
        for n in (1, 2, 3)
    ]
    with forwarding(scene.job, scene.queue("orders"), "billing", plain, errorQueue="error") as stream:
        stream.sink_says = {"errorQueue": "error", "endpoint": "Sales"}
        stream.construct_without_rows(rows)
        stream.run()
        scene.stranger.arm("plain")
        stream.drain()
    assert (scene.stranger.ran(), scene.stranger.took("plain")) == (False, 0)
    assert sent_to(scene.queue("billing")) == [2]
    assert sorted(scene.failed()) == [1, 3]


# -- whom we trust ----------------------------------------------------------------------------------


def test_the_role_of_a_stranger_that_our_login_has_makes_him_no_friend(scene):
    """Before version 15 each login may give its own role away."""
    name = FEW[0]
    scene.admin.execute(f"GRANT {ATTACKER} TO job")
    try:
        scene.send("sink", scene.stranger.address(name))
    finally:
        scene.admin.execute(f"REVOKE {ATTACKER} FROM job")
    assert_refused(scene, name)


@pytest.mark.parametrize("queue", ["errorQueue", "auditQueue"])
def test_what_an_option_names_is_not_looked_at(scene, queue):
    """The tables of those who watch a system may have triggers, and belong to another login."""
    scene.admin.execute("CREATE SCHEMA watched AUTHORIZATION monitor")
    try:
        watched = scene.admin.create_queue("errors", schema="watched")
        scene.admin.execute("ALTER TABLE watched.errors OWNER TO monitor")
        scene.admin.execute(
            "CREATE FUNCTION watched.seen() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.headers := replace(NEW.headers, '{', '{\"Seen\":\"yes\",'); RETURN NEW; END $$"
        )
        scene.admin.execute(
            "CREATE TRIGGER seen BEFORE INSERT ON watched.errors FOR EACH ROW EXECUTE FUNCTION watched.seen()"
        )
        for line in scripts.grants("postgresql", "job", "sender", ["errors@[watched]"]).splitlines():
            scene.admin.execute(line)
        given = options(scene.job, **{"errorQueue": "error", queue: "errors@[watched]"})
        done = settled_all(given, frame([outcome(1, outgoing("gone", 10)), outcome(2)]))
        assert (done.sent, done.failed) == (0, 1)
        assert [json.loads(row.headers)["Seen"] for row in watched.rows()] == ["yes"]
    finally:
        scene.admin.execute("DROP SCHEMA watched CASCADE")
