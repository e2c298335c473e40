"""From queue to queue: the job as a user runs it, in each transaction mode,
transformed or as it is, wrong now and then.
"""

import json
import re
import threading
from datetime import UTC, datetime
from uuid import UUID

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException

from sqlqueue_spark import why
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.pipeline import as_outgoing
from sqlqueue_spark.pipeline.declared import jobs
from tests.support.delayed import DelayedRows
from tests.support.gate import gated
from tests.support.jobs import LONG, Job, reached_before
from tests.support.messages import body, headers, message_ids, row_id
from tests.support.outboxes import OutboxRows
from tests.support.sending import ids_in
from tests.support.stored import create_outbox
from tests.support.streams import free, logged
from tests.support.waiting import eventually

#: How the outbox marks what it sent to Billing.
TO_BILLING = "ubjc5g0ce0"
MODES = {
    "pessimistic": {"outbox": "pessimistic"},
    "atomic": {"transactionMode": "sendsAtomicWithReceive"},
    "none": {"transactionMode": "none", "outbox": "none"},
}


@pytest.fixture
def queues(postgresql):
    """The source, two destinations, and the outbox beside them."""
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Forward.Spark")
    return [postgresql.create_queue(name) for name in ("orders", "Billing", "Shipping")]


@pytest.fixture
def forward(spark, postgresql, tmp_path):
    """Run the job in this process, over one checkpoint, until nothing is left."""

    def run(source=(), sink=(), **options):
        source = {
            "url": postgresql.url,
            "queue": "orders",
            "stream": "Forward.Spark",
            "pollInterval": "100ms",
            **dict(source),
        }
        given = {"checkpoint": str(tmp_path / "checkpoint"), "availableNow": "true", **options}
        sections = {"source": source, "sink": {"queue": "Billing", **dict(sink)}, "forward": given}
        return jobs.forward.understood(sections).start(spark)

    return run


def left_on_the_stage(postgresql):
    """How many chunks are there, beside the mark."""
    return postgresql.fetch("""SELECT count(*) FROM "Forward.Spark.Outgoing" WHERE task <> ''""")[0][0]


def sent(queue):
    """Headers and body of each message in a queue, in the order of its rows."""
    return [(row.headers, row.body) for row in queue.rows()]


def messages(numbers):
    return [(headers(number), body(number)) for number in numbers]


@pytest.mark.slow
def test_spark_submit_sends_messages_where_the_sql_says(postgresql, queues, tmp_path):
    """Each once: some were sent to Billing before, and come again under other row ids,
    as a receiver's retry does.
    """
    orders, billing, shipping = queues
    orders.insert(30)
    outbox = OutboxRows(postgresql, "Forward_Spark")
    for number in (3, 4):
        outbox.insert(f"{message_ids([number])[0]}>{TO_BILLING}", version="sqlqueue 0.2.0 710ec9")
    sql = (
        "SELECT *, explode(array('Billing', 'Shipping')) AS Destination FROM messages WHERE RowVersion > 1 "
        "AND MessageType = 'Shop.Messages.OrderPlaced'"
    )
    job = Job(
        "forward", postgresql.url, tmp_path, "--endpoint", "Forward.Spark", "--sql", sql, "--available-now"
    )
    try:
        assert job.ended() == 0, job.report()
    finally:
        job.kill()
    missing = messages(number for number in range(30) if number not in (0, 3, 4))
    assert (sent(billing), sent(shipping), orders.count()) == (missing, messages(range(1, 30)), 0)
    assert {each.partition(">")[0] for each in outbox.ids() if each.endswith(TO_BILLING)} == set(
        message_ids(range(1, 30))
    )
    assert {row.id for row in billing.rows()}.isdisjoint(map(row_id, range(30)))
    first, warning, *batches, last = job.lines
    assert (first, warning) == ("forwarding queue=orders", "sent batch=0 sent=56 repeated=2")
    assert len(batches) == len(job.batches) == 1
    assert batches[0].endswith("s sent=56 repeated=2")
    assert re.fullmatch(r"received=30 batches=1 seconds=[\d.]+ rate=\d+/s", last)
    assert "Traceback" not in job.report()


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_forwards_each_message_once(postgresql, queues, forward, tmp_path, capsys, mode):
    """It leaves nothing."""
    orders, billing, _ = queues
    orders.insert(30)
    poll = {"maxMessagesPerTrigger": "20"}
    shared = {name: value for name, value in MODES[mode].items() if name == "transactionMode"}
    totals = forward(
        {**poll, **shared}, {name: value for name, value in MODES[mode].items() if name == "outbox"}
    )
    assert (sent(billing), orders.count()) == (messages(range(30)), 0)
    assert (totals.messages, totals.batches) == (30, 2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" rate")[0] for line in lines[1:-1]] == ["batch=0 messages=20", "batch=1 messages=10"]
    repeated = "" if mode == "atomic" else " repeated=0"
    assert [line.split("s sent=")[1] for line in lines[1:-1]] == [f"20{repeated}", f"10{repeated}"]
    assert len(OutboxRows(postgresql, "Forward_Spark").ids()) == (30 if mode == "pessimistic" else 0)
    if mode == "atomic":
        assert left_on_the_stage(postgresql) == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_poison_row_goes_to_the_error_queue_in_every_mode(postgresql, queues, forward, capsys, mode):
    """The others go on, and the line of the batch counts it."""
    orders, billing, _ = queues
    error = postgresql.create_queue("error")
    orders.insert(5)
    orders.insert_row(id=row_id(100), headers="no JSON", body=b"{}")
    orders.insert(5, start=5)
    shared = {name: value for name, value in MODES[mode].items() if name == "transactionMode"}
    forward(
        shared,
        {"errorQueue": "error", **{name: value for name, value in MODES[mode].items() if name == "outbox"}},
    )
    assert (sent(billing), orders.count()) == (messages(range(10)), 0)
    (failed,) = error.rows()
    told = json.loads(failed.headers)
    assert (told["sqlqueue.RawHeaders"], told["NServiceBus.FailedQ"]) == ("no JSON", '"public"."orders"')
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("batch="))
    assert line.endswith(" failed=1")


def test_a_stop_file_ends_a_run_between_two_batches(postgresql, queues, forward, tmp_path):
    """An atomic one."""
    orders, billing, _ = queues
    orders.insert(2000)  # a hundred batches, and the test does not wait for them all
    stop_file = tmp_path / "stop"
    stopper = threading.Thread(target=lambda: (eventually(lambda: billing.count() > 0), stop_file.touch()))
    stopper.start()
    source = {"maxMessagesPerTrigger": "20", "transactionMode": "sendsAtomicWithReceive"}
    totals = forward({**source, "stopFile": str(stop_file)}, availableNow="false")
    stopper.join()
    assert 0 < totals.messages < 2000
    assert (billing.count(), orders.count()) == (totals.messages, 2000 - totals.messages)
    assert logged(tmp_path, "offsets") == logged(tmp_path, "commits")
    assert left_on_the_stage(postgresql) == 0
    assert not stop_file.exists()


def test_a_function_makes_new_messages_of_old_ones(postgresql, queues, forward, tmp_path, monkeypatch):
    orders, billing, shipping = queues
    orders.insert(3)
    (tmp_path / "shop_routing.py").write_text(
        "from pyspark.sql import functions as F\n"
        "from sqlqueue_spark.functions import deterministic_id\n\n"
        "def route(messages):\n"
        "    of_type = F.create_map(F.lit('NServiceBus.EnclosedMessageTypes'), F.lit('Shop.Invoice, Shop'))\n"
        "    where = F.when(F.col('RowVersion') == 2, 'Shipping')\n"
        "    return messages.select(of_type.alias('Headers'), deterministic_id('MessageId'), 'Body', "
        "where.alias('Destination'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    forward(function="shop_routing:route")
    found = [(json.loads(text), content) for queue in (billing, shipping) for text, content in sent(queue)]
    assert [content for _, content in found] == [body(0), body(2), body(1)]
    assert {text["NServiceBus.EnclosedMessageTypes"] for text, _ in found} == {"Shop.Invoice, Shop"}
    assert {UUID(text["NServiceBus.MessageId"]).version for text, _ in found} == {5}
    assert {text["NServiceBus.OriginatingEndpoint"] for text, _ in found} == {"Forward.Spark"}


OUTCOMES = """
from pyspark.sql import functions as F

def every(messages):
    failure = "IF(RowVersion > 3, named_struct('ExceptionType', 'shop.OutOfStock'), NULL)"
    return messages.withColumns({"Failure": F.expr(failure), "Queue": F.lit("orders")})

def good(messages):
    return every(messages).filter("Failure IS NULL")
"""


@pytest.mark.parametrize("mode", ["optimistic", "atomic"])
def test_a_batch_with_a_received_message_without_an_outcome_fails(
    postgresql, queues, forward, tmp_path, monkeypatch, mode
):
    """Spark would log it, and the row would be deleted. With the function mended each message has one
    outcome: the first try may have sent some.
    """
    orders, billing, _ = queues
    error = postgresql.create_queue("error")
    orders.insert(5)
    orders.insert(1, start=5, expires=datetime(2025, 1, 1, tzinfo=UTC))
    (tmp_path / "shop_outcomes.py").write_text(OUTCOMES)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = {"transactionMode": "sendsAtomicWithReceive"} if mode == "atomic" else {}
    sink = {"errorQueue": "error", "outbox": "none" if mode == "atomic" else mode}
    with pytest.raises(StreamingQueryException) as failed:
        forward(source, sink, function="shop_outcomes:good")
    assert why(failed.value) == (
        "There is no outcome for 2 of the 5 received messages, so the batch fails and its rows stay in "
        "their queue; let the transform keep each row of a frame with Outgoing or Failure (one that sends "
        "nothing has an empty Outgoing), and not unite parts of it, because Spark calls a function anew for "
        "each part."
    )
    eventually(lambda: free(orders) == 5)
    assert (orders.count(), billing.count()) == (6, 0 if mode == "atomic" else 3)
    forward(source, sink, function="shop_outcomes:every")
    assert (sent(billing), ids_in(error), orders.count()) == (messages(range(3)), message_ids([3, 4]), 0)


def test_what_comes_back_because_the_server_forgot_a_commit_is_counted_once(
    postgresql, queues, forward, tmp_path, monkeypatch
):
    """No outbox knows the rows that an hour has counted, so Spark's word holds for them."""
    orders, billing, _ = queues
    orders.insert(3)
    postgresql.execute('CREATE TABLE aside AS SELECT * FROM "orders"')
    (tmp_path / "shop_hourly.py").write_text(
        "from pyspark.sql import functions as F\n\n"
        "def count(messages):\n"
        "    hours = messages.withWatermark('SentAt', '1 second').groupBy(F.window('SentAt', '1 hour'))\n"
        "    id, body = F.col('window.start').cast('string'), F.col('count').cast('string')\n"
        "    return hours.count().select(id.alias('MessageId'), body.alias('Body'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    forward(function="shop_hourly:count", sink={"outbox": "optimistic"})
    assert orders.count() == 0
    postgresql.execute('INSERT INTO "orders" SELECT * FROM aside')
    orders.insert_row(id=row_id(9), headers=headers(9).replace("2025-11-20", "2025-11-21"), body=body(9))
    forward(function="shop_hourly:count", sink={"outbox": "optimistic"})
    assert [row.body for row in billing.rows()] == [b"3"]


def test_what_waits_for_a_database_is_no_duplicate_for_a_transform_that_drops_these(
    postgresql, queues, forward, elsewhere, tmp_path, monkeypatch, caplog
):
    """Single rows do not wait where they would not be let through again."""
    create_outbox(elsewhere, "Forward.Spark")
    billing = elsewhere.create_queue("Billing")
    DelayedRows(postgresql, "orders").create()
    error = postgresql.create_queue("error")
    queues[0].insert(3)
    (tmp_path / "shop_once.py").write_text(
        "def each(messages):\n"
        "    sent = messages.withWatermark('SentAt', '1 day')\n"
        "    added = ('MessageId', 'MessageType', 'SentAt', 'IngestedAt')\n"
        "    return sent.dropDuplicatesWithinWatermark(['MessageId']).drop(*added)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    waiting = DelayedRows(postgresql, "orders")
    sink = {"errorQueue": "error", "outbox": "optimistic", "retryInterval": "200ms"}
    with gated(elsewhere.url) as gate:

        def come_back():
            eventually(lambda: waiting.count() == 3 or "batch_waits" in caplog.text, within=LONG)
            gate.open()

        reached_before(tmp_path / "checkpoint", "endpoint.billing.url", gate.url)
        gate.shut()
        back = threading.Thread(target=come_back)
        back.start()
        for _ in range(3):
            forward(function="shop_once:each", sink={"endpoint.Billing.url": gate.url, **sink})
            back.join()
    assert (sorted(ids_in(billing)), waiting.count(), error.count()) == (message_ids(range(3)), 0, 0)


ODD = ["a\0b", "x" * 201, "ü" * 300, "Order", "order"]


@pytest.mark.parametrize("mode", MODES)
def test_a_message_goes_on_whatever_its_id(postgresql, queues, forward, mode):
    orders, billing, _ = queues
    texts = [json.dumps({"NServiceBus.MessageId": each}) for each in ODD]
    for number, text in enumerate(texts):
        orders.insert_row(id=row_id(number), headers=text, body=b"{}")
    shared = {name: value for name, value in MODES[mode].items() if name == "transactionMode"}
    forward(shared, {name: value for name, value in MODES[mode].items() if name == "outbox"})
    assert [json.loads(text)["NServiceBus.MessageId"] for text, _ in sent(billing)] == ODD
    assert orders.count() == 0


def test_what_cannot_be_sent_is_named_by_its_row(queues, failed):
    """The row in which it came."""
    orders, billing, _ = queues
    orders.insert(2)
    orders.insert_row(id=row_id(7), headers='{"NServiceBus.MessageId":"m","other":{}}', body=b"{}")
    said = failed("--to", "Billing")
    assert (
        'the body is as it was: \'{"NServiceBus.MessageId":"m","other":{}}\'. Set the option errorQueue, and '
        "these rows go there, or "
        f"filter them. It is the row with RowVersion 3, Id {row_id(7)}, Queue orders@[public]."
    ) in said
    assert (orders.count(), billing.count()) == (3, 0)


FORWARD_DESTINATION = "NServiceBus.SqlServer.ForwardDestination"
#: Rows as other senders write them, each with what must go on.
ROWS = [
    ('{"NServiceBus.MessageId":"m0"}', None, '{"NServiceBus.MessageId":"m0"}', b""),
    (
        '{ "NServiceBus.MessageId" : "m1", "é" : "\\u00e9" }',
        b"\x00",
        '{ "NServiceBus.MessageId" : "m1", "é" : "\\u00e9" }',
        b"\x00",
    ),
    (
        (
            '{"NServiceBus.Retries":"2","NServiceBus.MessageId":"m2","a":"b\\/",'
            f'"NServiceBus.Retries.Timestamp":"t","{FORWARD_DESTINATION}":"\\"public\\".\\"orders\\"",'
            '"ServiceControl.Retry.UniqueMessageId":"u"}'
        ),
        b"2",
        '{"NServiceBus.MessageId":"m2","a":"b\\/","ServiceControl.Retry.UniqueMessageId":"u"}',
        b"2",
    ),
]


@pytest.mark.parametrize("mode", MODES)
def test_what_others_wrote_goes_on_byte_for_byte(postgresql, queues, forward, mode):
    """But for a NULL body, which would stop a .NET endpoint, and for the headers of one hop."""
    orders, billing, _ = queues
    for number, (text, content, *_) in enumerate(ROWS):
        orders.insert_row(id=row_id(number), headers=text, body=content)
    shared = {name: value for name, value in MODES[mode].items() if name == "transactionMode"}
    forward(shared, {name: value for name, value in MODES[mode].items() if name == "outbox"})
    for (found, content), (*_, text, body_) in zip(sent(billing), ROWS, strict=True):
        assert (found[: len(text)], content) == (text[:-1] + ",", body_)
    assert orders.count() == 0


def test_a_delayed_message_for_another_queue_is_not_forwarded(postgresql, queues, failed):
    """It would be kept from its reader, who is told by a header."""
    orders, billing, _ = queues
    text = json.dumps({"NServiceBus.MessageId": "m", FORWARD_DESTINATION: '"public"."nowhere"'})
    orders.insert_row(id=row_id(7), headers=text, body=b"{}")
    assert (
        'A row is a delayed message on its way to \'"public"."nowhere"\', not one for the queue '
        "'orders@[public]', so it is not passed on; "
    ) in failed("--to", "Billing")
    assert (orders.count(), billing.count()) == (1, 0)


def test_a_received_row_goes_on_as_message_and_origin(spark):
    frame = spark.createDataFrame(
        [("row", "{}", b"", 7, True, None, None, None)],
        "Id string, Headers string, Body binary, RowVersion bigint, Recoverable boolean, Expires timestamp, "
        "CorrelationId string, ReplyToAddress string",
    )
    outgoing = as_outgoing(frame)
    assert outgoing.columns == [
        "Id",
        "Headers",
        "Body",
        "RowVersion",
        "Expires",
        "CorrelationId",
        "ReplyToAddress",
    ]
    assert [(row.Id, row.RowVersion) for row in outgoing.collect()] == [("row", 7)]
    assert [row.Queue for row in as_outgoing(frame, "orders").collect()] == ["orders"]
    own = as_outgoing(frame.selectExpr("*", "'mine' AS queue"), "orders")
    assert [row.queue for row in own.collect()] == ["mine"]
    of_another_type = frame.withColumn("RowVersion", frame.RowVersion.cast("string"))
    assert as_outgoing(of_another_type).columns == [
        "Headers",
        "Body",
        "Expires",
        "CorrelationId",
        "ReplyToAddress",
        "MessageId",
    ]


def test_a_message_keeps_its_id_or_takes_that_of_its_row(spark):
    given = {
        "kept": '{"NServiceBus.MessageId":"kept"}',
        "spaced": '{ "NServiceBus.MessageId" : "spaced" }',
        "row-2": '{"NServiceBus.MessageId":""}',
        "row-3": '{"other":"\\"NServiceBus.MessageId\\":\\"no\\""}',
        "row-4": None,
        "row-5": "",
    }
    rows = [(f"row-{n}", text, b"", True) for n, text in enumerate(given.values())]
    frame = spark.createDataFrame(rows, "Id string, Headers string, Body binary, Recoverable boolean")
    outgoing = as_outgoing(frame)
    assert outgoing.columns == ["Headers", "Body", "MessageId"]
    # Where it is NULL, the sink takes the header.
    assert [row.MessageId for row in outgoing.collect()] == [None, *[*given][1:]]


@pytest.mark.parametrize(
    "text, left",
    [
        (None, None),
        ("poison", "poison"),
        ('{"a":"b"}', '{"a":"b"}'),
        ('{"NServiceBus.Retries":"1"}', "{}"),
        ('{"NServiceBus.Retries":"1","a":"b"}', '{"a":"b"}'),
        ('{"a":"b","NServiceBus.Retries":"1"}', '{"a":"b"}'),
        ('{ "$.store-and-forward.eventtype" : "a\\"b\\\\" , "a" : "b" }', '{ "a" : "b" }'),
        (
            (
                '{"NServiceBus.Retries":"1","NServiceBus.Retries.Timestamp":"t",'
                '"a":"{\\"NServiceBus.Retries\\":\\"1\\"}"}'
            ),
            '{"a":"{\\"NServiceBus.Retries\\":\\"1\\"}"}',
        ),
        (
            '{"NServiceBus.RetriesX":"1","NServiceBus_Retries":"1"}',
            '{"NServiceBus.RetriesX":"1","NServiceBus_Retries":"1"}',
        ),
    ],
)
def test_headers_of_one_hop_end_where_the_origin_is_dropped(spark, text, left):
    """The sink cannot know there that the row was received."""
    frame = spark.createDataFrame([(text, b"")], "Headers string, Body binary")
    assert [row.Headers for row in as_outgoing(frame).collect()] == [left]


def test_an_id_that_a_transform_gave_stays(spark):
    frame = spark.sql(
        "SELECT 'r' AS Id, '{}' AS Headers, 'mine' AS MessageId, 'T' AS MessageType, '' AS Body"
    )
    outgoing = as_outgoing(frame)
    assert [row.asDict() for row in outgoing.collect()] == [
        {"Headers": "{}", "MessageId": "mine", "Body": ""}
    ]


@pytest.fixture
def failed(spark, postgresql, queues, tmp_path, monkeypatch):
    """What the job says when it fails, with Spark running."""

    def run(*arguments):
        with monkeypatch.context() as patched:
            patched.setattr(type(spark), "stop", lambda *_: None)
            result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(
                jobs.forward,
                [
                    "--queue",
                    "orders",
                    "--endpoint",
                    "Forward.Spark",
                    "--checkpoint",
                    str(tmp_path / "failed"),
                    "--available-now",
                    *arguments,
                ],
            )
        assert result.exit_code == 1, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.stderr

    return run


@pytest.mark.parametrize(
    "arguments,sentence",
    [
        (
            ("--to", "Billing", "--sql", "SELEC *"),
            (
                r"The SQL of the transform cannot be run \(\[PARSE_SYNTAX_ERROR\] .*\); correct it, and note "
                r"that the messages are the view messages\."
            ),
        ),
        (
            ("--to", "Billing", "--sql", "SELECT * FROM message"),
            r"The SQL of the transform cannot be run \(\[TABLE_OR_VIEW_NOT_FOUND\] .*\); correct it, .*\.",
        ),
        (
            ("--to", "Billing", "--sql", "SELECT 'x' AS Body"),
            r"The SQL of the transform does not read the stream of messages; select from it\.",
        ),
        (
            ("--to", "Billing", "--sql", "SELECT *, 1 AS Boddy FROM messages"),
            r"A message has no column 'Boddy'; did you mean Body\?",
        ),
        (
            ("--to", "Billing", "--function", "json:route"),
            r"The module json has no function route; correct the name\.",
        ),
        (
            ("--to", "Billing", "--function", "json:loads"),
            r"The function json:loads failed \(TypeError: the JSON object must be str, .*\); correct it\.",
        ),
        (
            ("--to", "Billing", "--function", "builtins:id"),
            r"The function builtins:id returned int, not a DataFrame; return the messages to send\.",
        ),
    ],
)
def test_a_transform_that_cannot_be_is_one_sentence(failed, arguments, sentence):
    assert re.fullmatch(f"Error: {sentence}\n", failed(*arguments))


def test_a_missing_destination_costs_no_message(queues, failed):
    """It is one sentence."""
    orders, _, _ = queues
    orders.insert(2)
    sql = "SELECT *, 'nowhere' AS Destination FROM messages"
    assert failed("--to", "Billing", "--sql", sql) == (
        "Error: There is no queue table nowhere@[public] to send to; create it with: "
        "sqlqueue create 'nowhere', or correct the destination or its schema. "
        "Nothing of this batch was sent.\n"
    )
    assert orders.count() == 2
