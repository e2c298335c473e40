"""Batches of Spark come in the types that our code knows, under any setting; what is too large is cut."""

import pyarrow as pa

from sqlqueue_spark.spark import arrow_batches
from sqlqueue_spark.spark.arrow_batches import plain


def schema(text, data, time, a_list):
    fields = pa.struct([("Name", text), ("Data", pa.map_(text, data))])
    return pa.schema(
        [
            ("Id", text),
            ("Body", data),
            ("Expires", time),
            ("Naive", pa.timestamp("us")),
            ("All", a_list(fields)),
        ]
    )


PLAIN = schema(pa.string(), pa.binary(), pa.timestamp("us", tz="UTC"), pa.list_)
ROWS = [
    {"Id": "a", "Body": b"1", "Expires": 7, "Naive": 8, "All": [{"Name": "n", "Data": [("k", b"v")]}]},
    {"Id": None, "Body": None, "Expires": None, "Naive": None, "All": None},
    {"Id": "", "Body": b"", "Expires": 9, "Naive": 1, "All": []},
]


def test_large_texts_and_times_of_other_zones_become_plain():
    large = schema(pa.large_string(), pa.large_binary(), pa.timestamp("us", tz="Asia/Tokyo"), pa.large_list)
    given = pa.RecordBatch.from_pylist(ROWS, large)
    (found,) = plain(iter([given]))
    assert found == pa.RecordBatch.from_pylist(ROWS, PLAIN)


def test_a_plain_batch_is_handed_on_as_it_is():
    given = pa.RecordBatch.from_pylist(ROWS, PLAIN)
    (found,) = plain(iter([given]))
    assert found is given


def test_a_batch_that_is_too_large_for_plain_types_is_cut(monkeypatch):
    monkeypatch.setattr(arrow_batches, "_MOST_BYTES", 100)
    texts = [str(number) * 60 for number in range(5)]
    given = pa.RecordBatch.from_pydict({"Id": pa.array(texts, pa.large_string())})
    found = list(plain(iter([given])))
    assert [each.num_rows for each in found] == [1, 1, 1, 1, 1]
    assert [each for batch in found for each in batch["Id"].to_pylist()] == texts
