"""The options of a pipeline from queue to queue: what source and sink share is said once,
what contradicts is refused.
"""

from typing import Any, cast
from unittest import mock

import pytest
from click.testing import CliRunner

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline import ForwardOptions, agreed, read_queue, write_delta
from sqlqueue_spark.pipeline.declared import jobs
from sqlqueue_spark.pipeline.declared.pipeline_options import places_of
from sqlqueue_spark.pipeline.running import program
from sqlqueue_spark.pipeline.running.configuration import configuration
from tests.support.jobs import ROOT

SECRET = "hunter2"


@pytest.fixture
def refused(monkeypatch):
    """What the job says to arguments that it refuses without starting Spark."""
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))
    url = f"postgresql://me:{SECRET}@127.0.0.1:1/shop"
    common = ["--queue", "orders", "--to", "Billing", "--endpoint", "E", "--checkpoint", "c"]

    def run(*arguments):
        environment = {"SQLQUEUE_URL": url, "SQLQUEUE_PASSWORD": SECRET}
        result = CliRunner(env=environment).invoke(jobs.forward, [*common, *arguments])
        assert SECRET not in result.output
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    return run


ATOMIC = ("--transaction-mode", "sendsAtomicWithReceive", "--stream", "Orders")


@pytest.mark.parametrize(
    "arguments,sentence",
    [
        (
            ("--transaction-mode", "sendsAtomicWithReceive"),
            (
                "The option stream is required with transactionMode sendsAtomicWithReceive; "
                "set it to a name of this pipeline, the same on source and sink."
            ),
        ),
        (
            ("--set", "source.transactionMode=none", "--set", "sink.transactionMode=receiveOnly"),
            (
                "The option transactionMode is 'none' at the source and 'receiveOnly' at the sink; say it "
                "once, or the same."
            ),
        ),
        (
            ("--set", "source.stream=a", "--set", "sink.STREAM=b"),
            "The option stream is 'a' at the source and 'b' at the sink; say it once, or the same.",
        ),
        (
            (*ATOMIC, "--sink-url", "postgresql://me@127.0.0.1:1/other"),
            (
                "The option url differs between source and sink, "
                "but sendsAtomicWithReceive sends in the source's own transaction and so to its database "
                "alone; leave it out at the sink, or take receiveOnly with an outbox."
            ),
        ),
        (
            (*ATOMIC, "--set", "sink.defaultSchema=other"),
            (
                "The option defaultSchema differs between source and sink, but sendsAtomicWithReceive sends "
                "in the source's own transaction and so to its database alone; leave it out at the sink, or "
                "take receiveOnly with an outbox."
            ),
        ),
        (
            ("--transaction-mode", "transactionScope"),
            (
                "The option transactionMode must be receiveOnly or sendsAtomicWithReceive or none (Spark "
                "cannot enlist in a distributed transaction; with receiveOnly a sink with an outbox is "
                "safe), not 'transactionScope'."
            ),
        ),
        (
            ("--to", "orders@public"),
            (
                "Source and sink are the same queue orders@[public], so its messages would go round for "
                "ever, or be dropped as sent before; name another queue for the sink."
            ),
        ),
        (
            ("--set", "sink.errorQueue=orders@public"),
            (
                "The option errorQueue names the queue of the source, orders@[public], so what goes there "
                "would be received again, for ever; name another queue."
            ),
        ),
        (("--sql", "SELECT 1", "--function", "a:b"), "Both sql and function are given; drop one of them."),
        (
            ("--function", "shop.route"),
            (
                "The option function must be a module and a function in it, like shop.routing:to_billing, "
                "not 'shop.route'."
            ),
        ),
        (
            ("--function", "no_such.module:route"),
            (
                "The module of the function no_such.module:route cannot be imported (ModuleNotFoundError: "
                "No module named 'no_such'); put it on PYTHONPATH or give it to spark-submit with "
                "--py-files, and correct the name."
            ),
        ),
        (("--set", "sink.outbx=none"), "There is no option 'outbx'; did you mean outbox?"),
        (
            ("--set", "delta.path=x"),
            "--set delta.path=… cannot be read; write source.KEY=VALUE, sink.KEY=VALUE or forward.KEY=VALUE.",
        ),
    ],
)
def test_a_wrong_configuration_is_one_sentence(refused, arguments, sentence):
    """And exit code 2."""
    assert refused(*arguments) == f"Error: {sentence}\n"


def test_a_queue_of_that_name_in_another_database_is_not_the_sources():
    there = {"queue": "orders", "errorQueue": "error", "endpoint": "E"}
    there |= {f"endpoint.{name}.url": "postgresql://y" for name in ("orders", "error")}
    source = {"url": "postgresql://x", "queues": '["orders", "error"]'}
    assert places_of(*agreed(source, there)).destination("orders").target.url == "postgresql://y"
    with pytest.raises(ConfigurationError, match=r"^Source and sink are the same queue orders@"):
        places_of(*agreed(source, {**there, "endpoint.orders.url": "postgresql://x"}))


@pytest.mark.parametrize("said_by", ["source", "sink"])
@pytest.mark.parametrize("option", ["queue.orders.schema", "endpoint.ord*.SCHEMA"])
def test_in_one_database_source_and_sink_read_an_address_alike(said_by, option):
    given: dict[str, dict[str, str]] = {"source": {}, "sink": {}}
    given[said_by] = {option: "sales"}
    source = {"url": "postgresql://x", "queue": "orders", **given["source"]}
    source, sink = agreed(source, {"queue": "Billing", "endpoint": "E", **given["sink"]})
    places = places_of(source, sink)
    ours = SourceOptions.parse(source).naming(places.at_home.dialect)
    assert (ours.table("orders"), ours) == (Table(table="orders", schema="sales"), places.naming)


def test_in_two_databases_schemas_hold_for_one_of_them_and_urls_for_both():
    source = {"url": "postgresql://x", "queue": "orders", "queue.orders.schema": "sales"}
    sink = {
        "url": "postgresql://y",
        "queue": "Billing",
        "endpoint": "E",
        "endpoint.far.url": "postgresql://z",
    }
    source, sink = agreed(source, {**sink, "endpoint.Billing.schema": "bills"})
    assert source.keys() - sink.keys() == {"queue.orders.schema"}
    assert sink.keys() - source.keys() == {"endpoint", "endpoint.Billing.schema"}


def test_an_atomic_pipeline_cannot_store_in_its_own_queue():
    source = {"url": "postgresql://x", "queue": "orders"}
    sink = {"endpoint": "E", "errorQueue": "error", "storeAndForward": "orders"}
    assert places_of(*agreed(source, sink)).home.store_and_forward == "orders"
    atomic = {**source, "transactionMode": "sendsAtomicWithReceive", "stream": "Orders"}
    with pytest.raises(
        ConfigurationError, match=r"^The option storeAndForward names the queue of the source"
    ):
        places_of(*agreed(atomic, sink))
    assert places_of(*agreed(atomic, {**sink, "storeAndForward": "outgoing"})).home.error_queue == "error"


def test_an_outbox_needs_a_name_of_its_own():
    with pytest.raises(ConfigurationError, match=r"^The option endpoint is required with an outbox: "):
        agreed({"url": "postgresql://x", "queue": "orders"}, {"queue": "Billing"})


def test_a_sink_in_the_sources_database_takes_its_login():
    source = {
        "url": "postgresql://x",
        "USER": "me",
        "password": SECRET,
        "defaultSchema": "s",
        "queue": "orders",
    }
    for sink in ({}, {"url": "postgresql://x"}):
        _, found = agreed(source, {"queue": "b", "endpoint": "E", **sink})
        parsed = SinkOptions.parse(found)
        assert (parsed.url, parsed.user, parsed.password, parsed.default_schema) == (
            "postgresql://x",
            "me",
            SECRET,
            "s",
        )


def test_a_sink_with_its_own_login_gets_no_password():
    """Not the source's; nor does one with a database of its own."""
    source = {"url": "postgresql://x", "user": "me", "password": SECRET, "queue": "orders"}
    for sink in ({"url": "postgresql://y"}, {"user": "other"}, {"accessToken": "t"}):
        _, found = agreed(source, {"queue": "b", "endpoint": "E", **sink})
        assert "password" not in found
        assert SinkOptions.parse(found).user == sink.get("user")


def test_mode_and_stream_are_said_once_on_either_side():
    said = {"transactionMode": "sendsAtomicWithReceive", "stream": "Orders"}
    for ours, theirs in ((said, {}), ({}, said)):
        source, sink = agreed({"url": "postgresql://x", "queue": "orders", **ours}, {"queue": "b", **theirs})
        assert SourceOptions.parse(source).stream == SinkOptions.parse(sink).stream == "Orders"
        assert (
            SourceOptions.parse(source).transaction_mode
            == SinkOptions.parse(sink).transaction_mode
            == "sendsAtomicWithReceive"
        )


def test_the_configuration_in_conf_lacks_only_a_url():
    flags = {"source.url": "postgresql://x"}
    found = configuration(("source", "sink", "forward"), ROOT / "conf/forward.toml", (), flags)
    source, sink = agreed(found["source"], found["sink"])
    assert SourceOptions.parse(source).queue == "orders"
    assert (SinkOptions.parse(sink).queue, SinkOptions.parse(sink).sender) == ("Billing", "ForwardOrders")
    assert ForwardOptions.parse(found["forward"]).checkpoint == "data/checkpoints/forward-orders"


@pytest.mark.parametrize(
    "arguments,name,variable",
    [
        (("--sink-url", f"postgresql://me:{SECRET}@host/shop"), "--sink-url", "SQLQUEUE_SINK_URL"),
        (("--sink-password", SECRET), "--sink-password", "SQLQUEUE_SINK_PASSWORD"),
        (("--set", f"sink.Password={SECRET}"), "--set sink.Password", "SQLQUEUE_URL"),
        (
            ("--set", f"sink.endpoint.Billing.url=Server=x;PWD={SECRET}"),
            "--set sink.endpoint.Billing.url",
            "SQLQUEUE_URL",
        ),
    ],
)
def test_a_password_for_the_sink_is_refused_on_the_command_line(refused, arguments, name, variable):
    complaint = refused(*arguments)
    assert f"Error: The password in {name} would stand in" in complaint
    assert f"give it in the environment ({variable}) or in the file of --config." in complaint


@pytest.mark.parametrize("given, said", [(None, "NoneType"), ("queue=orders", "str")])
def test_options_that_are_no_dict_are_refused(given, said):
    with pytest.raises(ConfigurationError) as caught:
        read_queue(mock.Mock(), given)
    assert str(caught.value) == f"The options are {said}; give a dict of them."


def test_a_number_is_read_as_spark_reads_it():
    given: dict[str, Any] = {"url": "postgresql://x", "queue": 5, "claimAhead": False, "stream": None}
    found = SourceOptions.parse(given)
    assert (found.queue, found.claim_ahead, found.stream) == ("5", False, None)


def test_a_dict_in_place_of_delta_options_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        write_delta(mock.Mock(), cast(Any, {"path": "x"}))
    assert str(caught.value) == (
        "write_delta needs DeltaOptions; make them: DeltaOptions.parse({'path': …})."
    )
