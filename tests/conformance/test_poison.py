"""Received rows that cannot be read, or that cannot reach their destination: they go to the error queue,
and the others go on.
"""

import json
from collections.abc import Iterable

import pyarrow as pa
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.compose.frame_columns import FrameColumns
from sqlqueue_spark.send.compose.outcome_builder import builder_of
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from tests.support import messages
from tests.support.driver import at_step
from tests.support.messages import message_ids, row_id
from tests.support.outboxes import OutboxRows
from tests.support.outcomes import failed_in, options, sent_to
from tests.support.sending import OUTBOXES, ids_in, steps

pytestmark = pytest.mark.needs("reads_json_as_documented")

POISON = "not json"
FAILED_QUEUE = "NServiceBus.FailedQ"


@pytest.fixture
def billing(engine, queue):
    return engine.create_queue("billing")


@pytest.fixture
def error(engine, queue):
    return engine.create_queue("error")


@pytest.fixture
def remembered(engine, queue):
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales")
    return OutboxRows(engine)


@pytest.fixture(params=OUTBOXES)
def given(request, engine, billing, error, remembered):
    """The options of a sink that forwards from orders to billing, with each kind of outbox."""
    return options(engine, queue="billing", outbox=request.param)


def rows(numbers: Iterable[int], poison: Iterable[int] = (), **more: object) -> pa.RecordBatch:
    """Received messages of these numbers, as a job forwards them.

    :param poison: the numbers of those whose headers cannot be read.
    :param more: further columns; a value of each for each message, or one for all.
    """
    wrong = set(poison)
    found = [
        {
            "Queue": "orders",
            "RowVersion": number,
            "Id": str(row_id(number)),
            "Headers": POISON if number in wrong else messages.headers(number),
            "Body": messages.body(number),
        }
        for number in numbers
    ]
    for name, value in more.items():
        for at, row in enumerate(found):
            row[name] = value[at] if isinstance(value, list) else value
    return pa.RecordBatch.from_pylist(found)


def forward(given, *batches: pa.RecordBatch) -> tuple[int, int, int]:
    """Send as one task does.

    :returns: how many messages went out, how many had been sent before, and how many have failed.
    """
    destinations = Destinations(given)
    columns = FrameColumns(names={name: name for name in batches[0].schema.names})
    builder = builder_of(columns, destinations.places)
    with Sender(destinations) as sender:
        done = sender.send(builder.compose(batches))
    return done.sent, done.repeated, done.failed


def test_poison_goes_to_the_error_queue_and_the_others_go_on(given, billing, error):
    assert forward(given, rows(range(10), poison=[3, 7])) == (8, 0, 2)
    assert ids_in(billing) == message_ids([0, 1, 2, 4, 5, 6, 8, 9])
    assert sent_to(error) == [3, 7]


def test_poison_keeps_its_headers_as_they_were(given, error, engine):
    """In a header. Its other headers say why, and where a retry is to put it."""
    forward(given, rows([1], poison=[1]))
    (row,) = error.rows()
    failed = json.loads(row.headers)
    told = {
        name: failed[name]
        for name in failed
        if not name.endswith(("Machine", "TimeOfFailure", "hostid", "hostdisplayname"))
    }
    orders = '"public"."orders"' if engine.name == "postgresql" else told[FAILED_QUEUE]
    assert told == {
        "NServiceBus.MessageId": str(row_id(1)),
        "NServiceBus.ProcessingEndpoint": "orders",
        FAILED_QUEUE: orders,
        "NServiceBus.ExceptionInfo.ExceptionType": "sqlqueue_spark.errors.UnreadableHeaders",
        "NServiceBus.ExceptionInfo.Message": "The headers of the message are not a JSON object of strings; "
        "they stand in the header sqlqueue.RawHeaders, and the body is as it was: 'not json'.",
        "NServiceBus.ExceptionInfo.StackTrace": "",
        "sqlqueue.RawHeaders": POISON,
    }
    assert (row.body, row.expires) == (messages.body(1), None)


def test_a_batch_that_comes_again_moves_poison_once(given, billing, error):
    again = rows(range(10), poison=[3, 7])
    assert forward(given, again.slice(0, 5)) == (4, 0, 1)
    assert forward(given, again) == (4, 5, 1)
    assert forward(given, again) == (0, 10, 0)
    assert (billing.count(), sent_to(error)) == (8, [3, 7])


def test_a_message_that_failed_is_not_sent_in_the_replay(given, billing, error):
    """A transform that was changed between two tries reads what it could not read."""
    forward(given, rows([1], poison=[1]))
    assert forward(given, rows([1])) == (0, 1, 0)
    assert (billing.count(), error.count()) == (0, 1)


def test_poison_that_was_to_go_to_two_queues_fails_once(given, engine, billing, error):
    """A retry puts it back into the one queue in which it was received."""
    engine.create_queue("shipping")
    batch = rows([1, 1, 2, 2], poison=[1], Destination=["billing", "shipping"] * 2)
    assert forward(given, batch) == (2, 0, 1)
    assert forward(given, batch.slice(0, 1), batch.slice(1, 1)) == (0, 1, 0)
    assert sent_to(error) == [1]


def test_copies_for_two_queues_that_are_missing_fail_each(given, error):
    """A retry puts each back into the queue of its row, and from there it goes to the one
    queue that it names.
    """
    batch = rows([1, 1], Destination=["gone", "lost"])
    assert forward(given, batch) == (0, 0, 2)
    assert forward(given, batch) == (0, 2, 0)
    found = failed_in(error)
    assert {failed["NServiceBus.ProcessingEndpoint"] for failed in found} == {"orders"}
    named = {failed["$.store-and-forward.destination"].strip('"').rpartition('"')[2] for failed in found}
    assert {each.partition("@")[0] for each in named} == {"gone", "lost"}


def test_a_message_that_was_sent_does_not_fail_in_the_replay(given, engine, billing, error):
    """Its destination is gone by then."""
    gone = engine.create_queue("gone")
    forward(given, rows([1], Destination="gone"))
    gone.execute("DROP TABLE {table}")
    assert forward(given, rows([1], Destination="gone")) == (0, 1, 0)
    assert error.count() == 0


def test_poison_that_is_put_back_fails_again(given, error):
    """As another row, so it is another failure."""
    forward(given, rows([1], poison=[1]))
    forward(given, rows([1], poison=[1], RowVersion=1001, Id=str(row_id(1001))))
    assert sent_to(error) == [1, 1]


def test_a_message_that_failed_and_is_put_back_is_sent(given, billing, error):
    """What has failed makes no key of a send."""
    assert forward(given, rows([1], Destination="gone")) == (0, 0, 1)
    assert forward(given, rows([1], RowVersion=1001, Id=str(row_id(1001)))) == (1, 0, 0)
    assert (ids_in(billing), sent_to(error)) == (message_ids([1]), [1])


def test_without_an_error_queue_the_batch_ends(engine, billing, remembered):
    """The error names the row and the option."""
    given = options(engine, queue="billing", errorQueue=None)
    with pytest.raises(ConfigurationError) as caught:
        forward(given, rows(range(5), poison=[3]))
    assert str(caught.value) == (
        "The headers of the message are not a JSON object of strings; they stand in the header "
        "sqlqueue.RawHeaders, and the body is as it was: 'not json'. Set the option errorQueue, and these "
        f"rows go there, or filter them. It is the row with RowVersion 3, Id {row_id(3)}, Queue orders."
    )
    assert billing.count() == 0


def test_poison_without_an_outbox_goes_there_each_time(engine, billing, error):
    given = options(engine, queue="billing", outbox="none")
    assert [forward(given, rows(range(3), poison=[1])) for _ in range(2)] == [(2, 0, 1)] * 2
    assert sent_to(error) == [1, 1]


@pytest.mark.parametrize(
    "step", [fail_points.ROWS_INSERTED, fail_points.IDS_INSERTED, fail_points.CHUNK_SENT]
)
def test_cut_connections_lose_and_double_no_poison(given, engine, billing, error, step):
    batch = rows(range(10), poison=[3, 7])
    with steps(), at_step(step, engine.cut_connections, on={1}) as cuts:
        forward(given, batch)
    forward(given, batch)
    assert (billing.count(), sent_to(error), cuts) == (8, [3, 7], [1])


@pytest.mark.parametrize("to", ["gone", "a@b@c@d"])
def test_a_destination_that_is_missing_fails_its_messages_alone(given, engine, billing, error, to):
    """A retry puts them back into the queue in which they were received."""
    batch = rows(range(4), Destination=["billing", to, "billing", to])
    assert forward(given, batch) == (2, 0, 2)
    assert forward(given, batch) == (0, 4, 0)
    assert (ids_in(billing), sent_to(error)) == (message_ids([0, 2]), [1, 3])
    assert {failed["NServiceBus.ProcessingEndpoint"] for failed in failed_in(error)} == {"orders"}


def test_a_destination_that_appears_between_two_tries_gets_nothing_twice(given, engine, billing, error):
    batch = rows(range(4), Destination=["billing", "late", "billing", "late"])
    assert forward(given, batch) == (2, 0, 2)
    late = engine.create_queue("late")
    assert forward(given, batch) == (0, 4, 0)
    assert (late.count(), sent_to(error)) == (0, [1, 3])


def test_an_error_queue_that_is_missing_ends_the_batch(engine, billing, remembered):
    given = options(engine, queue="billing", errorQueue="nowhere")
    with pytest.raises(QueueError, match="There is no queue table nowhere"):
        forward(given, rows(range(3), poison=[1]))
    assert billing.count() == 0


def test_a_table_that_refuses_one_message_fails_only_that_one(postgresql):
    postgresql.create_queue("orders")
    billing, error = (postgresql.create_queue(name) for name in ("billing", "error"))
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Sales")
    postgresql.execute("""ALTER TABLE "public"."billing" ADD CHECK (body NOT LIKE '%"order":17,%')""")
    given = options(postgresql, queue="billing")
    assert forward(given, rows(range(40))) == (39, 0, 1)
    assert (billing.count(), sent_to(error)) == (39, [17])
    (failed,) = failed_in(error)
    assert "check constraint" in failed["NServiceBus.ExceptionInfo.Message"]
    assert failed[FAILED_QUEUE] == '"public"."orders"'


def test_headers_of_one_hop_do_not_follow_to_the_error_queue(given, error):
    """But those of earlier retries do."""
    more = {
        "NServiceBus.TimeToBeReceived": "00:10:00",
        "NServiceBus.Retries": "2",
        "NServiceBus.Retries.Timestamp": "t",
    }
    text = messages.headers(1)[:-1] + "," + json.dumps(more, separators=(",", ":"))[1:]
    forward(given, rows([1], Headers=text, Destination="gone"))
    (failed,) = failed_in(error)
    assert not {"NServiceBus.TimeToBeReceived", "NServiceBus.Retries"} & failed.keys()
