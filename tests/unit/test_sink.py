"""The sink without Spark: what it remembers of its batches, and what it tells the code that seals a stage."""

import copy
import pickle
from dataclasses import asdict, replace
from types import SimpleNamespace
from unittest import mock

import pytest

from sqlqueue_spark.errors import ConfigurationError, QueueError, TryAgain
from sqlqueue_spark.options import ATOMIC, SinkOptions
from sqlqueue_spark.send.deliver.stage_writer import Staged
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.spark.sink import SqlQueueSink
from sqlqueue_spark.tables.stages.stage import StageRun
from sqlqueue_spark.tables.stages.stage_mark import Batch

RUN = StageRun(name="a run", batch=Batch(number=7))


def row(sent, **more):
    """What a task tells."""
    return SimpleNamespace(**asdict(sent), **more)


TYPES = {"Queue": "string", "Id": "string", "RowVersion": "bigint", "Headers": "string", "Body": "binary"}
TYPES |= {"Outgoing": "void"}


@pytest.fixture(autouse=True)
def _prepared():
    """Every destination is there."""

    def prepare(*_given, batch, **_more):
        return replace(RUN, batch=Batch(number=batch.number))

    with mock.patch("sqlqueue_spark.spark.sink.prepare", prepare):
        yield


@pytest.fixture(autouse=True)
def looks():
    """What a sink does in place of its look, which would ask the network for a host."""
    with mock.patch("sqlqueue_spark.spark.sink.look_before") as look_before:
        yield look_before


def frame(*columns, told=(), query=None):
    """A frame of these columns and a body; its tasks tell this. It is of this query, if Spark tells that."""
    session = SimpleNamespace()
    if query is not None:
        told_by_spark = {"sql.streaming.queryId": query, "spark.jobGroup.id": f"run of {query}"}
        session.sparkContext = SimpleNamespace(getLocalProperty=told_by_spark.get)
    found = mock.Mock(dtypes=[(each, TYPES[each]) for each in [*columns, "Body"]], sparkSession=session)
    found.mapInArrow.return_value.collect.return_value = list(told)
    return found


def test_a_sink_remembers_its_last_hundred_batches():
    """What it sent in each."""
    sink = SqlQueueSink(url="postgresql://h/d", queue="orders", outbox="none")
    for batch_id in (*range(150), 60, 150):
        sink(frame(told=[row(Sent(sent=batch_id))]), batch_id)
    known = {batch_id: sink.sent_in(batch_id) for batch_id in range(200)}
    assert {number: sent for number, sent in known.items() if sent is not None} == {
        number: Sent(sent=number) for number in range(51, 151)
    }
    assert sink.details(60) == "sent=60 repeated=0"


@pytest.mark.parametrize(
    "columns, own_ids",
    [(["Headers"], False), (["Id"], True), (["Id", "RowVersion"], False)],
    ids=["new messages", "rows with Ids of their own", "rows that were received"],
)
def test_only_written_ids_may_be_there_already(columns, own_ids):
    """All messages with these Ids are sent and taken back before the batch is done;
    else one a destination is enough.
    """
    given = {"url": "postgresql://h/d", "queue": "billing", "transactionMode": ATOMIC, "stream": "Forward"}
    with mock.patch("sqlqueue_spark.spark.sink.seal") as seal:
        SqlQueueSink(options=given)(frame(*columns), 7)
    assert seal.mock_calls == [mock.call(SinkOptions.parse(given), [], RUN, own_ids=own_ids, void=[])]


def test_the_stage_is_told_which_destinations_messages_have_named():
    """Only these are looked at before they are written to, and only these may refuse messages."""
    given = {"url": "postgresql://h/d", "queue": "billing", "transactionMode": ATOMIC, "stream": "Forward"}
    told = row(Sent(sent=3), task="a task", destinations=["billing", "orders"], named=["orders"], rows=3)
    with mock.patch("sqlqueue_spark.spark.sink.seal") as seal:
        SqlQueueSink(options=given)(frame("Headers", told=[told]), 7)
    staged = Staged(task="a task", destinations=["billing", "orders"], named=["orders"], rows=3)
    assert seal.mock_calls == [mock.call(SinkOptions.parse(given), [staged], RUN, own_ids=False, void=[])]


@pytest.mark.parametrize("mode", [{"outbox": "none"}, {"transactionMode": ATOMIC, "stream": "Forward"}])
def test_messages_without_a_type_are_said_once(caplog, mode):
    """On the driver, whose log people read."""
    sink = SqlQueueSink.of(SinkOptions.parse({"url": "postgresql://h/d", "queue": "orders", **mode}))
    told = (
        row(Sent(sent=3, untyped=2))
        if "outbox" in mode
        else row(Sent(sent=3, untyped=2), task="a task", destinations=["orders"], named=[], rows=3)
    )
    with mock.patch("sqlqueue_spark.spark.sink.seal"), caplog.at_level("WARNING"):
        for batch_id in (7, 8):
            sink(frame("Headers", told=[told, told]), batch_id)
    (said,) = caplog.messages
    assert said == (
        "without_type messages=4: a .NET endpoint cannot handle a message without a type, and moves it to "
        "its error queue; set the option messageType, or give the header NServiceBus.EnclosedMessageTypes"
    )


def test_a_sink_looks_once_and_only_in_the_process_in_which_it_was_made(looks, monkeypatch):
    """Through Spark Connect that process may not reach the database. A job has looked before."""
    options = SinkOptions.parse({"url": "postgresql://h/d", "queue": "orders", "outbox": "none"})
    made = SqlQueueSink(url="postgresql://h/d", queue="orders", outbox="none")
    assert looks.mock_calls == [mock.call(options)]
    SqlQueueSink.of(options)
    assert repr(copy.copy(made)) == repr(made)  # by its state, as a pickle
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    SqlQueueSink(url="postgresql://h/d", queue="orders", outbox="none")
    assert looks.mock_calls == [mock.call(options)]


@pytest.mark.parametrize("mode", [{"outbox": "none"}, {"transactionMode": ATOMIC, "stream": "Forward"}])
def test_a_job_looks_at_each_batch_before_spark_logs_it(mode):
    """Also at one that stands on the stage already, because it was sent again."""
    sink = SqlQueueSink(options={"url": "postgresql://h/d", "queue": "orders", **mode})
    told = row(Sent(sent=3, received=3), task="a task", destinations=["orders"], named=[], rows=3)
    batch, seen = frame("Headers", told=[told, told]), []
    sink.check = lambda sent: seen.append(sent.received)
    with mock.patch("sqlqueue_spark.spark.sink.seal"):
        sink(batch, 7)
        sink(batch, 7)
        sink.check = mock.Mock(side_effect=ConfigurationError("wrong"))
        with pytest.raises(ConfigurationError, match="wrong"):
            sink(batch, 7)
    assert seen == [6, 6]


@pytest.mark.parametrize("stores", [{}, {"storeAndForward": "outgoing"}])
@pytest.mark.parametrize("in_job", [True, False])
def test_a_sink_that_stores_for_another_database_leaves_its_ids_to_the_job_that_sends_there(stores, in_job):
    """That job may keep ids for longer."""
    given = {"url": "postgresql://h/d", "endpoint": "E", "queue": "far", **stores}
    sink = SqlQueueSink.of(SinkOptions.parse({**given, "endpoint.far.url": "postgresql://h/f"}))
    databases = mock.Mock(down=set)
    sink.databases = databases if in_job else None
    with mock.patch.object(sink, "_cleaner") as cleaner:
        sink(frame("Headers", told=[row(Sent(sent=1))]), 7)
    (cleaned,) = (databases.clean if in_job else cleaner.clean_when_due).mock_calls
    everywhere = ["postgresql://h/d", "postgresql://h/f"]
    assert [each.url for each in cleaned.args[-1]] == everywhere[: 1 if stores else 2]


@pytest.mark.parametrize(
    "columns, in_job, error, waits",
    [
        (["Queue", "RowVersion", "Id", "Headers"], True, QueueError, False),
        (["Headers"], True, QueueError, True),
        (["Headers"], True, ConfigurationError, False),
        (["Queue", "RowVersion", "Id", "Headers"], False, QueueError, True),
        (["Queue", "RowVersion", "Id", "Headers"], False, ConfigurationError, False),
    ],
)
def test_an_error_is_raised_at_once_where_rows_wait_by_themselves_or_it_is_final(
    columns, in_job, error, waits
):
    """It has nothing to do with a database that is down. Else the batch waits for that one first."""
    sink = SqlQueueSink(
        url="postgresql://h/d",
        queue="billing",
        outbox="none",
        options={"endpoint.far.url": "postgresql://h/f"},
    )
    sink.databases = mock.Mock() if in_job else None
    failing = mock.patch("sqlqueue_spark.spark.sink.prepare", side_effect=error("wrong"))
    waiting = mock.patch("sqlqueue_spark.spark.sink.database_came_back", return_value=False)
    with failing, waiting as back, pytest.raises(error, match="wrong"):
        sink(frame(*columns), 7)
    call = mock.call(sink.places, 7, reached=False, stopped=sink.stopped)
    assert back.mock_calls == [call] * waits


def test_outcomes_that_are_sent_again_after_a_wait_are_no_second_frame(caplog, monkeypatch):
    """Spark computes the function again for a second frame of the batch, and a message may be in none."""
    monkeypatch.setattr("sqlqueue_spark.spark.sink.database_came_back", mock.Mock(side_effect=[True, False]))
    given = {"url": "postgresql://h/d", "endpoint": "E", "errorQueue": "error", "disableCleanup": "true"}
    sink = SqlQueueSink(options=given)
    outcomes, others = (frame("Queue", "Id", "RowVersion", "Headers", "Outgoing", query="a") for _ in "12")
    for each in outcomes, others:
        each.drop.return_value = each
        each._jdf.queryExecution().withCachedData().toString.return_value = "a scan"
    outcomes.mapInArrow.return_value.collect.side_effect = [TryAgain("It is down."), []]
    sink(outcomes, 7)
    assert "computed_again" not in caplog.text
    sink(others, 7)
    assert caplog.text.count("outcomes_computed_again batch=7") == 1


def test_through_spark_connect_a_sink_has_the_environment_of_its_source(monkeypatch):
    """It is made on another machine than Spark's driver, where the source reads its options."""
    given = {
        "url": "postgresql://h",
        "queue": "far",
        "outbox": "none",
        "endpoint.far.url": "postgresql://h/f",
    }
    monkeypatch.setenv("PGUSER", "client")
    options = SinkOptions.parse(given)
    travels = pickle.dumps(SqlQueueSink.of(options, options))
    monkeypatch.setenv("PGUSER", "server")
    found = {}
    for here in ("classic", "connect"):
        if here == "connect":
            monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        places = pickle.loads(travels).places  # noqa: S301 -- our own
        all_of_it = (places.home, places.away, places.at_home)
        found[here] = [dict(each.environment)["PGUSER"] for each in all_of_it]
    assert found == {"classic": ["client"] * 3, "connect": ["server"] * 3}
