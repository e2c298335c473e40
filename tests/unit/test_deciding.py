"""What of a chunk is written: the short way, where nothing is known, decides as the long one does."""

from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlqueue_spark.messages.failure_headers import Failure
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.send.compose.chunk import Composed
from sqlqueue_spark.send.compose.database_of_address import Place
from sqlqueue_spark.send.compose.received import ROWS, Received
from sqlqueue_spark.send.deliver.addressed_chunk import AddressedChunk
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.outcomes_once import OutcomesOnce
from sqlqueue_spark.send.deliver.tables_of_chunk import Addressed, Routes

IDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)
OPTIONS = SinkOptions.parse({"url": "postgresql://h/d", "endpoint": "Sales", "errorQueue": "error"})
FAILURE = Failure(exception_type="ValueError")


def work_of(ids, *, handled, failing=()):
    """The work at home of rows that send a message each, of their own id, to the queue billing."""
    destinations = Destinations(OPTIONS)
    texts = pa.array(ids, pa.string())
    addresses, events = pa.array(["billing"] * len(ids)), pa.nulls(len(ids), pa.string())
    sends = Composed(id_column=texts, addresses=addresses, make=lambda: None, events=events)
    rows = Received(
        frame=pa.RecordBatch.from_pylist(
            [
                {"Queue": "orders", "RowVersion": at, "Id": "row", "MessageId": id_, "Headers": id_}
                for at, id_ in enumerate(ids)
            ],
            ROWS,
        ),
        handled=handled,
        moved={},
        stored={},
    )
    place = destinations.places.destination("billing")
    to = Addressed(
        positions=range(len(ids)),
        target=place.target,
        place=Place(place.target, place.table),
        known_as="billing@[public]",
        to=mock.Mock(),
    )
    chunk = AddressedChunk(
        places=destinations.places,
        rows=rows,
        sends=sends,
        owners=range(len(ids)),
        addressed=[to],
        failed=dict.fromkeys(failing, FAILURE),
    )
    return OutcomesOnce(Routes(destinations, mock.Mock(), False), chunk)


@settings(deadline=None)
@given(ids=IDS, handled=st.booleans(), data=st.data())
def test_the_short_way_decides_as_the_long_one(ids, handled, data):
    """That something else is known changes nothing, but takes the long way."""
    failing = data.draw(st.sets(st.sampled_from(range(len(ids)))))
    orders = SimpleNamespace(address="orders", digits="1")
    with mock.patch.object(OutcomesOnce, "_received", return_value=orders):
        short, long = (work_of(ids, handled=handled, failing=failing).decide(known) for known in ((), {"x"}))
    assert [list(short.rows), list(short.messages), set(short.keys), short.repeated] == [
        list(long.rows),
        list(long.messages),
        set(long.keys),
        long.repeated,
    ]
