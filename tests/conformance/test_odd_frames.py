"""Frames of received rows whose columns are odd: a row that is wrong fails alone."""

import json

import pyarrow as pa
import pytest

from sqlqueue_spark.send.compose.message_builder import MessageBuilder
from tests.support.messages import body, headers, message_id, row_id
from tests.support.outcomes import failed_in
from tests.support.sending import ids_in, options, sent_all
from tests.support.stored import create_home


@pytest.fixture
def near(engine):
    create_home(engine, "Sales", "orders")
    return engine.create_queue("near")


def rows(*more):
    """Received rows of the queue orders that go on to near, with further columns."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "Queue": "orders",
                "RowVersion": number,
                "Id": str(row_id(number)),
                "Headers": headers(number),
                "Body": body(number),
                "Destination": "near",
                **each,
            }
            for number, each in enumerate(more, 1)
        ]
    )


def test_a_row_of_which_column_and_header_name_two_ids_fails_alone(engine, near):
    """Spark and Python may read an id differently, and anyone who sends to the queue may write one."""
    given = rows({"MessageId": message_id(1)}, {"MessageId": "other"}, {"MessageId": message_id(3)})
    sent = sent_all(options(engine, errorQueue="error"), given)
    assert (sent.sent, sent.failed, sorted(ids_in(near))) == (2, 1, [message_id(1), message_id(3)])
    [failed] = failed_in(engine.queue("error"))
    assert failed["NServiceBus.MessageId"] == message_id(2)


def test_one_row_that_cannot_be_sent_is_found_without_trying_each(postgresql, monkeypatch):
    create_home(postgresql, "Sales", "orders")
    near, composed, tries = postgresql.create_queue("near"), MessageBuilder.composed, []

    def counted(self, given, *more):
        tries.append(given.num_rows)
        return composed(self, given, *more)

    monkeypatch.setattr(MessageBuilder, "composed", counted)
    given = rows(
        *({"MessageId": message_id(number) if number != 777 else "other"} for number in range(1, 1001))
    )
    sent = sent_all(options(postgresql, errorQueue="error"), given)
    assert (sent.sent, sent.failed, near.count(), len(tries) < 30) == (999, 1, 999, True)


def test_headers_of_received_rows_may_be_a_map(engine, near):
    maps = pa.array(
        [[("NServiceBus.MessageId", "a"), ("Extra", "α")], [("NServiceBus.MessageId", "b"), ("Extra", None)]],
        pa.map_(pa.string(), pa.string()),
    )
    given = rows({}, {})
    given = given.set_column(given.schema.get_field_index("Headers"), "Headers", maps)
    assert sent_all(options(engine, errorQueue="error"), given).sent == 2
    arrived = [json.loads(row.headers) for row in near.rows()]
    assert [(each["NServiceBus.MessageId"], each.get("Extra")) for each in arrived] == [
        ("a", "α"),
        ("b", None),
    ]
