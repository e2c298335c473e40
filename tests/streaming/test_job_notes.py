"""What a job notes beside its checkpoint, and when it does not begin under other options."""

import json
import os

import psycopg
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import ConnectionLost
from sqlqueue_spark.messages.message import MESSAGE_ID
from sqlqueue_spark.pipeline.running import changed_options, program
from sqlqueue_spark.pipeline.running.changed_options import NOTE
from sqlqueue_spark.pipeline.running.checkpoint_folder import Files
from sqlqueue_spark.spark.sink import SqlQueueSink
from tests.support.delayed import DelayedRows, move
from tests.support.gate import gated
from tests.support.messages import body, message_id, row_id
from tests.support.stored import create_home, create_outbox, numbers_in, store
from tests.support.subscriptions import SubscriptionRows
from tests.support.waiting import eventually

pytestmark = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)

FORWARD = ("forward", "--to", "billing")
STORE = ("store-and-forward", "--error-queue", "error")


@pytest.fixture
def job(spark, engine, tmp_path, monkeypatch):
    """Run a job as its command, in the session that the tests share; returns exit code and complaint."""
    monkeypatch.setattr(program, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(name, *arguments, to=None, url=None, ends=True, sink=None):
        config = tmp_path / "job.toml"
        config.write_text(
            "[sink]\n" + "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in (sink or {}).items())
        )
        given = ("outgoing", "--endpoint", "Shop.Forward", "--checkpoint", str(tmp_path / "checkpoint"))
        environment = {"SQLQUEUE_URL": url or engine.url, "SQLQUEUE_SINK_URL": to}
        flags = (*given, "--config", str(config), *(["--available-now"] if ends else []), *arguments)
        result = CliRunner(env=environment).invoke(main, [name, *flags])
        return result.exit_code, result.stderr

    return run


@pytest.fixture
def outgoing(engine):
    """The queue of the job, and what it needs at home."""
    engine.create_queue("local")
    return create_home(engine, "Shop.Forward", "outgoing")


def with_billing(*others):
    """The queue ``billing`` and an outbox in each of these databases."""
    for each in others:
        create_outbox(each, "Shop.Forward")
    return [each.create_queue("billing") for each in others]


def sent_and_not_settled(job, outgoing, url):
    """A run that ends by an error when it has sent three of its four messages."""
    store(outgoing, range(3))
    store(outgoing, [3], to=None)
    assert job(*STORE, to=url)[0] == 1


def left(job_said):
    code, said = job_said
    return code == 1 and "the last run has left messages that may then be sent twice" in said


# -- what is left --------------------------------------------------------------------------------


def test_rows_that_were_put_back_and_not_received_are_left(engine, elsewhere, third, job, outgoing, tmp_path):
    """They had arrived before they waited, and the run is asked to stop before it receives them again."""
    billing, wrong = with_billing(elsewhere, third)
    stop = tmp_path / "stop"
    with gated(elsewhere.url) as gate:
        sent_and_not_settled(job, outgoing, gate.url)
        gate.shut()
        assert job(*STORE, "--local-queue", "local", to=gate.url) == (0, "")
        gate.open()
        stop.touch()
        stopped = ("--set", f"source.stopFile={stop}")
        assert job(*STORE, "--local-queue", "local", *stopped, to=gate.url, ends=False) == (0, "")
    assert (outgoing.count(), DelayedRows(engine, "outgoing").count()) == (3, 0)
    assert left(job(*STORE, "--local-queue", "local", to=third.url))
    assert (numbers_in(billing), wrong.count(), outgoing.count()) == ([0, 1, 2], 0, 3)


def test_rows_that_come_back_when_a_run_has_seen_its_end_are_left(
    engine, elsewhere, third, job, outgoing, monkeypatch
):
    """A run with an end receives what stood in the queue when it began."""
    billing, wrong = with_billing(elsewhere, third)
    waiting, local, send = DelayedRows(engine, "outgoing"), engine.queue("local"), SqlQueueSink.__call__
    with gated(elsewhere.url) as gate:

        def sent_until_the_end(sink, frame, number):
            send(sink, frame, number)
            if local.count() == 7:  # it was the last batch
                assert waiting.count() == 3
                gate.open()
                eventually(lambda: waiting.count() == 0)

        sent_and_not_settled(job, outgoing, gate.url)
        gate.shut()
        store(outgoing, range(4, 10), to=None)
        monkeypatch.setattr(SqlQueueSink, "__call__", sent_until_the_end)
        slow = ("--set", "source.maxMessagesPerTrigger=1", "--set", "sink.retryInterval=50ms")
        assert job(*STORE, "--local-queue", "local", *slow, to=gate.url) == (0, "")
    assert (outgoing.count(), waiting.count(), local.count()) == (3, 0, 7)
    assert left(job(*STORE, "--local-queue", "local", to=third.url))
    assert (numbers_in(billing), wrong.count()) == ([0, 1, 2], 0)


def test_rows_that_another_mover_has_put_back_are_left(engine, elsewhere, third, job, outgoing):
    """They had arrived before they waited, and when their time comes any mover may put them back."""
    billing, wrong = with_billing(elsewhere, third)
    with gated(elsewhere.url) as gate:
        sent_and_not_settled(job, outgoing, gate.url)
        gate.shut()
        for _ in range(2):  # the second run lets none wait, and ends while they do
            assert job(*STORE, "--local-queue", "local", to=gate.url) == (0, "")
    DelayedRows(engine, "outgoing").make_due("7 days")
    assert move(engine, "outgoing") == (3, 0)
    assert (outgoing.count(), DelayedRows(engine, "outgoing").count()) == (3, 0)
    assert left(job(*STORE, "--local-queue", "local", to=third.url))
    assert (numbers_in(billing), wrong.count(), outgoing.count()) == ([0, 1, 2], 0, 3)


def test_rows_given_back_after_a_loss_of_their_claim_are_left(
    engine, elsewhere, third, job, outgoing, tmp_path, monkeypatch
):
    """What is passed on has no outcome at home, so it comes again, unless the run is asked to stop."""
    billing, wrong = with_billing(elsewhere, third)
    store(outgoing, range(3))
    stop, send = tmp_path / "stop", SqlQueueSink.__call__
    with gated(engine.url) as home:

        def sent_and_lost(sink, frame, number):
            send(sink, frame, number)
            stop.touch()
            home.cut()

        monkeypatch.setattr(SqlQueueSink, "__call__", sent_and_lost)
        stopped = ("--set", f"source.stopFile={stop}")
        assert job(*STORE, *stopped, url=home.url, to=elsewhere.url, ends=False)[0] == 0
    assert outgoing.count() == 3
    assert left(job(*STORE, to=third.url))
    assert (numbers_in(billing), wrong.count(), outgoing.count()) == ([0, 1, 2], 0, 3)


def test_a_run_that_ends_before_its_first_batch_leaves_nothing(elsewhere, third, job, outgoing, tmp_path):
    billing, wrong = with_billing(elsewhere, third)
    store(outgoing, range(2))
    metadata = tmp_path / "checkpoint" / "metadata"
    metadata.parent.mkdir()
    metadata.write_text('{"id": "no UUID"}')
    assert job(*STORE, to=third.url)[0] == 1
    metadata.unlink()
    assert job(*STORE, to=elsewhere.url) == (0, "")
    assert (numbers_in(billing), wrong.count()) == ([0, 1], 0)


def test_what_was_published_as_one_type_or_was_published_at_all_is_not_sent_otherwise(engine, job, outgoing):
    """The sink may have sent a part of a batch, and subscribers of another type have nothing of it."""
    placed, other = engine.create_queue("placed"), engine.create_queue("other")
    subscriptions = SubscriptionRows(engine).create()
    subscriptions.add(placed, "Shop.Placed")
    subscriptions.add(other, "Shop.Other")
    outgoing.insert_row(id=row_id(0), headers=json.dumps({MESSAGE_ID: message_id(0)}), body=body(0))
    outgoing.insert_row(id=row_id(9), headers="no JSON", body=b"{}")
    sink = {"publish": "true", "messageType": "Shop.Placed"}
    assert job("forward", sink=sink)[0] == 1
    error = ("--error-queue", "error")
    assert left(job("forward", *error, sink={**sink, "messageType": "Shop.Other"}))
    assert left(job("forward", *error, sink={"queue": "other"}))
    assert job("forward", *error, sink=sink) == (0, "")
    assert (numbers_in(placed), other.count(), engine.queue("error").count()) == ([0], 0, 1)


# -- which database it is ------------------------------------------------------------------------


def test_nothing_is_sent_to_a_database_of_which_it_is_not_known_which_it_is(
    engine, elsewhere, job, outgoing, tmp_path, monkeypatch
):
    """It answers the look, and is down again when it is asked which one it is."""
    (billing,) = with_billing(elsewhere)

    def lost(*_, **__):
        raise ConnectionLost("It is down.")

    monkeypatch.setattr(changed_options, "identity", lost)
    store(outgoing, range(3))
    assert job(*STORE, to=elsewhere.url)[0] == 0
    noted = json.loads((tmp_path / "checkpoint" / NOTE).read_text())["means"]["sink.url"]["database"]
    assert (noted, billing.count(), DelayedRows(engine, "outgoing").count()) == (None, 0, 3)


def test_a_url_that_leads_to_another_database_than_it_did_is_another_url(
    engine, elsewhere, third, job, outgoing
):
    """The name of its host or database means another one now."""
    billing, wrong = with_billing(elsewhere, third)
    name, other = (each.url.rpartition("/")[2] for each in (elsewhere, third))

    def rename(*names):
        with psycopg.connect(f"{engine.url.rpartition('/')[0]}/postgres", autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname <> 'postgres'"
            )
            for before, after in names:
                admin.execute(f'ALTER DATABASE "{before}" RENAME TO "{after}"')

    sent_and_not_settled(job, outgoing, elsewhere.url)
    rename((name, "aside"), (other, name))
    assert left(job(*STORE, "--local-queue", "local", to=elsewhere.url))
    rename((name, other), ("aside", name))
    assert (numbers_in(billing), wrong.count()) == ([0, 1, 2], 0)
    assert job(*STORE, "--local-queue", "local", to=elsewhere.url)[0] == 0
    assert (numbers_in(billing), wrong.count(), outgoing.count()) == ([0, 1, 2], 0, 0)


SQL = ("forward", "--sql", "SELECT *, 'billing' AS Destination FROM messages")


@pytest.mark.parametrize("errors", [(), ("--error-queue", "error")], ids=["batches wait", "rows wait"])
def test_a_database_without_an_outbox_may_be_corrected(elsewhere, third, job, outgoing, errors):
    """Nothing was sent there."""
    (billing,) = with_billing(elsewhere)
    store(outgoing, range(3), to=None)
    code, said = job(*SQL, *errors, sink={"endpoint.billing.url": third.url})
    assert (code, "There is no outbox table" in said) == (1, True)
    assert job(*SQL, *errors, sink={"endpoint.billing.url": elsewhere.url}) == (0, "")
    assert (numbers_in(billing), outgoing.count()) == ([0, 1, 2], 0)


def test_a_url_of_which_no_server_was_reached_may_be_left_out(engine, elsewhere, job, outgoing):
    """What has waited for that database goes where its address leads now."""
    billing = engine.create_queue("billing")
    store(outgoing, range(2), to=None)
    with gated(elsewhere.url) as gate:
        gate.shut()
        assert job(*SQL, "--error-queue", "error", sink={"endpoint.billing.url": gate.url})[0] == 0
    assert DelayedRows(engine, "outgoing").count() == 2
    assert job(*SQL, "--error-queue", "error") == (0, "")
    assert (sorted(numbers_in(billing)), DelayedRows(engine, "outgoing").count()) == ([0, 1], 0)


def test_a_database_to_which_nothing_is_sent_may_be_down_at_the_first_start(engine, elsewhere, job, outgoing):
    """Messages for it are stored in a queue of another job."""
    stored = engine.create_queue("stored")
    store(outgoing, range(2), to=None)
    atomic = ("--transaction-mode", "sendsAtomicWithReceive", "--stream", "Shop.Forward")
    with gated(elsewhere.url) as gate:
        gate.shut()
        options = {"endpoint.billing.url": gate.url, "storeAndForward": "stored"}
        assert job(*SQL, *atomic, sink=options) == (0, "")
    assert (numbers_in(stored), outgoing.count()) == ([0, 1], 0)


# -- the same meaning, and the file --------------------------------------------------------------


@pytest.mark.parametrize("said", [{"defaultSchema": "public"}, {"queue": "billing@[public]"}])
def test_an_option_that_says_what_was_meant_before_is_no_change(engine, job, outgoing, said):
    billing = engine.create_queue("billing")
    outgoing.insert_row(id=row_id(9), headers="no JSON", body=b"{}")
    assert job("forward", sink={"queue": "billing"})[0] == 1
    store(outgoing, [0], to=None)
    assert job("forward", "--error-queue", "error", sink={"queue": "billing", **said}) == (0, "")
    assert (numbers_in(billing), engine.queue("error").count()) == ([0], 1)


def test_an_atomic_run_that_has_failed_may_go_on_in_another_mode(engine, job, outgoing):
    """Nothing of it has gone out, and it knows what the outbox of its endpoint knows."""
    billing = engine.create_queue("billing")
    store(outgoing, [0], to=None)
    outgoing.insert_row(id=row_id(9), headers="no JSON", body=b"{}")
    atomic = ("--transaction-mode", "sendsAtomicWithReceive", "--stream", "Shop.Forward")
    assert (job(*FORWARD, *atomic)[0], billing.count()) == (1, 0)
    assert job(*FORWARD, "--error-queue", "error") == (0, "")
    assert (numbers_in(billing), engine.queue("error").count(), outgoing.count()) == ([0], 1, 0)


def test_a_note_is_replaced_as_a_whole(spark, engine, tmp_path):
    """A death in the middle leaves the note before it. What a person has changed in a note can be read."""
    files, note = Files(spark), tmp_path / "folder" / "note"
    files.write(str(note), "first")
    os.link(note, tmp_path / "kept")
    files.write(str(note), "second")
    assert ((tmp_path / "kept").read_text(), note.read_text()) == ("first", "second")
    note.write_text("changed")
    assert files.text(str(note)) == "changed"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"means": []}', '{"means": {"sink.queue": {}}}'])
def test_a_note_that_is_none_of_ours_is_passed_over(engine, job, outgoing, tmp_path, text):
    engine.create_queue("billing")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / NOTE).write_text(text)
    assert job(*FORWARD) == (0, "")
    assert json.loads((folder / NOTE).read_text())["nothingLeft"] is True
