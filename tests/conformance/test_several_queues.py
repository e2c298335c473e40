"""One stream over several queues: one batch, one transaction, a fair share of each."""

import json
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.claiming import queue_list
from sqlqueue_spark.receive.claiming.late_rows import Head
from sqlqueue_spark.receive.reading.peek import plan_peek
from sqlqueue_spark.tables.queues import Queue
from tests.support.clock import Clock
from tests.support.driver import streaming, told
from tests.support.engines import with_catalog
from tests.support.messages import row_id, row_ids
from tests.support.several import Queues, by_queue, ids_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all", variants="nightly")


@pytest.fixture
def queues(engine):
    return Queues(engine, "a", "b", "c")


def test_a_batch_has_rows_of_every_queue(queues, engine):
    """Each row says in which queue it was; the address is the one that jobs give to handlers."""
    for count, table in enumerate(queues, start=1):
        table.insert(count)
    with streaming(engine, queues, queues=queues.listed) as stream:
        assert stream.trigger()
        assert by_queue(stream.messages()) == {"a": [1], "b": [1, 2], "c": [1, 2, 3]}
        schema = engine.default_schema
        assert {each["Queue"] for each in stream.messages()} == {f"{name}@[{schema}]" for name in "abc"}
        assert not stream.trigger()
        assert queues.count() == 0


def test_order_within_a_queue_is_kept(queues, engine):
    for table in queues:
        table.insert(50)
    with streaming(engine, queues, queues=queues.listed, maxMessagesPerTrigger="31") as stream:
        stream.drain()
        everything = list(range(1, 51))
        assert by_queue(stream.messages()) == {"a": everything, "b": everything, "c": everything}
        assert [len(batch) for batch in stream.batches()] == [31, 31, 31, 31, 26]


def test_a_huge_backlog_does_not_starve_the_others(queues, engine):
    """What small queues leave of their share goes to the large one, from the second batch on."""
    queues["a"].insert(2000)
    with streaming(
        engine, queues, queues=queues.listed, maxMessagesPerTrigger="300", claimAhead="false"
    ) as stream:
        for turn in range(4):
            queues["b"].insert(10, start=10 * turn)
            queues["c"].insert(20, start=20 * turn)
            assert stream.trigger()
        batches = [by_queue(stream.sink[batch]) for batch in range(4)]
        assert [{name: len(rows) for name, rows in batch.items()} for batch in batches] == [
            {"a": 100, "b": 10, "c": 20},
            {"a": 270, "b": 10, "c": 20},
            {"a": 270, "b": 10, "c": 20},
            {"a": 270, "b": 10, "c": 20},
        ]


def test_where_a_batch_has_fewer_rows_than_there_are_queues_each_comes_in_turn(queues, engine):
    for table in queues:
        table.insert(4)
    with streaming(
        engine, queues, queues=queues.listed, maxMessagesPerTrigger="2", claimAhead="false"
    ) as stream:
        for _ in range(3):
            assert stream.trigger()
        assert by_queue(stream.messages()) == {"a": [1, 2], "b": [1, 2], "c": [1, 2]}


@pytest.mark.parametrize("mode", ["true", "false"])
def test_a_queue_whose_numbers_begin_again_is_not_starved_by_a_backlog(postgresql, monkeypatch, mode):
    """While one claim ahead follows another, the stream looks below them now and then."""
    monkeypatch.setattr(Head, "_WHOLE_SECONDS", 0.2)
    queues = Queues(postgresql, "a", "b")
    queues["a"].insert(8000)
    queues["b"].insert(60)
    options = {"maxMessagesPerTrigger": "100", "minMessagesPerPartition": "1000", "claimAhead": mode}
    with streaming(postgresql, queues, queues=queues.listed, **options) as stream:
        for _ in range(8):
            assert stream.trigger()
        assert queues["b"].count() == 0
        queues["b"].execute("TRUNCATE {table} RESTART IDENTITY")
        queues["b"].insert(5, start=1000)
        while queues["b"].count() and queues["a"].count():
            assert stream.trigger()
        assert queues["a"].count() > 0
        assert sorted(ids_of(stream, "b"))[-5:] == row_ids(range(1000, 1005))


def test_a_claim_ahead_has_rows_of_every_queue(queues, engine):
    for table in queues:
        table.insert(40)
    with streaming(
        engine, queues, queues=queues.listed, maxMessagesPerTrigger="30", adaptiveBatch="false"
    ) as stream:
        stream.drain()
        shares = [
            {name: len(rows) for name, rows in by_queue(stream.sink[each]).items()} for each in stream.sink
        ]
        assert shares == [{"a": 10, "b": 10, "c": 10}] * 4


MODES: dict[str, dict[str, Any]] = {"receiveOnly": {}, "none": {"transactionMode": "none"}}


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_every_message_comes_once(mode, queues, engine):
    for table in queues:
        table.insert(100)
    small: dict[str, Any] = {
        "maxMessagesPerTrigger": "70",
        "minMessagesPerPartition": "20",
        "maxConcurrency": "2",
    }
    with streaming(engine, queues, queues=queues.listed, **small, **mode) as stream:
        stream.drain()
        assert [ids_of(stream, name) for name in "abc"] == [row_ids(range(100))] * 3
        assert queues.count() == 0


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_a_slice_goes_over_several_queues(mode, queues, engine):
    """A slice has a fixed cost, so ten small queues are no ten slices."""
    for table in queues:
        table.insert(10)
    small: dict[str, Any] = {"minMessagesPerPartition": "15", "maxConcurrency": "2"}
    with streaming(engine, queues, queues=queues.listed, **small, **mode) as stream:
        assert stream.construct()
        tasks = stream.tasks()
        assert [[(part.address.partition("@")[0], len(part.rows)) for part in task] for task in tasks] == [
            [("a", 10), ("b", 5)], [("b", 5), ("c", 10)],
        ]  # fmt: skip
        assert by_queue(stream.read([part for task in tasks for part in task])) == {
            name: list(range(1, 11)) for name in "abc"
        }


def peeked(engine, **options):
    given = SourceOptions.parse({"url": engine.url, **options})
    reader = SliceReader(Target.of(given))
    return [row for part in plan_peek(given) for batch in reader.peek(part) for row in batch.to_pylist()]


def test_a_peek_shows_the_rows_of_every_queue(queues, engine):
    for count, table in enumerate(queues, start=1):
        table.insert(count)
    everything = {"a": [1], "b": [1, 2], "c": [1, 2, 3]}
    assert by_queue(peeked(engine, queues=queues.listed)) == everything
    assert by_queue(peeked(engine, queuePattern="[bc]")) == {"b": [1, 2], "c": [1, 2, 3]}
    assert peeked(engine, queuePattern="nothing") == []
    assert queues.count() == 6


def test_a_pattern_that_takes_for_ever_is_refused(engine, monkeypatch):
    """A user of SQL may have written it."""
    Queues(engine, "a" * 50)
    monkeypatch.setattr(queue_list, "_MATCH_SECONDS", 0.5)
    with pytest.raises(ConfigurationError) as caught:
        peeked(engine, queuePattern="(a+)+b")
    assert str(caught.value) == (
        "To match the names of the queues by the option queuePattern '(a+)+b' takes longer than 0.5 s; "
        "write it without a repetition within a repetition, or list them as queues."
    )


def test_few_lists_of_queues_are_remembered():
    """Of 10,000 queues that come and go each list takes 2 MB, and a stream runs for weeks."""
    for number in range(20):
        assert queue_list.of_pattern("a.", (f"a{number % 10}", f"b{number}")) == {f"a{number % 10}"}
    assert queue_list.of_pattern.cache_info().currsize == 10


def test_a_pattern_matches_whole_names_of_queue_tables_in_the_default_schema(engine):
    Queues(engine, "Sales.A", "Sales.B", "Sales")
    engine.create_queue("Sales.C", schema="elsewhere").insert(1)
    for name in ("Sales.A", "Sales.B", "Sales"):
        engine.queue(name).insert(1)
    engine.execute(f'CREATE TABLE {engine.default_schema}."Sales.D" (headers varchar(9), body varchar(9))')
    assert sorted(by_queue(peeked(engine, queuePattern=r"Sales\..+"))) == ["Sales.A", "Sales.B"]
    assert by_queue(peeked(engine, queuePattern=".*", defaultSchema="elsewhere")) == {"Sales.C": [1]}


def test_a_queue_of_the_list_that_is_not_there_is_refused_at_the_start(queues, engine):
    listed = json.dumps([queues["a"].address, "order"])
    engine.create_queue("Order")
    with (
        streaming(engine, queues, queues=listed) as stream,
        pytest.raises(
            QueueError, match=r"There is no queue table order@.*but there is Order@.*sqlqueue create"
        ),
    ):
        stream.trigger()


def test_a_queue_that_is_listed_in_two_forms_is_refused(queues, engine):
    listed = json.dumps(["a", queues["a"].address])
    with (
        streaming(engine, queues, queues=listed) as stream,
        pytest.raises(ConfigurationError, match=r"names the queue a@.* twice, in two forms; name it once\."),
    ):
        stream.trigger()


def test_a_run_ends_at_the_rows_that_each_queue_has_at_its_start(queues, engine):
    for table in queues:
        table.insert(50)
    with streaming(engine, queues, queues=queues.listed, maxMessagesPerTrigger="40") as stream:
        stream.receiver.stop_at_present_end()
        for table in queues:
            table.insert(5, start=50)
        while stream.trigger():
            pass
        assert by_queue(stream.messages()) == {name: list(range(1, 51)) for name in "abc"}
        assert queues.count() == 15


def test_everything_at_once_is_everything_of_every_queue(queues, engine):
    for table in queues:
        table.insert(50)
    with streaming(engine, queues, queues=queues.listed, maxMessagesPerTrigger="7") as stream:
        end = stream.receiver.latest(stream.end(0), None)
        assert [part["rows"] for part in end["queues"]] == [50, 50, 50]


def test_expired_rows_of_every_queue_are_deleted_and_not_emitted(queues, engine):
    """Those of a queue without live rows in the batch, too; and where no queue has any, without a batch."""
    past = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone
    queues["a"].insert(3)
    queues["b"].insert(4, expires=past)
    queues["c"].insert(5, expires=past)
    queues["c"].insert(2, start=5)
    with streaming(engine, queues, queues=queues.listed) as stream:
        stream.drain()
        assert by_queue(stream.messages()) == {"a": [1, 2, 3], "c": [6, 7]}
        queues["a"].insert(3, expires=past)
        queues["b"].insert(3, expires=past)
        eventually(lambda: stream.trigger() or queues.count() == 0)
        assert len(stream.offsets) == 1


def test_messages_in_transit_are_moved_on_from_every_queue(queues, engine):
    """They are in no batch, and do not hold up the others."""
    billing = engine.create_queue("billing")
    to = '"public"."billing"' if engine.name == "postgresql" else "billing@[dbo]"
    headers = json.dumps({"NServiceBus.MessageId": "m", FORWARD_DESTINATION: to})
    for number, table in enumerate(queues):
        table.insert(2)
        table.insert_row(id=row_id(100 + number), headers=headers, body=b"x")
        table.insert(2, start=2)
    with streaming(engine, queues, queues=queues.listed) as stream:
        stream.drain()
        assert by_queue(stream.messages()) == {name: [1, 2, 4, 5] for name in "abc"}
    assert (billing.count(), queues.count()) == (3, 0)


def test_it_is_told_how_much_waits_in_all_queues(queues, engine):
    for table in queues:
        table.insert(50)
    with streaming(engine, queues, queues=queues.listed, maxMessagesPerTrigger="30") as stream:
        assert stream.construct()
        told = stream.receiver.waiting()
        assert told is not None
        assert (told["rows"], told["leftToNeighbours"]) == (120, 0)


def test_what_waits_is_told_of_each_queue_and_not_of_one_that_fails(queues, engine):
    for count, table in zip((10, 20, 30), queues, strict=True):
        table.insert(count)
    clock = Clock()
    given = {"queues": queues.listed, "maxMessagesPerTrigger": "15", "pollInterval": "1m"}
    with streaming(engine, queues, **given) as stream:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        assert stream.trigger()
        told = stream.receiver.waiting() or {}
        names = [with_catalog(engine, name) for name in "abc"]
        assert ({name: each["rows"] for name, each in told["queues"].items()}, "lookedAt" in told) == (
            dict(zip(names, (5, 15, 25), strict=True)),
            False,
        )
        stream.receiver.settle(stream.end(stream.done))
        queues["a"].execute("DROP TABLE {table}")
        clock.now += 1
        assert stream.trigger()
        told = stream.receiver.waiting() or {}
        assert set(told["queues"]) == set(names[1:])


def test_an_idle_queue_is_looked_at_once_an_interval(queues, engine, monkeypatch):
    """And no more often while the others have rows."""
    looks = Counter[str]()
    claim = Queue.claim

    def counted(self, *arguments):
        looks[self.table.table.table] += 1
        return claim(self, *arguments)

    monkeypatch.setattr(Queue, "claim", counted)
    clock = Clock()
    with streaming(engine, queues, queues=queues.listed, pollInterval="1s", claimAhead="false") as stream:
        stream.time = {"clock": clock, "sleep": clock.sleep}
        for turn in range(100):
            queues["a"].insert(1, start=turn)
            stream.trigger()
            clock.sleep(0.25)
    assert looks["a"] >= 100
    assert 25 <= looks["b"] <= 2 * (25 + 5)  # each look goes on from the last claim, or over the whole table


def test_a_batch_is_settled_when_the_done_file_says_so(queues, engine, tmp_path):
    for table in queues:
        table.insert(5)
    done = tmp_path / "done"
    with streaming(engine, queues, queues=queues.listed, doneFile=str(done)) as stream:
        assert stream.trigger()
        told(done, stream.end(1))
        eventually(lambda: queues.count() == 0)


def test_while_the_stop_file_is_there_nothing_is_claimed(queues, engine, tmp_path):
    queues["a"].insert(5)
    stop = tmp_path / "stop"
    stop.touch()
    with streaming(engine, queues, queues=queues.listed, stopFile=str(stop)) as stream:
        assert not stream.trigger()
        stop.unlink()
        assert stream.trigger()
