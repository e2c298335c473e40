"""Batches for which the queue has no rows, but which send: a watermark lets go of state,
another source has rows.

Spark asks the source before a batch like that, but never plans it,
and after a restart runs it again without a word to the source.
"""

import dataclasses
import json

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY, ConnectionOptions
from sqlqueue_spark.receive.offset import INITIAL
from tests.support.driver import BATCH_WRITTEN, Crash, Stream, at_step, crash, reached, watched_connections
from tests.support.forwarding import NAME, STAGE, Forward, forwarding, mark_of, staged
from tests.support.messages import message_id, message_ids
from tests.support.sending import ids_in
from tests.support.stages import gives_way, opened

pytestmark = [
    pytest.mark.tier("all", variants="nightly"),
    pytest.mark.needs("reads_json_as_documented"),
    gives_way,
]


@pytest.fixture
def billing(engine):
    """An empty queue called billing."""
    return engine.create_queue("billing")


def others(*numbers):
    """Messages that do not come from the queue."""
    return [
        {"Headers": json.dumps({"NServiceBus.MessageId": message_id(n)}), "Body": b"x", "RowVersion": n}
        for n in numbers
    ]


def run_without_rows(stream, *numbers):
    stream.construct_without_rows(others(*numbers))
    stream.run()


def test_an_empty_batch_does_nothing(engine, queue, billing):
    """Without rows and without messages."""
    with forwarding(engine, queue) as stream:
        run_without_rows(stream)  # before there was anything at all
        queue.insert(5)
        stream.drain()
        before = mark_of(engine)
        run_without_rows(stream)
        assert mark_of(engine) == before
        queue.insert(5, start=5)
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(10)), 0, 0)


def test_messages_go_out_when_the_source_is_next_asked(engine, queue, billing):
    with forwarding(engine, queue) as stream:
        run_without_rows(stream, 100, 101)
        assert (billing.count(), staged(engine)) == (0, 3)
        run_without_rows(stream, 102)
        assert (ids_in(billing), staged(engine)) == (message_ids([100, 101]), 2)
        queue.insert(5)
        assert stream.trigger()
        assert ids_in(billing) == message_ids([100, 101, 102])
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids([100, 101, 102, *range(5)]), 0)
    assert staged(engine) == 0


def test_sealed_messages_wait_for_the_next_start(engine, queue, billing):
    """A program that stops its query asks the source for nothing more."""
    with forwarding(engine, queue) as stream:
        run_without_rows(stream, 100, 101)
        stream.stop()
        assert (billing.count(), staged(engine)) == (0, 3)
        stream.drain()
    assert (ids_in(billing), staged(engine)) == (message_ids([100, 101]), 0)


@pytest.mark.parametrize("step", [fail_points.ROWS_STAGED, fail_points.STAGE_SEALED, BATCH_WRITTEN])
@pytest.mark.parametrize("begun", [True, False], ids=["after a batch with rows", "as the first batch"])
def test_a_batch_that_died_is_sent_once(engine, queue, billing, step, begun):
    """It is staged anew."""
    with forwarding(engine, queue) as stream:
        if begun:
            queue.insert(5)
            stream.drain()
        else:
            assert [stream.trigger(), stream.trigger()] == [True, False]  # its offset learns of the stage
            run_without_rows(stream, 50)
        for _ in range(2):
            if stream.done == len(stream.offsets):
                stream.construct_without_rows(others(100, 101))
            with at_step(step, crash), pytest.raises(Crash):
                stream.run()
            stream.crash()
        stream.run()
        queue.insert(5, start=10)
        stream.drain()
    early = range(5) if begun else [50]
    assert ids_in(billing) == message_ids([*early, 100, 101, *range(10, 15)])
    assert (queue.count(), staged(engine)) == (0, 0)


def test_a_batch_of_an_unknown_query_runs_again(engine, queue, billing):
    """After it died; as with Spark Connect, which does not tell the query."""
    with forwarding(engine, queue) as stream:
        stream.query = ""
        run_without_rows(stream, 50)
        stream.construct_without_rows(others(100, 101))
        with at_step(fail_points.STAGE_SEALED, crash), pytest.raises(Crash):
            stream.run()
        stream.crash()
        stream.run()
        stream.drain()
    assert (ids_in(billing), staged(engine)) == (message_ids([50, 100, 101]), 0)


@pytest.mark.parametrize("used", [True, False], ids=["another query's stage", "a new stage"])
def test_a_first_batch_that_no_sink_saw_runs_again(engine, queue, billing, used):
    """It died before; the source is not asked before Spark runs it again."""
    if used:
        with forwarding(engine, queue) as before:
            run_without_rows(before, 50)
            before.drain()
    with forwarding(engine, queue) as stream:
        stream.construct_without_rows(others(100, 101))
        stream.crash()
        stream.run()
        stream.drain()
    assert ids_in(billing) == message_ids([50, 100, 101] if used else [100, 101])
    assert staged(engine) == 0


def test_a_source_no_longer_atomic_holds_nothing_back(engine, queue, billing):
    """Of what was staged when that was not known."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    with forwarding(engine, queue) as stream:
        run_without_rows(stream, 50)
        stream.construct_without_rows(others(100))
        stream.stop()
        stream.options = dataclasses.replace(stream.options, transaction_mode=RECEIVE_ONLY)
        stream.sink_says = {"transactionMode": ATOMIC}
        stream.run()
        queue.insert(5)
        with pytest.raises(ConfigurationError, match=r"^No atomic source that runs holds the stage "):
            stream.trigger()
        assert (ids_in(billing), queue.count()) == (message_ids([50, 100]), 5)


def test_two_sinks_of_a_batch_without_rows_both_count(engine, queue, billing):
    with forwarding(engine, queue) as stream:
        stream.construct_without_rows(others(100))
        stream.write(others(100))
        stream.sink.clear()
        stream.write(others(101))
        stream.done += 1
        stream.drain()
    assert ids_in(billing) == message_ids([100, 101])


def test_another_mode_sends_what_a_batch_has_left(engine, queue, billing):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    with forwarding(engine, queue) as stream:
        run_without_rows(stream, 100, 101)
        stream.stop()
        stream.options = dataclasses.replace(stream.options, transaction_mode=RECEIVE_ONLY)
        queue.insert(5)
        stream.drain()
    assert (sorted(ids_in(billing)), queue.count(), staged(engine)) == (
        message_ids([*range(5), 100, 101]),
        0,
        0,
    )


@pytest.mark.parametrize("before", [None, RECEIVE_ONLY, ATOMIC], ids=["never run", "receiveOnly", "atomic"])
def test_a_renamed_stream_sends_what_a_batch_has_left(engine, queue, billing, before):
    """The queue gives the batch no offset of its own; the stage is remembered all the same."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Before")
    with forwarding(engine, queue) as stream:
        if before is not None:
            stream.options = dataclasses.replace(stream.options, transaction_mode=before, stream="Before")
            queue.insert(5)
            stream.drain()
            stream.stop()
            stream.options = dataclasses.replace(stream.options, transaction_mode=ATOMIC, stream=NAME)
        run_without_rows(stream, 100, 101)
        stream.stop()
        stream.options = dataclasses.replace(stream.options, stream="Renamed")
        stream.drain()
    early = [] if before is None else range(5)
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids([*early, 100, 101]), 0, 0)


def test_an_idle_atomic_stream_makes_only_one_batch(engine, queue, billing):
    """In which its offset learns of the stage."""
    with forwarding(engine, queue) as stream:
        assert [stream.trigger() for _ in range(3)] == [True, False, False]
        stream.stop()
        assert [stream.trigger() for _ in range(2)] == [False, False]
        stream.options = dataclasses.replace(stream.options, stream="Renamed")
        stream.stop()
        assert [stream.trigger() for _ in range(2)] == [True, False]
    assert (billing.count(), staged(engine)) == (0, 0)


def test_a_batch_repeated_in_another_mode_is_sent_once(engine, queue, billing):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    with forwarding(engine, queue) as stream:
        stream.construct_without_rows(others(100, 101))
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            stream.run()
        stream.crash()
        assert staged(engine) == 3
        stream.options = dataclasses.replace(stream.options, transaction_mode=RECEIVE_ONLY)
        stream.run()
        queue.insert(5)
        stream.drain()
        stream.stop()
        stream.options = dataclasses.replace(stream.options, transaction_mode=ATOMIC)
        stream.drain()
    assert (sorted(ids_in(billing)), queue.count(), staged(engine)) == (
        message_ids([*range(5), 100, 101]),
        0,
        0,
    )


def test_a_renamed_stream_sends_a_batch_once(engine, queue, billing):
    """A batch that died is refused under the new name; it runs again under the old one first."""
    queue.insert(5)
    with forwarding(engine, queue) as stream:
        stream.drain()
        stream.construct_without_rows(others(100, 101))
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            stream.run()
        stream.crash()
        stream.options = dataclasses.replace(stream.options, stream="Renamed")
        # The new stage is not known yet; its source is asked for the first time by a batch of its own.
        with pytest.raises(
            ConfigurationError, match=r"^The stage Renamed\.Outgoing@\[\w+\] belongs to no batch: "
        ):
            stream.run()
        stream.crash()
        stream.options = dataclasses.replace(stream.options, stream=NAME)
        stream.run()
        stream.stop()
        stream.options = dataclasses.replace(stream.options, stream="Renamed")
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids([*range(5), 100, 101]), 0, 0)


def test_a_lost_stage_is_refused_until_there_is_a_new_checkpoint(engine, queue, billing):
    """A fail-over has lost the stage with all that was committed,
    and Spark runs a batch again of which it tells no source.
    """
    with forwarding(engine, queue) as stream:
        run_without_rows(stream)
        stream.construct_without_rows(others(100))
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            stream.run()
        stream.crash()
        drop = {"postgresql": f'DROP TABLE "{STAGE}"', "sqlserver": f"DROP TABLE [{STAGE}]"}
        engine.execute(drop[engine.name])
        with pytest.raises(
            ConfigurationError,
            match=r"^The stage .* belongs to no batch: .* give a new checkpoint folder "
            r"\(a state that the query keeps is lost\)\.$",
        ):
            stream.run()
        stream.stop()
        stream.offsets, stream.done, stream.others, stream.query = [], 0, {}, "another"
        run_without_rows(stream, 100)
        stream.drain()
    assert (ids_in(billing), staged(engine)) == (message_ids([100]), 0)


def test_an_atomic_sink_needs_an_atomic_source(engine, queue, billing):
    """The mark of a batch that never ended is on the stage; no source would send what is put under it."""
    queue.insert(5)
    with forwarding(engine, queue) as abandoned:
        with at_step(fail_points.STAGE_SEALED, crash), pytest.raises(Crash):
            abandoned.trigger()
        abandoned.crash()
    with forwarding(engine, queue, transactionMode=RECEIVE_ONLY) as stream:
        stream.sink_says = {"transactionMode": ATOMIC}
        with pytest.raises(ConfigurationError) as caught:
            stream.trigger()
        assert str(caught.value) == (
            f"No atomic source that runs holds the stage Forward.Outgoing@[{engine.default_schema}]: nothing "
            "would send what is put there; give the source the sink's stream and database, and "
            "transactionMode sendsAtomicWithReceive. Where its connection was just lost, start again, and "
            "the batch runs again; where the database has lost what was committed, give a new checkpoint "
            "folder (a state that the query keeps is lost)."
        )
    assert (queue.count(), billing.count()) == (5, 0)


@pytest.fixture
def outbox(engine):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)


def changed(stream, /, **options):
    """The query is stopped, to go on with other options."""
    stream.stop()
    stream.options = dataclasses.replace(stream.options, **options)


def died_when_it_was_written(stream, *, noticed=True):
    with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
        stream.run()
    stream.crash(noticed=noticed)


@pytest.mark.parametrize("sink", [ATOMIC, RECEIVE_ONLY], ids=["the sink stays atomic", "the sink is mended"])
def test_a_batch_whose_sink_alone_was_atomic_is_sent_once(engine, queue, billing, outbox, sink):
    """The source's start still names the stage on which the sink has put the batch's first run."""
    queue.insert(5)
    with forwarding(engine, queue) as stream:
        stream.drain()
        changed(stream, transaction_mode=RECEIVE_ONLY)
        stream.sink_says = {"transactionMode": ATOMIC}
        queue.insert(5, start=5)
        assert stream.construct()
        died_when_it_was_written(stream)
        stream.sink_says = {"transactionMode": sink}
        stream.run()
        stream.sink_says = {}
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids(range(10)), 0)


def test_a_batch_that_was_staged_on_two_stages_is_sent_once(engine, queue, billing):
    """Before Spark 4.2: the stream goes from B to A, a batch without rows dies there, and B runs it again."""
    with forwarding(engine, queue, stream="B") as stream:
        assert stream.trigger()
        changed(stream, stream=NAME)
        assert stream.trigger()
        stream.construct_without_rows(others(100))
        died_when_it_was_written(stream)
        changed(stream, stream="B")
        stream.run()
        queue.insert(5)
        end = stream.receiver.latest(INITIAL, 10, sure=False)
        stream.offsets.append(json.dumps(end))
        stream.receiver.finish(stream.end(stream.done), rows=True)
        stream.run()
        stream.drain()
    assert (ids_in(billing), queue.count()) == (message_ids([100, *range(5)]), 0)


def test_a_dead_session_on_a_stage_of_before_is_told_of(engine, queue, billing):
    """The stream would forget with its next offset that messages wait there."""
    with forwarding(engine, queue) as stream:
        assert stream.trigger()
        run_without_rows(stream, 100)
        with opened(engine) as (connection, stage):
            changed(stream, stream="Renamed")
            with connection.transaction():
                stage.hold()
            with pytest.raises(ConfigurationError, match=r"^Two sources use the stage Forward\.Outgoing@"):
                stream.trigger()
            stream.crash()
        stream.drain()
    assert ids_in(billing) == message_ids([100])


def test_a_batch_without_rows_whose_stage_a_dead_session_holds_is_refused(engine, queue, billing, outbox):
    """What it has staged counts there, and its sink would send it too."""
    with forwarding(engine, queue) as stream:
        stream.construct_without_rows(others(100))
        died_when_it_was_written(stream)
        with opened(engine) as (connection, stage):
            with connection.transaction():
                stage.hold()
            changed(stream, transaction_mode=RECEIVE_ONLY)
            with pytest.raises(ConfigurationError, match=r"and another source holds that stage: "):
                stream.run()
            stream.crash()
        stream.run()
        queue.insert(5)
        stream.drain()
    assert ids_in(billing) == message_ids([100, *range(5)])


def test_a_batch_without_rows_whose_settling_is_forgotten_is_sent_again(postgresql):
    """A fail-over brings the sealed stage back and takes the message away; the process lives on."""
    queue, billing = postgresql.create_queue("orders"), postgresql.create_queue("billing")
    with forwarding(postgresql, queue) as stream:
        run_without_rows(stream, 100)
        postgresql.execute(f'CREATE TABLE replica AS SELECT * FROM "{STAGE}"')
        assert not stream.trigger()
        assert ids_in(billing) == message_ids([100])
        postgresql.execute(
            f'DELETE FROM billing; DELETE FROM "{STAGE}"; INSERT INTO "{STAGE}" OVERRIDING SYSTEM VALUE '
            "SELECT * FROM replica"
        )
        queue.insert(1)
        stream.drain()
    assert sorted(ids_in(billing)) == message_ids([0, 100])


class Union:
    """One query over two queues. One of its sources is atomic; the sink has that source's options."""

    def __init__(self, engine, *queues):
        self.sources = [Forward(engine, queue) for queue in queues]
        self.batches = 0

    def start(self, *, atomic):
        """A process in which this source is atomic, and the other one only receives."""
        for number, source in enumerate(self.sources):
            changed(source, transaction_mode=ATOMIC if number == atomic else RECEIVE_ONLY)
            source.query = NAME
        self.sink = self.sources[atomic]

    def crash(self):
        for source in self.sources:
            source.crash()

    def trigger(self):
        return self.construct() and self.run()

    def construct(self):
        """Log the next batch, in which each source may have rows; False when none has."""
        starts = [source.end(self.batches) for source in self.sources]
        ends = [source.receiver.latest(start, 10) for source, start in zip(self.sources, starts, strict=True)]
        if ends == starts:
            return False
        for source, end in zip(self.sources, ends, strict=True):
            source.offsets.append(json.dumps(end))
        return True

    def run(self, *, sends=True):
        messages = [each for source in self.sources for each in Stream.read(source, source.plan())]
        if sends:
            self.sink.write(messages)
        reached(BATCH_WRITTEN)
        self.batches += 1
        for source in self.sources:
            source.done = self.batches
        return True

    def stop(self):
        for source in self.sources:
            source.stop()


@pytest.fixture
def union(engine, queue, billing):
    """Of the queues orders and returns."""
    found = Union(engine, queue, engine.create_queue("returns"))

    def opened_by_one(target, connection):
        for source in found.sources:
            source.opened(target, connection)

    with watched_connections(opened_by_one):
        yield found
        found.stop()


@pytest.mark.parametrize("died", ["its sink sends again", "its sink knows it", "it was logged"])
@pytest.mark.parametrize(
    "first", [1, 0], ids=["from the second to the first", "from the first to the second"]
)
def test_two_sources_that_swap_roles_send_a_dead_batch_once(union, billing, first, died):
    """It has rows only of the source that was atomic: they are staged without a claim,
    and its start still names the stage.
    """
    now, before = union.sources[1 - first], union.sources[first]
    before.table.insert(3)
    union.start(atomic=first)
    assert [union.trigger(), union.trigger()] == [True, False]
    union.start(atomic=1 - first)
    assert [union.trigger(), union.trigger()] == [True, False]  # its offset learns of the stage
    before.table.insert(5, start=3)
    assert union.construct()
    assert (now.end(2), before.end(2)) == (now.end(3), before.end(1)) != before.end(3)
    if died == "it was logged":
        union.run()
        union.crash()
    else:
        with at_step(BATCH_WRITTEN, crash), pytest.raises(Crash):
            union.run()
        union.crash()
        union.run(sends=died == "its sink sends again")
    now.table.insert(2, start=8)
    while union.trigger():
        pass
    assert (sorted(ids_in(billing)), now.table.count(), before.table.count()) == (
        message_ids(range(10)),
        0,
        0,
    )


@pytest.mark.parametrize("rows_of_both", [True, False])
def test_two_sources_that_swap_roles_lose_no_logged_batch(union, billing, rows_of_both):
    """What one of them has sealed is not given up by the other:
    it may be all that is left of the other's own rows.
    """
    now, before = union.sources
    before.table.insert(3)
    if rows_of_both:
        now.table.insert(3, start=3)
    union.start(atomic=1)
    assert union.trigger()
    union.crash()
    union.start(atomic=0)
    with pytest.raises(ConfigurationError) as caught:
        union.trigger()
    stage = f"{NAME}.Outgoing@[{now.table.schema}]"
    assert str(caught.value) == (
        f"The stage {stage} has what a batch of the queue {before.end(1)['queue']} sends, and that batch is "
        "not settled; start once with the transactionMode and the stream that its source had, then with the "
        f"new ones. To go on without these messages, drop the table {stage} and start the stream."
    )
    union.crash()
    union.start(atomic=1)
    assert not union.trigger()
    union.start(atomic=0)
    now.table.insert(2, start=8)
    while union.trigger():
        pass
    numbers = [*range(6 if rows_of_both else 3), 8, 9]
    assert (sorted(ids_in(billing)), now.table.count(), before.table.count()) == (message_ids(numbers), 0, 0)
