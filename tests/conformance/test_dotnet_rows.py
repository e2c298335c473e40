"""What real .NET endpoints wrote goes through the core byte for byte,
and nothing is found against their tables that is not true.
"""

import base64
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import event_subscriptions, outbox_tables, queue_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.inspection.doctor import State, examine
from sqlqueue_spark.messages.message import parse_time
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.receive import SliceReader
from sqlqueue_spark.receive.reading.peek import plan_peek
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.compose.outcome_builder import builder_of
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from tests.support import dotnet
from tests.support.driver import streaming
from tests.support.messages import Row
from tests.support.neighbour import Habits, Neighbour
from tests.support.outboxes import OutboxRows
from tests.support.sending import composed
from tests.support.waiting import eventually

PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone
WAY = ("network", "login", "database", "queue", "rights")
#: What the catalogue says of the columns of all tables, and of their indexes,
#: in the words of the recorded files.
COLUMNS = """
SELECT table_name, column_name, data_type, character_maximum_length, is_nullable = 'YES', column_default
FROM information_schema.columns WHERE table_schema = 'public'
  ORDER BY table_name COLLATE "C", ordinal_position
"""
INDEXES = """
SELECT c.relname, i.relname, x.indisunique, x.indisprimary,
       (SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(x.indkey) WITH ORDINALITY AS k (attnum, n)
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum)
FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indrelid JOIN pg_class AS i ON i.oid = x.indexrelid
WHERE c.relnamespace = 'public'::regnamespace ORDER BY c.relname COLLATE "C", i.relname
"""


@pytest.fixture(params=sorted(dotnet.QUEUES))
def theirs(request, postgresql):
    """A queue with the rows of one file, and these rows; none of them has expired."""
    alive = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=1)
    rows = [replace(row, expires=row.expires and alive) for row in dotnet.rows(request.param)]
    return dotnet.create_queue(postgresql, dotnet.QUEUES[request.param], rows), rows


def options(engine):
    return ConnectionOptions.parse({"url": engine.url})


def run(engine, *arguments):
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, arguments)


def as_rows(messages):
    """What the core hands to Spark, as rows of the table."""
    assert {(each["CorrelationId"], each["ReplyToAddress"], each["Recoverable"]) for each in messages} == {
        (None, None, None)
    }
    return [
        Row(
            id=each["Id"],
            headers=each["Headers"],
            body=each["Body"],
            row_version=each["RowVersion"],
            expires=each["Expires"] and each["Expires"].replace(tzinfo=None),
        )
        for each in messages
    ]


def with_id_texts(rows):
    return [replace(row, id=str(row.id)) for row in rows]


def read(headers):
    """Headers as the command shows them: as text if they are poison."""
    try:
        return {name: value for name, value in json.loads(headers).items() if value is not None}
    except ValueError:
        return headers


def body_of(shown):
    """The body of a message that the command shows, but for a byte-order mark."""
    return base64.b64decode(shown["bodyBase64"]) if "bodyBase64" in shown else shown["body"].encode()


def create_all(engine):
    for table in ("Interop.Subscriber", dotnet.DELAYED, dotnet.OUTBOX, dotnet.SUBSCRIPTIONS):
        dotnet.create_table(engine, table)


def test_the_tables_are_those_that_the_catalogue_described(postgresql):
    create_all(postgresql)
    columns = [
        (each["table"], each["column"], each["type"], each["length"], each["nullable"], each["default"])
        for each in dotnet.lines("columns")
    ]
    indexes = [
        (each["table"], each["index"], each["unique"], each["primary"], each["columns"])
        for each in dotnet.lines("indexes")
    ]
    assert postgresql.fetch(COLUMNS) == columns
    assert sorted(postgresql.fetch(INDEXES)) == sorted(indexes)


def test_their_rows_are_put_there_as_they_were(theirs):
    queue, rows = theirs
    assert queue.rows() == rows


def test_a_peek_shows_their_rows_byte_for_byte(postgresql, theirs):
    queue, rows = theirs
    given = SourceOptions.parse({"url": postgresql.url, "queue": queue.address})
    reader = SliceReader(Target.of(given))
    messages = [
        each for part in plan_peek(given) for batch in reader.peek(part) for each in batch.to_pylist()
    ]
    assert as_rows(messages) == with_id_texts(rows)
    assert queue.rows() == rows


@pytest.mark.parametrize("mode", ["receiveOnly", "none"])
def test_a_stream_takes_their_rows_byte_for_byte(postgresql, theirs, mode):
    queue, rows = theirs
    with streaming(postgresql, queue, transactionMode=mode, maxMessagesPerTrigger="20") as stream:
        stream.drain()
    assert as_rows(stream.messages()) == with_id_texts(rows)
    assert queue.count() == 0


def test_what_has_expired_is_deleted_and_not_shown(postgresql):
    """Their heartbeats live for 40 s."""
    heartbeats = [replace(row, expires=PAST) for row in dotnet.rows("servicecontrol/heartbeats")]
    queue = dotnet.create_queue(postgresql, "Particular.ServiceControl", heartbeats)
    with streaming(postgresql, queue) as stream:
        stream.drain()
    assert (stream.messages(), queue.count()) == ([], 0)


def test_peek_of_the_command_shows_each_of_their_rows(postgresql, theirs):
    queue, rows = theirs
    said = run(postgresql, "peek", queue.address, "--count", "100", "--json")
    assert said.exit_code == 0, said.output
    # A line ends with a line feed only: bodies hold other ends of lines that Unicode knows.
    shown = [json.loads(line) for line in said.output.rstrip("\n").split("\n")]
    assert [(each["rowVersion"], each["id"], each["headers"], body_of(each)) for each in shown] == [
        (row.row_version, str(row.id), read(row.headers), row.body) for row in rows
    ]
    assert run(postgresql, "peek", queue.address, "--count", "100").exit_code == 0


def test_inspect_and_doctor_find_nothing(postgresql, theirs):
    queue, rows = theirs
    for role in (None, "receiver", "sender"):
        assert queue_tables.inspect(options(postgresql), queue.address, role=role).findings == []
    checks = {check.name: check.state for check in examine(options(postgresql), queue.address)}
    assert {name: checks[name] for name in WAY} == dict.fromkeys(WAY, State.FINE)
    assert run(postgresql, "inspect", queue.address).exit_code == 0
    length = queue_tables.length(options(postgresql), queue.address)
    size = sum(len(row.headers.encode()) + len(row.body) for row in rows)
    assert (length.rows, length.expired, length.bytes) == (len(rows), 0, size)


def sent_on(engine, row):
    """Headers and body of what the sink makes of a received row."""
    given = SinkOptions.parse({"url": engine.url, "queue": "Interop.Target", "outbox": "none"})
    names = {"Id": "string", "RowVersion": "bigint", "Headers": "string", "Body": "binary"}
    batch = pa.RecordBatch.from_pylist(
        [{"Id": str(row.id), "RowVersion": row.row_version, "Headers": row.headers, "Body": row.body}]
    )
    builder = builder_of(FrameColumns.of([*names.items()], given), Destinations(given).places)
    (composed,) = builder.compose([batch])
    (message,) = composed.sends.rows(range(1)).to_pylist()
    return message["headers"], message["body"]


def test_what_cannot_be_read_is_not_sent_on_and_is_named(postgresql):
    """As their transport moved it to error."""
    poison = dotnet.unusual()["error, 1"]
    with pytest.raises(ConfigurationError) as caught:
        sent_on(postgresql, poison)
    assert "'not json'" in str(caught.value)
    assert f"RowVersion 1, Id {poison.id}" in str(caught.value)


@pytest.mark.parametrize("which", ["error, 2", "error, 3"])
def test_a_failed_message_goes_on_without_the_headers_of_delayed_retries(postgresql, which):
    """Byte for byte else; its failure headers stay."""
    row = dotnet.unusual()[which]
    member = re.compile(r'"NServiceBus\.Retries\.Timestamp":"[^"]*",|,?"NServiceBus\.Retries":"[^"]*"')
    expected, taken_out = member.subn("", row.headers)
    assert taken_out == 1
    assert sent_on(postgresql, row) == (expected, row.body)


def test_headers_whose_escapes_are_written_in_capitals_go_on_byte_for_byte(postgresql):
    """ServiceControl writes them so."""
    row = dotnet.unusual()["servicecontrol/retried, 23"]
    assert sent_on(postgresql, row) == (row.headers, row.body)


def test_a_header_whose_value_is_null_is_no_header(postgresql):
    """ServiceControl takes the message, and puts it back so."""
    row = dotnet.unusual()["servicecontrol/retried, 5"]
    headers, body = sent_on(postgresql, row)
    read = json.loads(row.headers)
    assert read.pop("x-null", "missing") is None
    assert (json.loads(headers), body) == (read, row.body)


def test_create_leaves_their_tables_as_they_are(postgresql):
    create_all(postgresql)
    before = postgresql.fetch(COLUMNS), postgresql.fetch(INDEXES)
    assert [made.new for made in queue_tables.create(options(postgresql), ["Interop.Subscriber"])] == [False]
    assert not outbox_tables.create(options(postgresql), dotnet.ENDPOINT).new
    assert (postgresql.fetch(COLUMNS), postgresql.fetch(INDEXES)) == before


def test_the_doctor_finds_nothing_where_all_their_tables_stand(postgresql):
    """Beside what is wrong with the machine on which the test runs."""
    before = wrong(postgresql, None)
    create_all(postgresql)
    for table, file in [
        (dotnet.DELAYED, "delayed"),
        (dotnet.OUTBOX, "outbox"),
        (dotnet.SUBSCRIPTIONS, "subscriptions"),
    ]:
        dotnet.insert(postgresql, table, dotnet.lines(file))
    dotnet.create_queue(postgresql, "Interop.Xml", dotnet.rows("queue"))
    dotnet.create_queue(postgresql, "Interop.Recorder")
    postgresql.create_queue("Interop.Other", schema="other schema")
    assert wrong(postgresql, "Interop.Xml") == before
    assert postgresql.fetch(f'SELECT count(*) FROM "{dotnet.SUBSCRIPTIONS}"') == [(4,)]


def wrong(engine, queue):
    """What the doctor finds wrong."""
    return [
        (check.name, check.said) for check in examine(options(engine), queue) if check.state is State.WRONG
    ]


def test_a_table_of_delayed_messages_is_found_to_be_no_queue(postgresql):
    dotnet.create_table(postgresql, dotnet.DELAYED)
    dotnet.insert(postgresql, dotnet.DELAYED, dotnet.lines("delayed"))
    found = queue_tables.inspect(options(postgresql), dotnet.DELAYED).findings
    assert [each.message.partition("; ")[0] for each in found] == [
        f"{dotnet.DELAYED}@[public]@[{postgresql.url.rpartition('/')[2]}] has no column {column}"
        for column in ("expires (timestamp without time zone)", "seq (bigint or integer)")
    ]


def test_the_report_of_their_outbox_counts_what_was_not_dispatched(postgresql):
    lines = dotnet.lines("outbox")
    dotnet.create_table(postgresql, dotnet.OUTBOX)
    dotnet.insert(postgresql, dotnet.OUTBOX, lines)
    oldest = min(each["DispatchedAt"] for each in lines if each["Dispatched"])
    found = outbox_tables.report(options(postgresql), dotnet.ENDPOINT).found
    assert (found.rows, found.undispatched) == (27, 1)
    assert found.oldest_dispatched_at == datetime.fromisoformat(oldest).replace(tzinfo=UTC)
    said = run(postgresql, "outbox", "report", dotnet.ENDPOINT)
    assert (said.exit_code, said.output.count("finding:")) == (1, 1)


def test_cleaning_their_outbox_forgets_what_was_dispatched_and_leaves_the_rest_as_it_is(postgresql):
    lines = dotnet.lines("outbox")
    dotnet.create_table(postgresql, dotnet.OUTBOX)
    dotnet.insert(postgresql, dotnet.OUTBOX, lines)
    outbox = OutboxRows(postgresql, dotnet.ENDPOINT.replace(".", "_"))
    columns = '"MessageId", "Dispatched", "DispatchedAt", "PersistenceVersion", "Operations"'
    waiting = tuple(next(each for each in lines if not each["Dispatched"]).values())
    before = f'SELECT {columns} FROM "{dotnet.OUTBOX}" WHERE NOT "Dispatched"'
    outbox.insert("of yesterday", age=timedelta(days=1))
    assert outbox_tables.cleanup(options(postgresql), dotnet.ENDPOINT, timedelta(days=5_000)) == 0
    outbox.age(timedelta(days=8))
    outbox.insert("of today")
    assert outbox_tables.cleanup(options(postgresql), dotnet.ENDPOINT, timedelta(days=7)) == 27
    assert postgresql.fetch(before) == [waiting]
    assert outbox.ids() == {waiting[0], "of today"}


# -- subscriptions and events ---------------------------------------------------------------------

#: What only a .NET endpoint says of itself.
OF_DOTNET = {
    "NServiceBus.OpenTelemetry.StartNewTrace",
    "NServiceBus.Version",
    "$.diagnostics.originating.hostid",
}


def recorded_event():
    """The headers and the body of the first event in the recorded queue."""
    for row in dotnet.rows("queue"):
        headers = json.loads(row.headers)
        if headers.get("NServiceBus.MessageIntent") == "Publish":
            return headers, row.body
    raise AssertionError


def test_an_event_goes_to_those_who_have_subscribed_as_recorded(postgresql):
    """The endpoints of both schemas, by the base type that they handle;
    each header has the recorded one's form.
    """
    dotnet.create_table(postgresql, dotnet.SUBSCRIPTIONS)
    dotnet.insert(postgresql, dotnet.SUBSCRIPTIONS, dotnet.lines("subscriptions"))
    queues = [
        *(dotnet.create_queue(postgresql, f"Interop.{name}") for name in ("Recorder", "Subscriber", "Xml")),
        postgresql.create_queue("Interop.Other", schema="other schema"),
    ]
    headers, body = recorded_event()
    given = SinkOptions.parse({"url": postgresql.url, "outbox": "none", "endpoint": "Interop.Recorder"})
    event = {
        "Body": [body],
        "EventType": [headers["NServiceBus.EnclosedMessageTypes"]],
        "ReplyToAddress": ["Interop.Recorder"],
    }
    with Sender(Destinations(given)) as sender:
        assert sender.send(composed(given, pa.RecordBatch.from_pydict(event))) == Sent(sent=4)
    for queue in queues:
        (row,) = queue.rows()
        found = json.loads(row.headers)
        assert found.keys() == headers.keys() - OF_DOTNET
        same = (
            "MessageIntent",
            "ReplyToAddress",
            "OriginatingEndpoint",
            "ContentType",
            "EnclosedMessageTypes",
        )
        assert {name: found[f"NServiceBus.{name}"] for name in same} == {
            name: headers[f"NServiceBus.{name}"] for name in same
        }
        assert found["NServiceBus.CorrelationId"] == found["NServiceBus.MessageId"]
        assert headers["NServiceBus.CorrelationId"] == headers["NServiceBus.MessageId"]
        assert (parse_time(found["NServiceBus.TimeSent"]) is None, row.body) == (False, body)


def test_a_subscription_of_ours_is_written_as_theirs(postgresql):
    """Into a table that they made and into one that we make;
    a row of theirs that says the same stays as it is.
    """
    recorded = dotnet.lines("subscriptions")
    for made_by_us in (False, True):
        postgresql.execute(f'DROP TABLE IF EXISTS "{dotnet.SUBSCRIPTIONS}"')
        if not made_by_us:
            dotnet.create_table(postgresql, dotnet.SUBSCRIPTIONS)
            dotnet.insert(postgresql, dotnet.SUBSCRIPTIONS, recorded[2:3])
            dotnet.create_queue(postgresql, "Interop.Subscriber")
            postgresql.create_queue("Interop.Other", schema="other schema")
        for queue in ("Interop.Subscriber", "Interop.Other@[other schema]"):
            event_subscriptions.subscribe(
                options(postgresql),
                queue,
                ["Interop.IOrderEvent, Interop, Version=1.0.0.0"],
                create=made_by_us,
            )
        rows = postgresql.fetch(
            f'SELECT queueaddress, endpoint, topic FROM "{dotnet.SUBSCRIPTIONS}" ORDER BY 1'
        )
        assert rows == [tuple(each.values()) for each in (recorded[0], recorded[2])]
        described = [each for each in dotnet.lines("columns") if each["table"] == dotnet.SUBSCRIPTIONS]
        columns = [tuple(each.values()) for each in described]
        assert [row for row in postgresql.fetch(COLUMNS) if row[0] == dotnet.SUBSCRIPTIONS] == columns
        indexes = [
            tuple(each.values()) for each in dotnet.lines("indexes") if each["table"] == dotnet.SUBSCRIPTIONS
        ]
        assert [row for row in postgresql.fetch(INDEXES) if row[0] == dotnet.SUBSCRIPTIONS] == indexes


def test_a_net_publisher_finds_a_subscription_of_ours(engine, queue):
    """The test neighbour reads the table as the transport does, and parses the address as strictly."""
    billing = engine.create_queue("Interop.Billing")
    event_subscriptions.subscribe(options(engine), "Interop.Billing", ["Shop.Event"], create=True)
    queue.insert(2)
    habits = Habits(publishes=("Shop.Placed", "Shop.Event"), rest=timedelta(milliseconds=10))
    with Neighbour(engine, queue, habits).running():
        eventually(lambda: billing.count() == 2)
