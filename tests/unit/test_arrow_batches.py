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


def test_what_is_no_utf_8_in_a_text_is_read_as_java_reads_it():
    odd = pa.array([b"ok", b"\xff\xfe", None]).view(pa.string())
    person = pa.struct([("name", pa.string()), ("photo", pa.binary())])
    columns = {
        "Text": odd,
        "Body": odd,
        "Struct": pa.StructArray.from_arrays([odd, pa.array([b"\xff", b"\xfe", b""])], fields=list(person)),
        "List": pa.ListArray.from_arrays(pa.array([0, 2, 3, 3], pa.int32()), odd),
        "Map": pa.MapArray.from_arrays(pa.array([0, 1, 2, 2], pa.int32()), pa.array(["a", "b"]), odd[:2]),
        "Number": pa.array([1, 2, 3]),
    }
    [found] = plain(iter([pa.RecordBatch.from_pydict(columns)]))
    assert found.column("Body").cast(pa.binary()).to_pylist() == [b"ok", b"\xff\xfe", None]
    assert found.drop_columns("Body").to_pydict() == {
        "Text": ["ok", "\ufffd\ufffd", None],
        "Struct": [
            {"name": "ok", "photo": b"\xff"},
            {"name": "\ufffd\ufffd", "photo": b"\xfe"},
            {"name": None, "photo": b""},
        ],
        "List": [["ok", "\ufffd\ufffd"], [None], []],
        "Map": [[("a", "ok")], [("b", "\ufffd\ufffd")], []],
        "Number": [1, 2, 3],
    }


def test_a_part_of_a_batch_has_its_own_texts_alone():
    whole = pa.RecordBatch.from_pydict({"Text": pa.array([b"\xff", b"a", b"b"]).view(pa.string())})
    [found] = plain(iter([whole.slice(1)]))
    assert found.to_pydict() == {"Text": ["a", "b"]}
