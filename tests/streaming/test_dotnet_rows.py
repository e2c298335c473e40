"""What real .NET endpoints wrote goes through Spark byte for byte: as a stream, as a peek,
and from queue to queue in each mode.
"""

import json

import pytest
from pyspark.sql import Row as SparkRow

from sqlqueue_spark.pipeline.declared import jobs
from tests.support import dotnet
from tests.support.streams import drain, stream, to_each

SOURCE, TARGET = "Interop.Subscriber", "Interop.Target"
#: Each way from queue to queue: the mode of both ends, and the outbox.
WAYS = {
    "receiveOnly, optimistic": ("receiveOnly", "optimistic"),
    "receiveOnly, pessimistic": ("receiveOnly", "pessimistic"),
    "receiveOnly, none": ("receiveOnly", "none"),
    "sendsAtomicWithReceive": ("sendsAtomicWithReceive", None),
    "none": ("none", "none"),
}


@pytest.fixture
def rows():
    return dotnet.usual()


@pytest.fixture
def source(postgresql, rows):
    return dotnet.create_queue(postgresql, SOURCE, rows)


def as_spark_shows(rows):
    """The rows of a queue as the columns of a frame."""
    return [
        SparkRow(
            Id=str(row.id), CorrelationId=None, ReplyToAddress=None, Recoverable=None, Expires=row.expires,
            Headers=row.headers, Body=bytearray(row.body), RowVersion=row.row_version,
        )
        for row in rows
    ]  # fmt: skip


def test_a_stream_and_a_peek_show_them(spark, postgresql, source, rows, tmp_path):
    peek = spark.read.format("sqlqueue").options(url=postgresql.url, queue=source.address).load()
    assert peek.orderBy("RowVersion").collect() == as_spark_shows(rows)
    assert source.rows() == rows
    seen = []
    drain(to_each(stream(spark, postgresql, source), tmp_path, lambda batch, _: seen.extend(batch.collect())))
    assert sorted(seen, key=lambda row: row.RowVersion) == as_spark_shows(rows)
    assert source.count() == 0


@pytest.mark.parametrize("way", WAYS)
def test_they_go_from_queue_to_queue(spark, postgresql, source, rows, tmp_path, way):
    """Beside what their endpoint remembers in its outbox,
    whose ids are of messages that were received, not sent.

    A message id that comes twice goes out once with an outbox: that of an event which two endpoints have
    audited, or of a message that was retried and failed again.
    """
    target = dotnet.create_queue(postgresql, TARGET)
    dotnet.create_table(postgresql, dotnet.OUTBOX)
    dotnet.insert(postgresql, dotnet.OUTBOX, dotnet.lines("outbox"))
    remembered = outbox(postgresql)
    mode, kind = WAYS[way]
    given = {"url": postgresql.url, "queue": SOURCE, "stream": "Interop.Spark", "transactionMode": mode}
    to = {
        "queue": TARGET,
        "endpoint": dotnet.ENDPOINT,
        "disableCleanup": "true",
        **({"outbox": kind} if kind else {}),
    }
    work = {"checkpoint": str(tmp_path / "checkpoint"), "availableNow": "true"}
    totals = jobs.forward.understood({"source": given, "sink": to, "forward": work}).start(spark)
    expected = once(rows) if kind in ("optimistic", "pessimistic") else rows
    found = target.rows()
    assert [(row.body, row.expires) for row in found] == [(row.body, row.expires) for row in expected]
    assert [completed(was.headers, row.headers) for was, row in zip(expected, found, strict=True)] == [
        lacking(was) for was in expected
    ]
    assert {row.id for row in found}.isdisjoint(row.id for row in rows)
    assert (source.count(), totals.messages) == (0, len(rows))
    added = [row for row in outbox(postgresql) if row not in remembered]
    assert len(added) == (len(expected) if kind in ("optimistic", "pessimistic") else 0)
    assert [row for row in outbox(postgresql) if row in remembered] == remembered


def outbox(engine):
    return engine.fetch(f'SELECT * FROM "{dotnet.OUTBOX}" ORDER BY "MessageId"')


def once(rows):
    """The rows without those whose message id an earlier one has."""
    ids = [json.loads(row.headers).get("NServiceBus.MessageId", str(row.id)) for row in rows]
    assert len(ids) - len(set(ids)) == 9
    return [row for number, row in enumerate(rows) if ids[number] not in ids[:number]]


def lacking(row):
    """What a message gets on its way: headers that it lacks. Its id is that of the row in which it came."""
    told = json.loads(row.headers)
    names = {name for name in dotnet.COMPLETED if name not in told}
    return names, str(row.id) if "NServiceBus.MessageId" in names else None


def completed(was, is_):
    """The names of the headers that were added behind those that were there,
    and the id, if that was added.
    """
    if was == is_:
        return set(), None
    begin = was.removesuffix("}")
    assert (is_[: len(begin)], is_[len(begin)]) == (begin, ",")
    added = json.loads("{" + is_[len(begin) + 1 :])
    return added.keys(), added.get("NServiceBus.MessageId")
