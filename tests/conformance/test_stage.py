"""The stage of an atomic pipeline: what a batch sends goes out with its claim, all or nothing."""

import contextlib
import dataclasses
import itertools
import re
import shlex
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables, queue_tables
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, ConnectionLost, QueueError
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY, ConnectionOptions, SourceOptions
from sqlqueue_spark.receive import Receiver
from sqlqueue_spark.receive.offset import INITIAL, to_json
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.tables.database_facts import database
from sqlqueue_spark.tables.stages.stage import Stage, StageRun
from sqlqueue_spark.tables.stages.stage_mark import Mark
from sqlqueue_spark.tables.stages.stage_name import table_of
from tests.support import tampering
from tests.support.driver import STEPS, at_step, crash
from tests.support.forwarding import NAME, STAGE, forwarding, staged
from tests.support.messages import message_id, message_ids
from tests.support.postgresql import PostgresEngine
from tests.support.proxy import proxied
from tests.support.sending import PLAIN, Outgoing, batch, composed, ids_in, options, outgoing_rows, send
from tests.support.stages import gives_way, opened
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.tier("all", variants="nightly"),
    pytest.mark.needs("reads_json_as_documented"),
    gives_way,
]

SMALL = {"maxMessagesPerTrigger": "70", "minMessagesPerPartition": "20", "maxConcurrency": "3"}


@pytest.fixture
def billing(engine):
    """An empty queue called billing."""
    return engine.create_queue("billing")


def stage_table(engine, stream):
    return table_of(options(engine, queue="billing", transactionMode=ATOMIC, stream=stream))


def numbered(engine, numbers, queue="billing"):
    """The canonical name of a destination, and messages for it as they are staged."""
    given = engine.queue(queue)
    ask = {"postgresql": "SELECT current_database()", "sqlserver": "SELECT DB_NAME()"}[engine.name]
    name = f"{given.address}@[{engine.fetch(ask)[0][0]}]"
    rows = [
        Outgoing(uuid.uuid4().bytes, f'{{"NServiceBus.MessageId":"{message_id(number)}"}}', b"x")
        for number in numbers
    ]
    return name, {name: outgoing_rows(rows)}


#: A stage's numbers begin again.
BEGIN_AGAIN = {
    "postgresql": f"""SELECT setval(pg_get_serial_sequence('"{STAGE}"', 'seq'), 1, false)""",
    "sqlserver": f"DBCC CHECKIDENT('[{STAGE}]', RESEED, 0)",
}


def test_a_batch_is_sent_although_the_numbers_of_its_stage_begin_again(engine, queue, billing):
    """Its rows then stand below the mark that was there before them."""
    queue.insert(30)
    with forwarding(engine, queue, maxMessagesPerTrigger="10") as stream:
        begin_again = BEGIN_AGAIN[engine.name]
        with at_step(fail_points.HALF_READ, lambda: engine.fetch(begin_again), on={2}) as done:
            stream.drain()
    found = sorted(ids_in(billing)), queue.count(), staged(engine)
    assert (done, found) == ([2], (message_ids(range(30)), 0, 0))


def test_columns_that_a_queue_has_beside_those_of_its_engine_are_left_alone(postgresql):
    """They are those of queues on another engine, or have their names."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    billing.execute(
        'ALTER TABLE {table} ADD correlationid text, ADD "ReplyToAddress" text, ADD recoverable boolean '
        "DEFAULT true"
    )
    queue.insert(10)
    with forwarding(postgresql, queue) as stream:
        stream.drain()
    others = postgresql.fetch('SELECT DISTINCT correlationid, "ReplyToAddress", recoverable FROM billing')
    assert (ids_in(billing), others) == (message_ids(range(10)), [(None, None, True)])


# -- the table ------------------------------------------------------------------------------------


def test_only_rows_of_sealed_tasks_go_out_in_their_order(engine, billing):
    with opened(engine) as (connection, found):
        name, _ = numbered(engine, [])
        with connection.transaction():
            run = found.open("claim")
        for task, numbers in (("a", range(0, 10, 2)), ("lost", range(100, 110)), ("b", range(1, 10, 2))):
            with connection.transaction():
                found.add(task, numbered(engine, numbers)[1])
        with connection.transaction():
            found.seal({"a": 5, "b": 5}, [name], run=run)
            assert found.mark() == Mark(
                claim="claim", run=run, sealed=True, tasks={"a": 5, "b": 5}, destinations=(name,)
            )
        assert (billing.count(), staged(engine)) == (0, 21)
        with connection.transaction():
            assert found.move("claim") == 10
        assert ids_in(billing) == message_ids([*range(0, 10, 2), *range(1, 10, 2)])
        assert staged(engine) == 0
        with connection.transaction():
            assert found.move("claim") is None
    assert billing.count() == 10


def test_two_sinks_of_one_batch_seal_what_is_theirs(engine, billing):
    shipping = engine.create_queue("shipping")
    with opened(engine) as (connection, found), connection.transaction():
        run = found.open("claim")
        for task, queue in (("a", "billing"), ("b", "shipping"), ("c", "billing")):
            name, rows = numbered(engine, range(3), queue)
            found.add(task, rows)
            found.seal({task: 3}, [name], run=run)
        mark = found.mark()
        assert mark is not None
        assert (mark.tasks, len(mark.destinations)) == ({"a": 3, "b": 3, "c": 3}, 2)
        assert found.move("claim") == 9
    assert ids_in(billing) == message_ids([0, 1, 2, 0, 1, 2])
    assert ids_in(shipping) == message_ids(range(3))


def test_what_a_call_that_raised_has_sealed_counts_no_more_when_it_is_called_again(engine, billing):
    """The answer to its commit was lost. Other calls count still."""
    with opened(engine) as (connection, found), connection.transaction():
        run = found.open("claim")
        for task, numbers, void in (
            ("other", [7], ()),
            ("raised", [0, 1], ()),
            ("again", [0, 1], ["raised"]),
        ):
            name, rows = numbered(engine, numbers)
            found.add(task, rows)
            found.seal({task: len(numbers)}, [name], run=run, void=void)
        assert found.move("claim") == 3
    assert ids_in(billing) == message_ids([7, 0, 1])


def test_the_stage_of_another_claim_stays(engine, billing):
    with opened(engine) as (connection, found), connection.transaction():
        name, rows = numbered(engine, range(3))
        run = found.open("theirs")
        found.add("a", rows)
        found.seal({"a": 3}, [name], run=run)
        assert found.move("ours") is None
    assert (billing.count(), staged(engine)) == (0, 4)
    with opened(engine) as (connection, found), connection.transaction():
        assert found.move("theirs") == 3
    assert ids_in(billing) == message_ids(range(3))


def test_opening_empties_the_stage(engine, billing):
    """Late rows of before never count."""
    with opened(engine) as (connection, found), connection.transaction():
        name, rows = numbered(engine, range(3))
        run = found.open("first")
        found.add("a", rows)
        found.seal({"a": 3}, [name], run=run)
        run = found.open("second")
        found.add("a twin of before", rows)
        found.add("b", numbered(engine, [7])[1])
        found.seal({"b": 1}, [name], run=run)
        assert found.move("second") == 1
    assert ids_in(billing) == message_ids([7])


def test_a_run_whose_batch_began_again_stages_in_vain(engine, billing):
    """A driver that lost its database but not its tasks: its batch runs again elsewhere,
    under the same claim.
    """
    with opened(engine) as (connection, found), connection.transaction():
        name, rows = numbered(engine, range(3))
        outlived = found.open("claim")
        found.add("a", rows)
        run = found.open("claim")
        found.add("a too late", rows)
        with pytest.raises(ClaimLost, match="was opened again while this batch ran"):
            found.seal({"a too late": 3}, [name], run=outlived)
        found.add("b", rows)
        found.seal({"b": 3}, [name], run=run)
        assert found.move("claim") == 3
    assert ids_in(billing) == message_ids(range(3))


def test_a_sink_that_outlived_its_driver_seals_in_vain(engine, billing):
    """A batch without rows of the queue, which the driver that came after has staged and sent."""
    with opened(engine) as (connection, found), connection.transaction():
        found.begin()
        name, rows = numbered(engine, range(3))
        outlived = found.mark()
        assert outlived is not None
        for task in ("a", "a too late"):
            found.add(task, rows)
        found.seal({"a": 3}, [name], run=outlived.run)
        assert found.move_waiting() == 3
        with pytest.raises(ClaimLost, match="was opened again while this batch ran"):
            found.seal({"a too late": 3}, [name], run=outlived.run)
    assert ids_in(billing) == message_ids(range(3))


def test_a_rolled_back_move_leaves_rows_on_the_stage(engine, billing):
    with opened(engine) as (connection, found):
        name, rows = numbered(engine, range(3))
        with connection.transaction():
            run = found.open("claim")
            found.add("a", rows)
            found.seal({"a": 3}, [name], run=run)
        assert found.move("claim") == 3
        connection.rollback()
        assert (billing.count(), staged(engine)) == (0, 4)
        with connection.transaction():
            assert found.move("claim") == 3
    assert billing.count() == 3


def test_many_rows_go_out_once_in_their_order(engine, billing):
    """More than a statement takes."""
    with opened(engine) as (connection, found), connection.transaction():
        name, rows = numbered(engine, range(9_001))
        run = found.open("claim")
        for start in range(0, 9_001, 4_000):
            found.add("a", {name: rows[name].slice(start, 4_000)})
        found.seal({"a": 9_001}, [name], run=run)
        assert found.move("claim") == 9_001
    assert ids_in(billing) == message_ids(range(9_001))


def test_messages_to_a_dropped_queue_stay_staged(engine, billing):
    with opened(engine) as (connection, found):
        name, rows = numbered(engine, range(3))
        with connection.transaction():
            run = found.open("claim")
            found.add("a", rows)
            found.seal({"a": 3}, [name], run=run)
        tampering.drop(billing)
        with pytest.raises(QueueError) as caught, connection.transaction():
            found.move("claim")
        assert str(caught.value) == (
            f"The destination {name} is not there any more, and its messages wait on the stage "
            f"{STAGE}@[{engine.default_schema}]; create it again with: sqlqueue create {name!r}, "
            "and start the stream."
        )
        assert staged(engine) == 4
        again = engine.create_queue("billing")
        with connection.transaction():
            assert found.move("claim") == 3
    assert ids_in(again) == message_ids(range(3))


def test_a_message_on_the_stage_keeps_all_that_it_has(engine, queue, billing):
    """What went over the stage is what a sender without one writes."""
    end = datetime(2031, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC)
    columns = {
        "Id": "0000000a-0000-4000-8000-00000000000b",
        "Headers": (
            '{"NServiceBus.ConversationId":"größe \\ud83d\\ude00","NServiceBus.TimeSent":"t","Url":"a\\/b"}'
        ),
        "CorrelationId": "k",
        "ReplyToAddress": "Sales",
        "Expires": end,
    }
    rows = batch(range(1), **columns)
    send(options(engine, queue="orders", outbox="none"), rows)
    atomic = options(engine, queue="billing", transactionMode=ATOMIC, stream="Sales")
    with opened(engine) as (connection, _):
        found = Stage(connection, stage_table(engine, "Sales"))
        with connection.transaction():
            found.create()
            run = found.open("claim")
            known = Destinations(atomic)  # a task is told which database it reaches
            known.places.databases[known.places.at_home] = database(connection)
        seal(atomic, [stage(known, composed(atomic, rows, destinations=known))], StageRun(name=run))
        with connection.transaction():
            assert found.move("claim") == 1
    assert [dataclasses.replace(row, row_version=1) for row in billing.rows()] == queue.rows()
    assert queue.rows()[0].expires == end.replace(tzinfo=None)

    # A time to be received counts from when it was staged.
    before = datetime.now(UTC).replace(tzinfo=None)
    with opened(engine) as (connection, _):
        with connection.transaction():
            found = Stage(connection, stage_table(engine, "Sales"))
            run = found.open("next")
        hour = batch([2], TimeToBeReceived=timedelta(hours=1))
        seal(atomic, [stage(Destinations(atomic), composed(atomic, hour))], StageRun(name=run))
        with connection.transaction():
            assert found.move("next") == 1
    lasts = billing.rows()[1].expires - before
    assert timedelta(minutes=59) < lasts < timedelta(minutes=61)


def test_messages_to_two_addresses_keep_their_order(engine, queue, billing):
    """Of one table. Some have a body and an end, some have none; another queue's stand between them."""
    end = datetime(2031, 5, 6, 7, 8, 9, 250_000, tzinfo=UTC)
    to = ["billing", f"billing@[{engine.default_schema}]", "orders"]
    rows = batch(
        range(12),
        Destination=[to[number % 3] for number in range(12)],
        Body=[None if number % 4 == 0 else bytes(number) for number in range(12)],
        Expires=[end if number % 5 == 0 else None for number in range(12)],
    )
    atomic = options(engine, queue="billing", transactionMode=ATOMIC, stream=NAME)
    with opened(engine) as (connection, found):
        with connection.transaction():
            run = found.open("claim")
        seal(atomic, [stage(Destinations(atomic), composed(atomic, rows))], StageRun(name=run))
        with connection.transaction():
            assert found.move("claim") == 12
    ours, others = [n for n in range(12) if n % 3 != 2], range(2, 12, 3)
    assert (ids_in(billing), ids_in(queue)) == (message_ids(ours), message_ids(others))
    assert [(row.body, row.expires) for row in billing.rows()] == [
        (b"" if n % 4 == 0 else bytes(n), end.replace(tzinfo=None) if n % 5 == 0 else None) for n in ours
    ]


# -- refusals -------------------------------------------------------------------------------------

UNOPENED = (
    "The stage Forward.Outgoing@[{schema}] belongs to no batch: nothing would send what is put there; "
    "give the source the sink's stream and database, and transactionMode sendsAtomicWithReceive."
    " Where the mode or the stream was changed while a batch had not ended, "
    "start once with those of before; where the database has lost what was committed, "
    "give a new checkpoint folder (a state that the query keeps is lost)."
)


@pytest.mark.parametrize("created", [True, False], ids=["a stage that no source opened", "no stage"])
def test_a_sink_whose_source_is_not_atomic_is_told_so(engine, queue, created):
    atomic = options(engine, transactionMode=ATOMIC, stream=NAME)
    if created:
        with opened(engine):
            pass
    with pytest.raises(ConfigurationError) as caught:
        prepare(Destinations(atomic), PLAIN, ["orders"])
    assert str(caught.value) == UNOPENED.format(schema=engine.default_schema)
    if created:
        with pytest.raises(ConfigurationError) as caught:
            seal(
                atomic,
                [stage(Destinations(atomic), composed(atomic, batch(range(3))))],
                StageRun(name="any"),
            )
        assert str(caught.value) == UNOPENED.format(schema=engine.default_schema)
    assert queue.count() == 0


def test_a_destination_in_another_database_is_refused(engine, queue, elsewhere):
    elsewhere.create_queue("billing")
    named = {"endpoint.billing.url": elsewhere.url}
    atomic = options(engine, transactionMode=ATOMIC, stream=NAME, **named)
    with pytest.raises(ConfigurationError) as caught:
        prepare(Destinations(atomic), PLAIN, ["orders", "billing"])
    assert str(caught.value) == (
        "The destination 'billing' lies in another database, which transactionMode sendsAtomicWithReceive "
        "cannot reach in one transaction; send to it with receiveOnly and an outbox, or name a queue of this "
        "database as storeAndForward."
    )


@pytest.mark.parametrize("name", ["x" * 41, "é" * 21])
def test_a_stream_with_too_long_a_name_is_refused(name):
    """Too long for that of its stage."""
    given = {"url": "postgresql://h/d", "queue": "orders", "transactionMode": ATOMIC, "stream": name}
    with pytest.raises(ConfigurationError) as caught:
        Receiver(SourceOptions.parse(given))
    assert str(caught.value) == (
        f"The option stream is {name!r}, which is longer than the 40 bytes that leave room for "
        f"the name of the table {name}.Outgoing; shorten it."
    )


@pytest.mark.needs("quotes_brackets")
def test_the_longest_and_oddest_name_of_a_stream_works(engine, queue, billing):
    queue.insert(3)
    with forwarding(engine, queue, stream="my]odd\"'; stream" + "x" * 24) as stream:
        stream.drain()
    assert ids_in(billing) == message_ids(range(3))


@pytest.mark.parametrize("name", ["my@pipe", "{", '{"table": "x", "schema": "public"}'])
def test_a_stream_may_have_any_name_of_a_table(engine, queue, billing, name):
    queue.insert(10)
    with forwarding(engine, queue, stream=name, maxMessagesPerTrigger="5") as stream:
        assert stream.trigger()
        stream.crash()
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids(range(10)), 0)


@pytest.mark.parametrize("name", ["bill@ing", 'bill"@ing', "it's@here"])
def test_a_quoted_name_with_an_at_sign_works(postgresql, name):
    """To and from it; the transport's own form, which is the only one that the name has."""
    address = '"public"."{}"'.format(name.replace('"', '""'))
    source, destination = postgresql.create_queue(f"{name} from"), postgresql.create_queue(name)
    source.insert(10)
    with forwarding(postgresql, source, address, queue=f'{address[:-1]} from"') as stream:
        assert stream.trigger()
        stream.crash()
        stream.drain()
    assert (ids_in(destination), source.count(), staged(postgresql)) == (message_ids(range(10)), 0, 0)


def test_a_missing_table_is_named_as_a_shell_takes_it(postgresql):
    """What is pasted after the sentence says it creates the table that was meant."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("it's@here")
    queue.insert(10)
    with forwarding(postgresql, queue, '"public"."it\'s@here"', commandTimeout="1s") as stream:
        assert stream.trigger()
        tampering.drop(billing)
        with pytest.raises(QueueError) as caught:
            stream.trigger()
        stream.crash()
        (command,) = re.findall(r"create it again with: (.*), and start the stream", str(caught.value))
        program, verb, address = shlex.split(command)
        assert (program, verb, address) == ("sqlqueue", "create", '"public"."it\'s@here"')
        queue_tables.create(ConnectionOptions.parse({"url": postgresql.url}), [address])
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids(range(10)), 0)


# -- with its claim -------------------------------------------------------------------------------


def test_a_batch_arrives_only_when_its_claim_ends(engine, queue, billing):
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        assert stream.trigger()
        assert (billing.count(), staged(engine)) == (0, 11)
        assert not stream.trigger()
        assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(10)), 0, 0)


def test_each_destination_gets_its_batches_in_order(engine, queue, billing):
    """Each message arrives once."""
    shipping = engine.create_queue("shipping", schema="far")
    queue.insert(300)
    with forwarding(engine, queue, "billing", shipping.address, **SMALL) as stream:
        stream.drain()
    assert ids_in(shipping) == message_ids(range(0, 300, 2))
    assert ids_in(billing) == message_ids(range(1, 300, 2))
    assert (queue.count(), staged(engine)) == (0, 0)


def test_a_pipeline_may_send_to_its_own_queue(engine, queue):
    """Each message goes round once a batch; nothing is lost on the way."""
    queue.insert(20)
    with forwarding(engine, queue, "orders") as stream:
        for _ in range(3):
            assert stream.trigger()
        stream.stop()
    assert ids_in(queue) == message_ids(range(20))
    assert min(queue.row_versions()) > 20


EVERY_STEP = (*STEPS, fail_points.ROWS_STAGED, fail_points.STAGE_SEALED)


@pytest.mark.parametrize("step", EVERY_STEP)
def test_each_message_arrives_once_whatever_the_crash(engine, queue, billing, step):
    """Other limits after each crash: the same claim once more would hide what was not deleted."""
    shipping = engine.create_queue("shipping")
    queue.insert(300)
    with forwarding(engine, queue, "billing", "shipping", **SMALL) as stream:
        limits = itertools.cycle((40, 100))

        def die():
            stream.options = dataclasses.replace(stream.options, max_messages_per_trigger=next(limits))
            crash()

        with at_step(step, die, on={1, 2, 4}):
            stream.drain()
        assert stream.crashes == 3
    assert (sorted(ids_in(shipping)), sorted(ids_in(billing))) == (
        message_ids(range(0, 300, 2)),
        message_ids(range(1, 300, 2)),
    )
    assert (queue.count(), staged(engine)) == (0, 0)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=pytest.mark.tier("nightly" if number % 2 else "all"))
        for number, step in enumerate(EVERY_STEP)
    ],
)
def test_cut_connections_lose_and_double_nothing(engine, queue, billing, step):
    """At any step."""
    queue.insert(100)
    with forwarding(engine, queue, maxMessagesPerTrigger="30", minMessagesPerPartition="10") as stream:
        with at_step(step, engine.cut_connections, on={1, 3}) as cuts:
            stream.drain(survives=Exception)
        assert cuts == [1, 3]
    assert (sorted(ids_in(billing)), queue.count(), staged(engine)) == (message_ids(range(100)), 0, 0)


def test_a_logged_batch_goes_out_with_its_claim(postgresql, monkeypatch):
    """Of a dead process, in one transaction: until it is committed, all see the messages at their source."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(10)
    seen, move = [], Stage.move

    def move_and_look(self, claim):
        moved = move(self, claim)
        seen.append((moved, queue.count(), billing.count()))
        return moved

    with forwarding(postgresql, queue) as stream:
        assert stream.trigger()
        stream.crash()
        assert (queue.count(), billing.count(), staged(postgresql)) == (10, 0, 11)
        monkeypatch.setattr(Stage, "move", move_and_look)
        assert not stream.trigger()
    assert seen == [(10, 10, 0)]
    assert (queue.count(), ids_in(billing), staged(postgresql)) == (0, message_ids(range(10)), 0)


def test_a_batch_that_was_not_logged_is_staged_anew(engine, queue, billing):
    """A dead process had sealed it; what that has staged is cleared."""
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        with at_step(fail_points.STAGE_SEALED, crash), pytest.raises(BaseException, match=r"^$"):
            stream.trigger()
        stream.crash()
        assert (billing.count(), staged(engine)) == (0, 11)
        assert queue.take(4).row_version == 4  # another receiver, in between
        stream.drain()
    assert ids_in(billing) == message_ids([each for each in range(10) if each != 3])
    assert (queue.count(), staged(engine)) == (0, 0)


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
@pytest.mark.parametrize("logged", [True, False], ids=["logged", "not logged"])
def test_another_mode_sends_a_batch_that_was_staged(engine, queue, billing, mode, logged):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        if logged:
            assert stream.trigger()
        else:
            with at_step(fail_points.STAGE_SEALED, crash), pytest.raises(BaseException, match=r"^$"):
                stream.trigger()
        stream.crash()
        stream.options = dataclasses.replace(stream.options, transaction_mode=mode)
        queue.insert(5, start=10)
        stream.drain()
    assert (sorted(ids_in(billing)), queue.count()) == (message_ids(range(15)), 0)
    assert staged(engine) == 0


def test_an_atomic_start_finishes_another_modes_batch(engine, queue, billing):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    queue.insert(10)
    with forwarding(engine, queue, transactionMode="receiveOnly") as stream:
        assert stream.trigger()
        stream.crash()
        stream.options = dataclasses.replace(stream.options, transaction_mode=ATOMIC)
        queue.insert(5, start=10)
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(15)), 0, 0)


@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_a_broken_settling_commit_sends_the_batch_once(postgresql, deliver):
    """The connection breaks at the commit."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(50)
    with (
        proxied(postgresql.url) as proxy,
        forwarding(PostgresEngine(proxy.url), queue, maxMessagesPerTrigger="20") as stream,
        at_step(fail_points.DELETED, lambda: proxy.cut_at(b"COMMIT", deliver=deliver)),
    ):
        stream.drain()
        assert (proxy.cuts, stream.crashes) == (1, 0)
    assert (ids_in(billing), queue.count(), staged(postgresql)) == (message_ids(range(50)), 0, 0)


@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "commit lost"])
def test_a_chunk_in_doubt_fails_its_task_and_counts_once(postgresql, deliver):
    """It is not known whether it is staged; staged again under the same name it could go out twice."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(50)
    with (
        proxied(postgresql.url) as proxy,
        forwarding(PostgresEngine(proxy.url), queue, maxMessagesPerTrigger="20") as stream,
        at_step(fail_points.ROWS_STAGED, lambda: proxy.cut_at(b"COMMIT", deliver=deliver)),
    ):
        with pytest.raises(ConnectionLost, match=r"was lost while committing"):
            stream.drain()
        stream.crash()
        stream.drain()
        assert proxy.cuts == 1
    assert (ids_in(billing), queue.count(), staged(postgresql)) == (message_ids(range(50)), 0, 0)


@pytest.mark.parametrize("word", [b"COPY", b"FROM STDIN", b"SET mark"], ids=["reading", "staging", "sealing"])
@pytest.mark.parametrize("deliver", [True, False], ids=["answer lost", "statement lost"])
def test_a_broken_connection_is_made_again(postgresql, word, deliver):
    """It breaks while reading, staging or sealing, before the commit."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(50)
    with (
        proxied(postgresql.url) as proxy,
        forwarding(PostgresEngine(proxy.url), queue, maxMessagesPerTrigger="20") as stream,
    ):
        assert stream.construct()
        proxy.cut_at(word, deliver=deliver)
        stream.drain()
        assert (proxy.cuts, stream.crashes) == (1, 0)
    assert (ids_in(billing), queue.count(), staged(postgresql)) == (message_ids(range(50)), 0, 0)


def test_a_message_is_always_seen_in_just_one_queue(postgresql):
    """One statement looks at both, again and again, while atomic batches run."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(300)
    both = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM billing)"
    seen: list[Any] = []
    done = threading.Event()

    def look():
        with psycopg.connect(postgresql.url, autocommit=True) as connection:
            while not done.is_set():
                seen.append(connection.execute(both).fetchone())

    def looked():
        """Wait for a look that began after now; the one under way may not have."""
        before = len(seen)
        eventually(lambda: len(seen) > before + 1)

    with ThreadPoolExecutor(1) as pool, forwarding(postgresql, queue, maxMessagesPerTrigger="20") as stream:
        watcher = pool.submit(look)
        try:
            looked()
            busy = True
            while busy:
                busy = stream.trigger()
                looked()
        finally:
            done.set()
        watcher.result()
    assert {source + destination for source, destination in seen} == {300}
    assert {source for source, _ in seen} == {*range(0, 301, 20)}
    assert ids_in(billing) == message_ids(range(300))


def emptied(engine):
    """An operator has emptied the stage by hand."""
    engine.execute(
        {"postgresql": f'TRUNCATE TABLE "{STAGE}"', "sqlserver": f"TRUNCATE TABLE [{STAGE}]"}[engine.name]
    )


def test_a_second_source_of_a_stream_is_refused(engine, queue, billing):
    """Before it stages or logs."""
    invoices = engine.create_queue("invoices")
    queue.insert(10)
    invoices.insert(10, start=10)
    short = {"lockTimeout": "1s"}  # the session of a source that was stopped may take a moment to end
    with forwarding(engine, queue) as first, forwarding(engine, invoices, **short) as second:
        assert first.trigger()
        said = (
            rf"^Two sources use the stage Forward.Outgoing@\[{engine.default_schema}\]: it is held by "
            r"(session \d+|another session of the database). Give each query a stream of its own, "
            r"all sources of one query but one receiveOnly, and see that the "
            r"stream runs only once; if that is what a dead machine has left, end that session, or start "
            r"again in a few minutes.$"
        )
        with pytest.raises(ConfigurationError, match=said):
            second.trigger()
        assert (second.offsets, invoices.count(), staged(engine)) == ([], 10, 11)
        first.drain()
        first.stop()
        second.drain()
    assert (ids_in(billing), queue.count(), invoices.count()) == (message_ids(range(20)), 0, 0)


def test_a_source_before_spark_4_2_respects_a_held_stage(engine, queue, billing):
    """It logs no batch: it does not know yet which was the last one, and looks at nothing on the stage."""
    invoices = engine.create_queue("invoices")
    invoices.insert(10)
    with forwarding(engine, queue) as first, forwarding(engine, invoices, lockTimeout="300ms") as second:
        assert first.trigger()
        with pytest.raises(ConfigurationError, match=r"^Two sources use the stage "):
            second.receiver.latest(INITIAL, 10, sure=False)
        alone = dataclasses.replace(second.options, transaction_mode=RECEIVE_ONLY, stream=None)
        with contextlib.closing(Receiver(alone)) as another:
            assert to_json(another.latest(None, None))["rows"] == 10
    assert (billing.count(), invoices.count()) == (0, 10)


def test_a_held_stage_stops_only_a_batch_with_rows(engine, queue, billing):
    """Two sources hold it in turn after a cut; one without rows goes on in another mode."""
    invoices = engine.create_queue("invoices")
    with (
        forwarding(engine, queue) as first,
        forwarding(engine, invoices) as empty,
        forwarding(engine, invoices) as full,
    ):
        empty.construct()
        invoices.insert(10)
        full.crash()
        empty.crash()
        full.construct()
        full.crash()
        assert first.trigger()
        for second in (empty, full):
            second.options = dataclasses.replace(second.options, transaction_mode=RECEIVE_ONLY)
        assert empty.plan() == []
        said = (
            rf"^The last batch of invoices@\[{engine.default_schema}\](@\[\w+\])? was begun with the stage "
            rf"Forward.Outgoing@\[{engine.default_schema}\] and has not ended, and another source holds that "
            r"stage: session \d+. End that session if it is a stopped stream's; where it is another source "
            r"of this query, give a new checkpoint folder \(a state that the query keeps is lost\).$"
        )
        with pytest.raises(ConfigurationError, match=said):
            full.plan()


def test_an_emptied_stage_leaves_the_batch_in_its_queue(engine, queue, billing):
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        assert stream.trigger()
        emptied(engine)
        said = (
            rf"^What the last batch of {re.escape(queue.address)}@\[.*\] sent is not on the stage "
            rf"Forward.Outgoing@\[{engine.default_schema}\] any more, so its 10 rows stay in the queue: "
            r"another pipeline of the same option stream has emptied the stage. Give each a name of its own. "
            r"Remove the newest file of the checkpoint's folder commits: the batch then runs again\. Where "
            r"that does not help, because Spark has begun another batch since, give a new checkpoint folder "
            r"\(a state that the query keeps is lost\)\.$"
        )
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=said):
                stream.trigger()
            stream.crash()
        assert (billing.count(), queue.count()) == (0, 10)
        stream.done -= 1  # as the remedy says
        stream.drain()
    assert (sorted(ids_in(billing)), queue.count(), staged(engine)) == (message_ids(range(10)), 0, 0)


def test_a_dropped_stage_leaves_the_batch_in_its_queue(engine, queue, billing):
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        assert stream.trigger()
        stream.crash()
        engine.execute(
            {"postgresql": f'DROP TABLE "{STAGE}"', "sqlserver": f"DROP TABLE [{STAGE}]"}[engine.name]
        )
        with pytest.raises(ConfigurationError, match="so its 10 rows stay in the queue"):
            stream.trigger()
    assert (billing.count(), queue.count()) == (0, 10)
