"""Columns out of headers and bodies: what is there comes out, what is poison is NULL,
and nothing is ever an error.
"""

import json
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sqlqueue_spark import functions
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.pipeline.running.queue_stream import _id_beside_headers, _without_hops
from tests.support.messages import HEADERS, MESSAGE_TYPE
from tests.support.session_settings import SETTINGS, session_settings

AT_NIGHT = [pytest.param(each, id=name, marks=pytest.mark.tier("nightly")) for name, each in SETTINGS.items()]

ROW = StructType(
    [
        StructField("Number", IntegerType()),
        StructField("Id", StringType()),
        StructField("Headers", StringType()),
        StructField("Body", BinaryType()),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ODD_NAMES = {
    "a.b": "dot",
    "$.diagnostics.hostid": "dollar",
    'say "hi"': "quotes",
    "it's": "apostrophe",
    "[0]": "brackets",
    "a`b": "backtick",
    "back\\slash": "backslash",
    "*": "star",
    "": "nothing",
    "漢 é 😀": "far",
    "A.B": "capitals",
    "_corrupt_record": "Spark's name for what is no JSON",
}
#: No headers, in all the ways in which senders write that.
NONE = [None, "", "   ", "\r\n\t", "{}", " { } ", "[]", "[ ]", "null", " null\n", "\ufeff[]", "\ufeff"]
#: Headers that are no JSON object of strings, down to the last closing bracket.
POISON = [
    "not JSON",
    "{",
    '{"NServiceBus.MessageId": "cut off',
    "[1]",
    "nullnull",
    '["NServiceBus.MessageId"]',
    '[{"NServiceBus.MessageId": "in an array"}]',
    "true",
    "7",
    '"text"',
    "{'NServiceBus.MessageId': 'single quotes'}",
    "{NServiceBus.MessageId: 7}",
    '{"NServiceBus.MessageId": "comment" /* no JSON */}',
    "{" * 20_000,
    '{"a":' * 5_000 + "1" + "}" * 5_000,
    "\x00",
]


@pytest.fixture(autouse=True, params=[pytest.param({}, id="default"), *AT_NIGHT])
def _settings(request, spark):
    with session_settings(spark, request.param):
        yield


@pytest.fixture
def rows(spark):
    """Rows of (Headers, Body), numbered, with the Id ``row-<number>``."""

    def make(*pairs):
        listed = [(number, f"row-{number}", *pair) for number, pair in enumerate(pairs)]
        return spark.createDataFrame(listed, ROW)

    return make


@pytest.fixture
def expect(spark):
    """Compare a column with the values it must have, types and order included."""

    def compare(frame, column, type_, values):
        found = frame.select("Number", column.alias("found"))
        schema = StructType([StructField("Number", IntegerType()), StructField("found", type_)])
        assert_df_equality(found.orderBy("Number"), spark.createDataFrame([*enumerate(values)], schema))

    return compare


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def time_zone(request, spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def headers_of(**given):
    names = {
        "id": "NServiceBus.MessageId",
        "type": "NServiceBus.EnclosedMessageTypes",
        "sent": "NServiceBus.TimeSent",
    }
    return json.dumps({names[key]: value for key, value in given.items()})


def test_all_headers_come_out_as_a_map(rows, expect):
    frame = rows((HEADERS, None), (json.dumps(ODD_NAMES), None), ("{}", None), (' \n{"a" : "b"}\t', None))
    expected = [json.loads(HEADERS), ODD_NAMES, {}, {"a": "b"}]
    expect(frame, functions.headers_map(), MapType(StringType(), StringType()), expected)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_header_is_found_by_its_exact_name(rows, expect, name):
    """Whatever is in the name."""
    frame = rows((json.dumps(ODD_NAMES), None), ("{}", None), (None, None))
    expect(frame, functions.header(name), StringType(), [ODD_NAMES[name], None, None])


def test_of_two_headers_of_one_name_the_last_one_counts(rows, expect):
    """As for the sink, and for .NET endpoints."""
    frame = rows(('{"NServiceBus.MessageId":"first","a":"b","NServiceBus.MessageId":"last"}', None))
    expect(frame, functions.message_id(), StringType(), ["last"])


def test_the_columns_of_a_message_are_those_of_their_functions(rows):
    """However often the headers are read for them."""
    frame = rows(*((text, None) for text in (HEADERS, *NONE, *POISON, headers_of(id="", type=" ", sent="x"))))
    columns = [functions.message_id(), functions.message_type(), functions.sent_at()]
    assert_df_equality(functions.with_message_columns(frame), frame.select("*", *columns))


def test_poison_headers_are_null(rows, expect):
    """The row's id stands in for the message id."""
    frame = rows(*((headers, None) for headers in POISON))
    nothing = [None] * len(POISON)
    for column in (functions.header("NServiceBus.MessageId"), functions.message_type()):
        expect(frame, column, StringType(), nothing)
    expect(frame, functions.headers_map(), MapType(StringType(), StringType()), nothing)
    expect(frame, functions.sent_at(), TimestampType(), nothing)
    expect(frame, functions.message_id(), StringType(), [f"row-{number}" for number in range(len(POISON))])


def test_no_headers_are_an_empty_map(rows, expect):
    """So they differ from poison; the row's id stands in for the message id here too."""
    frame = rows(*((headers, None) for headers in NONE))
    expect(frame, functions.headers_map(), MapType(StringType(), StringType()), [{} for _ in NONE])
    expect(frame, functions.header("NServiceBus.MessageId"), StringType(), [None] * len(NONE))
    expect(frame, functions.message_id(), StringType(), [f"row-{number}" for number in range(len(NONE))])


def test_a_value_that_is_no_text_hides_no_other_header(rows, expect):
    name = "NServiceBus.MessageId"
    values = ["7", "1.50", "true", "null", "[1, 2]", '{"deep": {"er": "x"}}', '""']
    frame = rows(*((f'{{"before": "b", "{name}": {value}, "after": "a"}}', None) for value in values))
    found = ["7", "1.5", "true", None, "[1,2]", '{"deep":{"er":"x"}}', ""]
    expect(frame, functions.header(name), StringType(), found)
    expect(frame, functions.header("after"), StringType(), ["a"] * len(values))
    ids = [*found[:3], "row-3", *found[4:6], "row-6"]
    expect(frame, functions.message_id(), StringType(), ids)


def test_headers_behind_a_byte_order_mark_are_read(rows, expect):
    """As the sink reads them."""
    expect(rows(("\ufeff" + headers_of(id="x"), None)), functions.message_id(), StringType(), ["x"])


#: Two key columns, and the name of which their id is made.
KEYS = {
    ("4711", "3"): '["4711","3"]',
    ("a,b", "c"): '["a,b","c"]',
    ("a", "b,c"): '["a","b,c"]',
    ('a","b', "c"): '["a\\",\\"b","c"]',
    ("a\\", "c/d"): '["a\\\\","c/d"]',
    (None, ""): '[null,""]',
    ("", None): '["",null]',
    ("null", ""): '["null",""]',
    (None, None): "[null,null]",
    ("é漢😀", "\u2028\x7f\x85"): '["é漢😀","\u2028\x7f\x85"]',
    ("\n\t\b", "\x00\x1f"): '["\\n\\t\\b","\\u0000\\u001F"]',
    (" a", "a "): '[" a","a "]',
}


def test_an_id_of_keys_is_the_uuid_5_of_their_json(spark):
    """Of their JSON array."""
    frame = spark.createDataFrame([*KEYS], "order string, line string")
    by_name, by_column = (
        functions.deterministic_id("order", "line"),
        functions.deterministic_id(F.col("order"), frame["line"]),
    )
    found = frame.select("order", "line", by_name, by_column.alias("again"))
    assert found.columns == ["order", "line", "MessageId", "again"]
    expected = {key: str(uuid.uuid5(functions.NAMESPACE, name)) for key, name in KEYS.items()}
    assert len(set(expected.values())) == len(KEYS)
    assert [tuple(row) for row in found.collect()] == [(*key, own, own) for key, own in expected.items()]


def test_the_id_of_a_key_is_this_one_for_ever(spark):
    """Any other would make every message new to every outbox."""
    assert str(functions.NAMESPACE) == "6e0d3b5c-9a5f-4f0b-8f57-0c1d7a2e94b3"
    frame = spark.sql("SELECT 4711 AS `order`, 3 AS line")
    assert (
        frame.select(functions.deterministic_id("order", "line")).first()[0]
        == "3ea70edb-3a19-566d-ba3b-bd0dc4612f02"
    )


def test_a_key_is_what_spark_casts_it_to(spark):
    frame = spark.sql(
        "SELECT 1 AS a, 1.0d AS b, 1e10d AS c, -0.0d AS d, 1.00 AS e, true AS f, DATE'2025-01-02' AS g, "
        "TIMESTAMP'2025-01-02 03:04:05.120' AS h, array(1, null) AS i"
    )
    name = '["1","1.0","1.0E10","-0.0","1.00","true","2025-01-02","2025-01-02 03:04:05.12","[1, null]"]'
    (found,) = frame.select(functions.deterministic_id(*frame.columns)).first()
    assert found == str(uuid.uuid5(functions.NAMESPACE, name))


@pytest.mark.parametrize("columns", [(), (5,), ("order", None)])
def test_an_id_of_nothing_is_refused(columns):
    with pytest.raises(ConfigurationError, match=r"^An id needs key columns or their names, like "):
        functions.deterministic_id(*columns)


@pytest.mark.parametrize(
    "enclosed,found",
    [
        (MESSAGE_TYPE, "Shop.Messages.OrderPlaced"),
        ("Sales.OrderPlaced", "Sales.OrderPlaced"),
        ("Sales.OrderPlaced;Sales.IOrderEvent", "Sales.OrderPlaced"),
        (
            "Sales.Placed, Sales, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null;Sales.Event, Sales",
            "Sales.Placed",
        ),
        ("  Sales.OrderPlaced , Sales", "Sales.OrderPlaced"),
        ("Sales.Outer+Inner, Sales", "Sales.Outer+Inner"),
        ("", None),
        (" ", None),
        (", Sales", None),
        (";", None),
    ],
)
def test_the_message_type_is_the_first_type_enclosed(rows, expect, enclosed, found):
    """Without its assembly."""
    expect(rows((headers_of(type=enclosed), None)), functions.message_type(), StringType(), [found])


def test_the_time_sent_is_a_moment_in_every_time_zone(rows, expect, time_zone):
    times = {
        "2025-11-20 08:15:30:123456 Z": datetime(2025, 11, 20, 8, 15, 30, 123456, tzinfo=UTC),
        "2025-03-09 02:30:00:000000 Z": datetime(2025, 3, 9, 2, 30, tzinfo=UTC),  # skipped in New York
        "0001-01-01 00:00:00:000000 Z": datetime(1, 1, 1, tzinfo=UTC),
        "9998-12-31 23:59:59:999999 Z": datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "2025-02-30 08:15:30:123456 Z": None,
        "2025-11-20 25:15:30:123456 Z": None,
        "2025-11-20T08:15:30.123456Z": None,
        "2025-11-20 08:15:30": None,
        "yesterday": None,
        "": None,
    }
    frame = rows(*((headers_of(sent=text), None) for text in times), (headers_of(id="x"), None))
    assert frame.select(functions.sent_at().alias("sent")).schema["sent"].dataType == TimestampType()
    # Compared as microseconds since 1970: Python cannot show every moment in every zone.
    micros = [
        None if moment is None else (moment - EPOCH) // timedelta(microseconds=1) for moment in times.values()
    ]
    expect(frame, F.unix_micros(functions.sent_at()), LongType(), [*micros, None])


@pytest.mark.parametrize("filler", [" ", "\\\\", '\\"', ",", "{", "[", "1", "\u200b", "\ufeff", '"a":"b",'])
def test_long_runs_of_odd_characters_are_read_in_seconds(rows, filler):
    """A blank that is tried twice would take an hour."""
    many = filler * (300_000 // len(filler))
    texts = [
        *(many, f"{many}x", f"[{many}", f"null{many}x", f'{{"a":"{many}"}}', f'{{"a":{many}'),
        f'{{"{FORWARD_DESTINATION}"{many}:"b","a":"c"}}',
        f'{{"a":"c","{FORWARD_DESTINATION}":{many}"b"}}',
        f'{{"a":"c","{FORWARD_DESTINATION}":"{many}"}}{many}',
        f'{{"a":"c",{many}"{FORWARD_DESTINATION}":"',
    ]
    frame = rows(*((text, text.encode()) for text in texts))
    columns = [
        functions.headers_map().alias("map"),
        functions.message_type(),
        functions.sent_at(),
        functions.body_text(),
        _without_hops(F.col("Headers")).alias("left"),
        _id_beside_headers().alias("beside"),
    ]
    began = time.monotonic()
    found = frame.select("Number", *columns).collect()
    assert time.monotonic() - began < 60
    # What stands behind the last bracket is none of Spark's business.
    read = [parse_headers(text[: text.rfind("}") + 1] or text) for text in texts]
    assert [row.map is None for row in found] == [each is None for each in read]
    assert [row.left[:80] for row in found if row.map and FORWARD_DESTINATION in row.left] == []


def test_a_body_is_text_without_its_byte_order_mark(rows, expect):
    """Nothing else is left out."""
    bodies = {
        b'{"order":1}': '{"order":1}',
        b"\xef\xbb\xbf{}": "{}",
        b"\xef\xbb\xbf": "",
        b"\xef\xbb\xbf\xef\xbb\xbf{}": "\ufeff{}",
        b"{}\xef\xbb\xbf": "{}\ufeff",
        b"a\n\xef\xbb\xbfb": "a\n\ufeffb",
        "é漢😀".encode(): "é漢😀",
        b"": "",
        b"a\x00b": "a\x00b",
        None: None,
    }
    frame = rows(*(("{}", body) for body in bodies))
    expect(frame, functions.body_text(), StringType(), [*bodies.values()])


def test_a_body_that_is_no_utf_8_is_no_error(rows, expect):
    """It is shown as far as it is UTF-8."""
    bodies = {b"caf\xe9!": "caf\ufffd!", b"\xff\xfea": "\ufffd\ufffda", b"ok\xf0\x9f\x98": "ok\ufffd"}
    frame = rows(*(("{}", body) for body in bodies))
    expect(frame, functions.body_text(), StringType(), [*bodies.values()])


@contextmanager
def warned(spark):
    """What the JVM logs as a warning or worse, within the block."""
    log4j = spark._jvm.org.apache.logging.log4j
    said: list[str] = []
    writer = spark._jvm.java.io.StringWriter()
    layout = log4j.core.layout.PatternLayout.createDefaultLayout()
    appender = log4j.core.appender.WriterAppender.createAppender(
        layout, None, writer, "of a test", False, True
    )
    context = log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    level = root.getLevel()
    appender.start()
    root.setLevel(log4j.Level.WARN)
    root.addAppender(appender, log4j.Level.WARN, None)
    context.updateLoggers()
    try:
        yield said
    finally:
        root.removeAppender("of a test")
        root.setLevel(level)
        context.updateLoggers()
        said += writer.toString().splitlines()


def test_no_function_makes_spark_warn(spark):
    """A deprecated function of Spark's writes a line into the log of every program."""
    rows = [("1", '\ufeff{"NServiceBus.MessageId":"m","NServiceBus.EnclosedMessageTypes":"A, B"}', b"x")]
    frame = spark.createDataFrame(rows, "Id string, Headers string, Body binary")
    with warned(spark) as said:
        (row,) = frame.select(
            functions.headers_map().alias("map"),
            functions.header("NServiceBus.MessageId").alias("id"),
            functions.message_id(),
            functions.message_type(),
            functions.sent_at(),
            functions.body_text(),
            functions.deterministic_id("Id"),
        ).collect()
    assert (row.id, row["MessageType"], row["BodyText"]) == ("m", "A", "x")
    assert [line for line in said if "deprecated" in line.lower()] == []
