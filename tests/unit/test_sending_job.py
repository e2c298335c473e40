"""What a job that sends tells its source, and what it looks at beside the sink."""

from contextlib import nullcontext
from unittest import mock

import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.pipeline import ForwardOptions, HandleOptions, StoreAndForwardOptions
from sqlqueue_spark.pipeline.running import sending_job
from sqlqueue_spark.pipeline.running.missing_outcomes import check_outcomes
from sqlqueue_spark.spark.sink import SqlQueueSink

SOURCE = {"url": "postgresql://x", "queue": "orders"}
SINK = SinkOptions.parse({"url": "postgresql://x", "endpoint": "E", "queue": "billing"})
HANDLER = {"checkpoint": "c", "handler": "shop.orders:handle"}


PLAIN = [("Body", "binary"), ("MessageId", "string")]
RECEIVED = [("Queue", "string"), ("RowVersion", "bigint"), ("Id", "string"), ("Headers", "string")]
RECEIVED += [("Body", "binary")]


def begun(monkeypatch, options, sink=SINK, columns=PLAIN, stateful=False, **more):
    """The options that the source is given, the sink, and what is given to Spark in its place."""
    read, send = mock.Mock(), mock.Mock()
    read.return_value.dtypes = columns
    for name, other in (
        ("read_queue", read),
        ("send", send),
        ("run_until_stopped", mock.Mock()),
        ("JobNote", mock.Mock()),
    ):
        monkeypatch.setattr(sending_job, name, other)
    monkeypatch.setattr(sending_job, "waiting_for", lambda *_: None)
    monkeypatch.setattr(sending_job, "keeps_state", lambda _: stateful)
    monkeypatch.setattr(sending_job, "delivering", lambda *_: nullcontext(mock.Mock()))
    sink, source = SqlQueueSink.of(sink), {**SOURCE, **more}
    sending_job.send_until_stopped(mock.Mock(), source, sink, lambda rows, _: rows, options, doing="doing")
    given = {name.lower(): value for name, value in read.call_args.args[1].items()}
    return given, sink, send.call_args.args[1]


def started(monkeypatch, options, **more):
    """The size of the first batch as the source is told it, and whether anything stands before the sink."""
    given, sink, before = begun(monkeypatch, options, **more)
    return given.get("firstmessagespertrigger"), before is not sink


@pytest.mark.parametrize("kind", [HandleOptions, StoreAndForwardOptions])
def test_a_job_with_a_handler_begins_with_few_messages_and_slows_down(monkeypatch, kind):
    options = kind.parse(HANDLER)
    assert started(monkeypatch, options) == ("300", True)
    assert started(monkeypatch, options, FirstMessagesPerTrigger="7") == ("7", True)


@pytest.mark.parametrize(
    "kind, more",
    [
        (ForwardOptions, {}),
        (ForwardOptions, {"sql": "SELECT * FROM messages"}),
        (ForwardOptions, {"function": "shop.routing:route"}),
        (StoreAndForwardOptions, {}),
        (StoreAndForwardOptions, {"localQueue": "orders"}),
    ],
)
def test_a_job_that_calls_no_function_for_each_message_does_neither(monkeypatch, kind, more):
    options = kind.parse({"checkpoint": "c", **more})
    assert started(monkeypatch, options) == (None, False)


@pytest.mark.parametrize(
    "of_source, of_sink, named",
    [
        ({}, {}, "E"),
        ({"defaultSchema": "public"}, {}, "E"),
        ({"defaultSchema": "sales"}, {"defaultSchema": "sales"}, "E"),
        ({}, {"defaultSchema": "sales"}, None),
        ({"outboxEndpoint": "F"}, {}, "F"),
    ],
)
def test_a_source_is_told_of_an_outbox_that_it_can_find(monkeypatch, of_source, of_sink, named):
    """After a crash it would not start for an outbox in another schema."""
    sink = SinkOptions.parse({"url": "postgresql://x", "endpoint": "E", "queue": "billing", **of_sink})
    given, *_ = begun(monkeypatch, ForwardOptions.parse({"checkpoint": "c"}), sink, **of_source)
    assert given.get("outboxendpoint") == named


@pytest.mark.parametrize(
    "outbox, stateful, why",
    [
        ("none", False, "the option outbox is none"),
        ("optimistic", True, "the transform keeps a state"),
    ],
)
def test_an_outbox_is_not_named_where_rows_must_not_come_again(monkeypatch, outbox, stateful, why):
    sink = SinkOptions.parse({"url": "postgresql://x", "endpoint": "E", "queue": "b", "outbox": outbox})
    options = ForwardOptions.parse({"checkpoint": "c"})
    said = (
        "The option outboxEndpoint is 'E', by which rows of a logged batch may come again, and "
        f"{why}, so that they would count or be sent twice; leave it out."
    )
    with pytest.raises(ConfigurationError, match=f"^{said}$"):
        begun(monkeypatch, options, sink, stateful=stateful, outboxEndpoint="E")


@pytest.mark.parametrize(
    "more, stateful, compares",
    [
        ([("Outgoing", "void")], False, True),
        ([("Failure", "void")], False, True),
        ([("Failure", "void")], True, False),
        ([], False, False),
    ],
    ids=["outcomes", "failures", "outcomes out of a state", "rows that are passed on"],
)
def test_each_message_needs_an_outcome_where_the_frame_has_outcomes(monkeypatch, more, stateful, compares):
    """What is only passed on may be filtered, and a state may give an outcome in a later batch."""
    sink = SinkOptions.parse({"url": "postgresql://x", "endpoint": "E", "queue": "b", "errorQueue": "error"})
    options = ForwardOptions.parse({"checkpoint": "c"})
    _, own, _ = begun(monkeypatch, options, sink, columns=RECEIVED + more, stateful=stateful)
    assert getattr(own.check, "func", None) == (check_outcomes if compares else None)
