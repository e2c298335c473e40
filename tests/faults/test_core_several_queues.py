"""A stream over several queues: whatever becomes of one, and whatever dies, each message comes once,
and the others go on.
"""

import dataclasses
import itertools
import json
from datetime import datetime
from typing import Any

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines import database_retry
from sqlqueue_spark.errors import ClaimLost, ConfigurationError, QueueError, SqlQueueError, TryAgain
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.receive.claiming import connection_pool, set_aside, stream_scanner
from sqlqueue_spark.receive.claiming.batch_size import BatchSize
from sqlqueue_spark.receive.receiver import Receiver
from sqlqueue_spark.spark.readers import _look_round
from sqlqueue_spark.tables import queue_table
from tests.support import death_steps, tampering
from tests.support.clock import Clock
from tests.support.driver import STEPS, Crash, Reader, at_step, crash, streaming
from tests.support.messages import row_id, row_ids
from tests.support.several import Queues, by_queue, ids_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all", variants="nightly")

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone
SMALL: dict[str, Any] = {
    "maxMessagesPerTrigger": "70",
    "minMessagesPerPartition": "20",
    "maxConcurrency": "3",
}
FIVE = "abcde"


@pytest.fixture
def queues(engine):
    return Queues(engine, *FIVE)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """A queue that was set aside is tried again soon."""
    monkeypatch.setattr(set_aside, "LATER_SECONDS", 0.05)
    monkeypatch.setattr(queue_table, "LOCKED_MS", 100)


def fill(queues, count=60):
    """``count`` live messages in each, with some expired ones between; returns the ids of the live ones."""
    for table in queues:
        table.insert(count // 2)
        table.insert(5, start=9000, expires=PAST)
        table.insert(count - count // 2, start=count // 2)
    return row_ids(range(count))


def has_everything(stream, ids, names=FIVE):
    assert {name: ids_of(stream, name) for name in names} == dict.fromkeys(names, ids)


def die_and_come_back_with(stream, *limits):
    following = itertools.cycle(limits)

    def die():
        stream.options = dataclasses.replace(stream.options, max_messages_per_trigger=next(following))
        crash()

    return die


@pytest.mark.parametrize("step", STEPS)
def test_each_message_arrives_once_whatever_the_crash(engine, queues, step):
    ids = fill(queues)
    with (
        streaming(engine, queues, queues=queues.listed, **SMALL) as stream,
        at_step(step, die_and_come_back_with(stream, 40, 100), on={1, 2, 4}),
    ):
        stream.drain()
    assert stream.crashes == 3
    has_everything(stream, ids)
    assert queues.count() == 0


@pytest.mark.parametrize("step", death_steps.LEFT_STEPS)
def test_a_recovery_that_dies_is_done_by_the_next_process(engine, queues, step):
    ids = fill(queues)
    with streaming(engine, queues, queues=queues.listed, **SMALL) as stream:
        assert stream.trigger()
        stream.crash()
        with at_step(step, crash, on={1, 2}):
            stream.drain()
        assert stream.crashes == 3
        has_everything(stream, ids)
    assert queues.count() == 0


def test_a_replay_is_the_same_rows_of_every_queue(engine, queues):
    fill(queues)
    with streaming(engine, queues, queues=queues.listed, **SMALL) as stream:
        assert stream.construct()
        before = stream.read(stream.plan())
        assert {each["Queue"].partition("@")[0] for each in before} == set(FIVE)
        stream.crash()
        for table in queues:
            table.insert(3, start=500)
        assert stream.read(stream.plan()) == before


def test_a_lost_connection_is_claimed_again_in_every_queue(engine, queues, caplog):
    ids = fill(queues)
    with (
        streaming(engine, queues, queues=queues.listed, **SMALL) as stream,
        at_step(fail_points.COMMIT_LOGGED, engine.cut_connections, on={2}),
    ):
        stream.drain()
        has_everything(stream, ids)
        assert queues.count() == 0
    assert "settled_after_loss" in caplog.text


# -- something becomes of one of them --------------------------------------------------------------


def truncate(engine, queues):
    tampering.truncate(engine, queues["c"])


def drop(engine, queues):
    tampering.drop(queues["c"])


def create_anew(engine, queues):
    tampering.drop(queues["c"])
    engine.create_queue("c").insert(60, start=100)


def refill(engine, queues):
    """Other messages under the same numbers."""
    tampering.truncate(engine, queues["c"])
    queues["c"].insert(60, start=100)


LOSSES = [truncate, drop, create_anew, refill]


@pytest.mark.parametrize("lose", LOSSES)
def test_what_becomes_of_one_queue_between_batches_is_its_own_affair(engine, queues, lose):
    for table in queues:
        table.insert(60)
    with streaming(engine, queues, queues=queues.listed, claimAhead="false", **SMALL) as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(1))
        lose(engine, queues)
        others = Rest(queues, "abde")
        stream.table = others
        stream.drain()
        has_everything(stream, row_ids(range(60)), "abde")
        if lose in (create_anew, refill):
            # Rows that were remembered are gone, so neighbours are looked for, and left some rows, at first.
            eventually(lambda: not stream.trigger() and queues["c"].count() == 0)
            assert set(row_ids(range(100, 160))) <= set(ids_of(stream, "c"))


@pytest.mark.parametrize("lose", LOSSES)
def test_what_became_of_one_queue_before_a_replay_leaves_the_rest_of_the_batch_alone(
    engine, queues, lose, caplog
):
    """The unfinished batch has the other queues' rows again,
    and none of those that only carry the same numbers.
    """
    for table in queues:
        table.insert(60)
    with streaming(engine, queues, queues=queues.listed, claimAhead="false", **SMALL) as stream:
        assert stream.construct()
        before = by_queue(stream.read(stream.plan()))
        stream.crash()
        lose(engine, queues)
        stream.options = dataclasses.replace(
            stream.options, queues=tuple(queues[name].address for name in "abde")
        )
        again = by_queue(stream.read(stream.plan()))
        assert again == {name: rows for name, rows in before.items() if name != "c"}
        stream.table = Rest(queues, "abde")
        stream.drain()
        has_everything(stream, row_ids(range(60)), "abde")
        assert (
            queues["c"].count() == (60 if lose in (create_anew, refill) else 0) if lose is not drop else True
        )


@pytest.mark.parametrize("lose", LOSSES)
def test_what_became_of_one_queue_before_a_recovery_leaves_its_new_rows_alone(engine, queues, lose):
    for table in queues:
        table.insert(60)
    with streaming(engine, queues, queues=queues.listed, claimAhead="false", **SMALL) as stream:
        assert stream.trigger()
        stream.crash()
        lose(engine, queues)
        if lose is drop:
            engine.create_queue("c")
        stream.drain()
        has_everything(stream, row_ids(range(60)), "abde")
        assert queues.count() == 0
        if lose in (create_anew, refill):
            assert set(row_ids(range(100, 160))) <= set(ids_of(stream, "c"))


class Rest:
    """Some of the queues, as what a stream drains."""

    address = ""

    def __init__(self, queues, names):
        self._tables = [queues[name] for name in names]

    def count(self):
        return sum(table.count() for table in self._tables)


def test_a_queue_refilled_between_claim_and_read_fails_the_batch(engine, queues):
    """Its claim was lost with the connection; the others' rows come again,
    and the new ones of that queue in a batch of their own.
    """
    for table in queues:
        table.insert(60)
    with streaming(engine, queues, queues=queues.listed, claimAhead="false", **SMALL) as stream:
        assert stream.construct()
        slices = stream.plan()
        stream.cut()
        eventually(lambda: not tampering.holds_a_transaction(engine, stream.name))
        refill(engine, queues)
        with pytest.raises(ClaimLost, match="of c@"):
            stream.read(slices)
        stream.crash()
        stream.drain()
        has_everything(stream, row_ids(range(60)), "abde")
        assert ids_of(stream, "c") == row_ids(range(100, 160))
        assert queues.count() == 0


def test_a_queue_whose_table_is_locked_does_not_hold_up_the_others(postgresql, caplog):
    """It is said once, and not at every look."""
    engine, queues = postgresql, Queues(postgresql, *FIVE)
    ids = fill(queues)
    with streaming(engine, queues, queues=queues.listed, **SMALL) as stream:
        with queues["c"].session() as session:
            cursor = session.connection.cursor()  # type: ignore[attr-defined] # a PostgreSQL session's own
            cursor.execute("LOCK TABLE c IN ACCESS EXCLUSIVE MODE")
            stream.table = Rest(queues, "abde")
            stream.drain()
            has_everything(stream, ids, "abde")
            looks = itertools.count()
            eventually(lambda: stream.trigger() or next(looks) == 20)
        stream.table = queues
        eventually(lambda: stream.trigger() or queues.count() == 0)
        stream.drain()
        has_everything(stream, ids)
    assert caplog.text.count("queue_set_aside") == 1
    assert caplog.text.count("queue_works_again") == 1


@pytest.mark.parametrize("headroom", ["auto", "0"], ids=["for neighbours", "what waits behind"])
def test_a_queue_that_fails_while_its_rows_are_claimed_ahead_does_not_hold_up_the_others(
    postgresql, guarded_url, headroom
):
    """It fails when the stream looks there for something else. Its rows are free again, too."""
    queues = Queues(postgresql, *FIVE)
    ids = fill(queues)
    names = ", ".join(FIVE)
    postgresql.execute(f"GRANT SELECT, UPDATE, DELETE ON {names} TO guarded")
    given = {"queues": queues.listed, "url": guarded_url, "neighbourHeadroom": headroom, **SMALL}
    with streaming(postgresql, queues, **given) as stream:
        clock = Clock()
        stream.time = {"clock": clock, "sleep": clock.sleep}
        assert stream.trigger()
        stream.receiver.settle(stream.end(stream.done))
        postgresql.execute("REVOKE SELECT, UPDATE, DELETE ON c FROM guarded")
        clock.now += 1
        stream.table = Rest(queues, "abde")
        stream.drain()
        has_everything(stream, ids, "abde")
        postgresql.execute("GRANT SELECT, UPDATE, DELETE ON c TO guarded")
        clock.now += 1
        stream.table = queues
        stream.drain()
        has_everything(stream, ids)


@pytest.mark.tier("all")
def test_rows_that_others_hold_stay_theirs(engine, queues):
    ids = fill(queues)
    with streaming(engine, queues, queues=queues.listed, **SMALL) as stream:
        with queues["b"].locked(*range(1, 20, 2)), queues["d"].locked(7):
            stream.drain(left=11)
            assert not set(range(1, 20, 2)) & set(by_queue(stream.messages())["b"])
        stream.drain()
        has_everything(stream, ids)


def test_where_no_queue_of_the_list_is_left_the_stream_ends(engine, queues):
    with streaming(engine, queues, queues=queues.listed) as stream:
        assert not stream.trigger()
        for table in queues:
            tampering.drop(table)
        with pytest.raises(QueueError, match="create it with: sqlqueue create"):
            eventually(stream.trigger)


# -- the list changes ------------------------------------------------------------------------------


def reading(stream, queues, names):
    stream.options = dataclasses.replace(
        stream.options, queues=tuple(queues[name].address for name in names), queue=None
    )


@pytest.mark.parametrize("step", [fail_points.OFFSET_LOGGED, fail_points.COMMIT_LOGGED])
def test_a_queue_taken_off_the_list_has_its_last_batch_finished(engine, queues, step):
    """Unfinished or unsettled: its rows of that batch come once and are deleted; the others of it stay."""
    for table in queues:
        table.insert(60)
    with streaming(engine, queues, queues=queues.listed, claimAhead="false", **SMALL) as stream:
        with at_step(step, crash):
            while not stream.crashes:
                try:
                    stream.trigger()
                except Crash:
                    stream.crash()
        reading(stream, queues, "abde")
        stream.table = Rest(queues, "abde")
        stream.drain()
        has_everything(stream, row_ids(range(60)), "abde")
        emitted = by_queue(stream.messages())["c"]
        assert len(emitted) == len(set(emitted)) > 0
        assert queues["c"].row_versions() == [each for each in range(1, 61) if each not in emitted]


def test_a_queue_put_on_the_list_comes_with_all_its_rows(engine, queues):
    ids = fill(queues)
    with streaming(engine, queues, queues=json.dumps([queues["a"].address]), **SMALL) as stream:
        assert stream.trigger()
        stream.crash()
        reading(stream, queues, FIVE)
        stream.drain()
        has_everything(stream, ids)


@pytest.mark.parametrize("logged", [False, True])
def test_a_checkpoint_of_one_queue_goes_on_with_several(engine, queues, logged):
    """With an unfinished batch, or an unsettled one; the batch that is replayed has the column Queue, too."""
    ids = fill(queues)
    with streaming(engine, queues["a"], **SMALL) as stream:
        assert stream.trigger() if logged else stream.construct()
        stream.crash()
        reading(stream, queues, "ab")
        stream.table = Rest(queues, "ab")
        stream.drain()
        assert [each for each in stream.messages() if "Queue" not in each] == (
            stream.sink[0] if logged else []
        )
        everything = [each["Id"] for each in stream.messages()]
        assert len(everything) == len(set(everything)) * 2 == 120
        assert sorted(everything) == sorted([str(each) for each in ids] * 2)


def test_a_checkpoint_of_one_queue_does_not_go_on_without_it(engine, queues):
    queues["a"].insert(3)
    with streaming(engine, queues["a"]) as stream:
        assert stream.trigger()
        stream.crash()
        reading(stream, queues, "bc")
        refusal = (
            r"The checkpoint belongs to the queue a@.*, which is not among those of this stream \(b@.*, "
            r"c@.*\); add it for the first start, or give a new checkpoint folder \(a state that the query "
            r"keeps is lost\)\."
        )
        with pytest.raises(ConfigurationError, match=refusal):
            stream.trigger()
        assert queues["a"].count() == 3


def test_a_checkpoint_of_several_queues_does_not_go_on_with_the_option_queue(engine, queues):
    queues["a"].insert(3)
    with streaming(engine, queues, queues=queues.listed) as stream:
        assert stream.trigger()
        stream.crash()
        stream.options = dataclasses.replace(stream.options, queues=(), queue=queues["a"].address)
        refusal = (
            r"several queues, not to a@.* alone; give the option queues, which may also list one, "
            r'like \["a@.*"\]\.'
        )
        with pytest.raises(ConfigurationError, match=refusal):
            stream.trigger()
        assert queues["a"].count() == 3


# -- a pattern -------------------------------------------------------------------------------------


def test_a_queue_that_appears_is_picked_up(engine, monkeypatch):
    """Callback queues of an endpoint's instances; and no stream misses a queue that goes."""
    monkeypatch.setattr(stream_scanner, "_LIST_SECONDS", 0.05)
    instances = Queues(engine, "Sales.A", "Sales", "Salesmen")
    with streaming(engine, instances, queuePattern=r"Sales\..*") as stream:
        for table in instances:
            table.insert(5)
        assert stream.trigger()
        appeared = engine.create_queue("Sales.B")
        appeared.insert(7)
        eventually(lambda: stream.trigger() or appeared.count() == 0)
        stream.receiver.settle(stream.end(stream.done))  # until then the claim has all tables open
        tampering.drop(instances["Sales.A"])
        appeared.insert(3, start=7)
        eventually(lambda: stream.trigger() or appeared.count() == 0)
        stream.stop()
        assert by_queue(stream.messages()) == {"Sales.A": [1, 2, 3, 4, 5], "Sales.B": [*range(1, 11)]}
        assert (instances["Sales"].count(), instances["Salesmen"].count()) == (5, 5)


def test_a_stream_keeps_no_lock_for_queues_that_are_gone(postgresql, monkeypatch):
    """Instances of an endpoint come and go for weeks, each with a queue of its own. All sessions of a server
    share the room for locks.
    """
    monkeypatch.setattr(connection_pool, "_MOST_GONE", 5)
    monkeypatch.setattr(stream_scanner, "_LIST_SECONDS", 1.0)
    clock, held = Clock(), []
    with streaming(postgresql, Rest({}, ()), queuePattern=r"Sales\..*") as stream:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        for number in range(20):
            instance = postgresql.create_queue(f"Sales.{number}")
            instance.insert(1)
            clock.now += 1
            assert [stream.trigger() for _ in range(5)].count(True) == 1
            stream.receiver.settle(stream.end(stream.done))
            tampering.drop(instance)
            held += postgresql.fetch("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    assert max(held) == (6,)
    assert by_queue(stream.messages()) == {f"Sales.{number}": [1] for number in range(20)}


# -- beside neighbours, and to an end --------------------------------------------------------------


def test_the_oldest_rows_are_left_to_neighbours_in_the_queue_where_they_are(engine, queues):
    for table in queues:
        table.insert(50)
    with streaming(engine, queues, queues=queues.listed) as stream, queues["b"].session() as neighbour:
        neighbour.lock(1)
        assert stream.trigger()
        queues["b"].insert(10, start=50)
        queues["a"].insert(10, start=50)
        assert stream.trigger()
        assert by_queue(stream.sink[1]) == {"a": [*range(51, 61)]}
        told = stream.receiver.waiting()
        assert told is not None
        assert told["leftToNeighbours"] == 10


def test_beside_neighbours_of_one_queue_a_batch_of_all_queues_is_small(postgresql, monkeypatch):
    """One transaction has the rows of all. While it is open, it costs the neighbours."""
    monkeypatch.setattr(BatchSize, "_HARMLESS", 0)  # a quarter of the rows, until the cost is known
    queues, clock = Queues(postgresql, "a", "b"), Clock()
    for table in queues:
        table.insert(8000)
    options: dict[str, Any] = {
        "queues": queues.listed,
        "maxMessagesPerTrigger": "2000",
        "claimAhead": "false",
    }
    with streaming(postgresql, queues, **options) as stream, queues["a"].session() as neighbour:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        counts = []
        for _ in range(3):
            assert stream.trigger()
            counts.append({name: len(rows) for name, rows in by_queue(stream.sink[stream.done - 1]).items()})
            neighbour.take()
            neighbour.commit()
            clock.now += 1
    assert counts == [{"a": 1000, "b": 1000}, {"a": 500, "b": 1500}, {"a": 250, "b": 250}]


def given_back(caplog):
    """What the log says of claims ahead that were given back."""
    said = (record.getMessage() for record in caplog.records)
    return [each for each in said if each.startswith("claim_ahead_given_back ")]


def test_a_queue_that_fails_hides_no_neighbours_of_another_while_a_batch_runs(
    postgresql, guarded_url, caplog
):
    """They are seen there, so what was claimed ahead is given back at once."""
    caplog.set_level("INFO")
    queues = Queues(postgresql, "a", "b")
    for table in queues:
        table.insert(1000)
    postgresql.execute("GRANT SELECT, UPDATE, DELETE ON a, b TO guarded")
    given: dict[str, Any] = {"queues": queues.listed, "url": guarded_url, "maxMessagesPerTrigger": "200"}
    with streaming(postgresql, queues, **given) as stream, queues["b"].session() as neighbour:
        assert stream.construct()
        ahead = stream.receiver.source._scanner._ahead
        assert ahead is not None
        assert ahead.made() is not None
        postgresql.execute("REVOKE SELECT, UPDATE, DELETE ON a FROM guarded")
        neighbour.lock()  # no row, but the table, as a receive does from its beginning
        eventually(lambda: given_back(caplog))
        assert given_back(caplog)[-1].endswith(": neighbours are seen")


def test_neighbours_of_a_queue_that_is_only_claimed_ahead_are_seen_while_a_batch_runs(postgresql, caplog):
    """The batch has one late row of another queue, and what was claimed ahead still waits."""
    caplog.set_level("INFO")
    queues = Queues(postgresql, "a", "b")
    options: dict[str, Any] = {"queues": queues.listed, "maxMessagesPerTrigger": "200"}
    with (
        queues["a"].session() as late,
        queues["b"].session() as neighbour,
        streaming(postgresql, queues, **options) as stream,
    ):
        late.insert(1)
        for table in queues:
            table.insert(1000, start=1)
        assert stream.trigger()
        ahead = stream.receiver.source._scanner._ahead
        assert ahead is not None
        assert ahead.made() is not None
        late.commit()
        member = next(each for each in stream.receiver.source._scanner._members.values() if "a@" in each.name)
        eventually(member.late_ranges)
        assert stream.trigger()
        assert by_queue(stream.sink[1]) == {"a": [1]}
        neighbour.lock()  # no row, but the table, as a receive does from its beginning
        eventually(lambda: given_back(caplog))
        assert given_back(caplog)[-1].endswith(": neighbours are seen")


def test_a_run_does_not_end_as_if_a_locked_queue_were_empty(postgresql, monkeypatch):
    monkeypatch.setattr(database_retry, "RETRY_SECONDS", 1.0)
    engine, queues = postgresql, Queues(postgresql, *FIVE)
    ids = fill(queues)
    with streaming(engine, queues, queues=queues.listed, **SMALL) as stream:
        stream.receiver.stop_at_present_end()
        with queues["c"].session() as session:
            cursor = session.connection.cursor()  # type: ignore[attr-defined] # a PostgreSQL session's own
            cursor.execute("LOCK TABLE c IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(TryAgain, match="locked by someone else while claiming from c@"):
                assert [stream.trigger() for _ in range(20)] == []
            has_everything(stream, ids, "abde")
        while stream.trigger():
            pass
        has_everything(stream, ids)


def test_a_queue_that_fails_when_a_run_begins_does_not_hold_up_the_others(postgresql, guarded_url):
    """Its rows come as soon as it can be looked at, up to the end that it has then."""
    queues = Queues(postgresql, *FIVE)
    ids = fill(queues)
    postgresql.execute("GRANT SELECT, UPDATE, DELETE ON a, b, d, e TO guarded")
    with streaming(postgresql, queues, queues=queues.listed, url=guarded_url, **SMALL) as stream:
        stream.receiver.stop_at_present_end()
        while stream.trigger():
            pass
        has_everything(stream, ids, "abde")
        postgresql.execute("GRANT SELECT, UPDATE, DELETE ON c TO guarded")
        eventually(lambda: not stream.trigger() and queues["c"].count() == 0)
        queues["c"].insert(1, start=500)
        assert not stream.trigger()
        has_everything(stream, ids)


def test_a_queue_whose_rows_may_not_be_deleted_does_not_hold_up_the_others(postgresql, guarded_url):
    queues = Queues(postgresql, *FIVE)
    ids = fill(queues)
    postgresql.execute(
        "GRANT SELECT, UPDATE, DELETE ON a, b, d, e TO guarded; GRANT SELECT, UPDATE ON c TO guarded"
    )
    with streaming(postgresql, queues, queues=queues.listed, url=guarded_url, **SMALL) as stream:
        eventually(lambda: not stream.trigger() and queues["e"].count() == 0)
        has_everything(stream, ids, "abde")
        postgresql.execute("GRANT DELETE ON c TO guarded")
        eventually(lambda: not stream.trigger() and queues["c"].count() == 0)
        has_everything(stream, ids)


def test_a_queue_of_which_the_server_keeps_a_row_does_not_hold_up_the_others(postgresql):
    """A row of another table refers to it."""
    queues = Queues(postgresql, *FIVE)
    ids = fill(queues)
    postgresql.execute("CREATE TABLE kept (id uuid REFERENCES c); INSERT INTO kept SELECT id FROM c LIMIT 1")
    with streaming(postgresql, queues, queues=queues.listed, **SMALL) as stream:
        eventually(lambda: not stream.trigger() and queues["e"].count() == 0)
        has_everything(stream, ids, "abde")
        postgresql.execute("DROP TABLE kept")
        eventually(lambda: not stream.trigger() and queues["c"].count() == 0)
        has_everything(stream, ids)


KEEPING = {
    "violates foreign key constraint": (
        "CREATE TABLE kept (id uuid REFERENCES c); INSERT INTO kept SELECT id FROM c LIMIT 1"
    ),
    "stop what keeps rows": (
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
        "CREATE TRIGGER keep BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION keep()"
    ),
}


@pytest.mark.parametrize("said", KEEPING)
def test_a_run_does_not_end_as_if_a_queue_whose_rows_the_server_keeps_were_empty(postgresql, said):
    queues = Queues(postgresql, *FIVE)
    ids = fill(queues)
    postgresql.execute(KEEPING[said])
    with streaming(postgresql, queues, queues=queues.listed, **SMALL) as stream:
        stream.receiver.stop_at_present_end()
        with pytest.raises(SqlQueueError, match=said):
            eventually(lambda: not stream.trigger())
        has_everything(stream, ids, "abde")


def test_a_message_in_transit_that_the_server_keeps_does_not_hold_up_the_others(postgresql):
    """A row of another table refers to it."""
    queues, elsewhere = Queues(postgresql, *FIVE), postgresql.create_queue("elsewhere")
    ids = fill(queues)
    on_its_way = json.dumps({"NServiceBus.MessageId": "m", FORWARD_DESTINATION: '"public"."elsewhere"'})
    queues["c"].insert_row(id=row_id(900), headers=on_its_way, body=b"x")
    postgresql.execute(f"CREATE TABLE kept (id uuid REFERENCES c); INSERT INTO kept VALUES ('{row_id(900)}')")
    with streaming(postgresql, queues, queues=queues.listed, **SMALL) as stream:
        eventually(lambda: not stream.trigger() and queues.count() == 1)
        has_everything(stream, ids)
        postgresql.execute("DROP TABLE kept")
        eventually(lambda: not stream.trigger() and elsewhere.count() == 1)
        assert queues.count() == 0


def test_a_queue_that_is_locked_when_it_is_looked_at_first_does_not_hold_up_the_others(postgresql):
    queues = Queues(postgresql, *FIVE)
    ids = fill(queues)
    with streaming(postgresql, queues, queues=queues.listed, **SMALL) as stream:
        stream._receiver = Reader(Receiver(stream.options, on_first_open=_look_round))
        with queues["c"].session() as other:
            other.connection.execute("LOCK TABLE c IN ACCESS EXCLUSIVE MODE")  # type: ignore[attr-defined]
            eventually(lambda: not stream.trigger() and queues["e"].count() == 0)
            has_everything(stream, ids, "abde")
        eventually(lambda: not stream.trigger() and queues["c"].count() == 0)
        has_everything(stream, ids)


def test_a_run_that_begins_while_a_queue_is_locked_does_not_end_without_it(postgresql, monkeypatch):
    monkeypatch.setattr(database_retry, "RETRY_SECONDS", 1.0)
    queues = Queues(postgresql, *FIVE)
    ids = fill(queues)
    with streaming(postgresql, queues, queues=queues.listed, **SMALL) as stream:
        with queues["c"].session() as other:
            cursor = other.connection.cursor()  # type: ignore[attr-defined] # a PostgreSQL session's own
            cursor.execute("LOCK TABLE c IN ACCESS EXCLUSIVE MODE")
            stream.receiver.stop_at_present_end()
            with pytest.raises(TryAgain, match="locked by someone else while looking at c@"):
                assert [stream.trigger() for _ in range(20)] == []
            has_everything(stream, ids, "abde")
        while stream.trigger():
            pass
        has_everything(stream, ids)


def test_a_pattern_may_match_nothing_at_first(engine, monkeypatch):
    monkeypatch.setattr(stream_scanner, "_LIST_SECONDS", 1.0)
    clock = Clock()
    with streaming(engine, Rest({}, ()), queuePattern="Sales.*") as stream:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        assert not stream.trigger()
        engine.create_queue("Sales").insert(3)
        assert [stream.trigger() for _ in range(10)].count(True) == 1
        assert by_queue(stream.messages()) == {"Sales": [1, 2, 3]}


@pytest.mark.parametrize("when", ["at the start", "mid-run"])
def test_a_run_does_not_end_as_if_all_its_locked_queues_were_empty(postgresql, monkeypatch, when):
    monkeypatch.setattr(database_retry, "RETRY_SECONDS", 1.0)
    queues = Queues(postgresql, "a", "b")
    for queue in queues:
        queue.insert(10)
    with streaming(postgresql, queues, queues=queues.listed) as stream:
        if when == "mid-run":
            stream.receiver.stop_at_present_end()
        with queues["a"].session() as other:
            cursor = other.connection.cursor()  # type: ignore[attr-defined] # a PostgreSQL session's own
            cursor.execute("LOCK TABLE a, b IN ACCESS EXCLUSIVE MODE")
            if when == "at the start":
                stream.receiver.stop_at_present_end()
            with pytest.raises(TryAgain, match="locked by someone else"):
                stream.trigger()
        while stream.trigger():
            pass
        assert queues.count() == 0
