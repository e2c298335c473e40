"""What is sent to SQL Server, as far as it is told without one:
what is bound to the statements that insert.
"""

import contextlib
import json
import re
from dataclasses import replace

import pyarrow as pa
import pytest

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConnectionLost, QueueError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import stage
from sqlqueue_spark.send.deliver.tables_of_chunk import Routes
from sqlqueue_spark.send.waiting import delayed_mover
from sqlqueue_spark.tables.delayed import DelayedTable, Due, Forwarded
from tests.support.recording import Answer, Recorder, Refused
from tests.support.sending import composed
from tests.support.statements import (
    COLUMNS,
    DATABASE,
    DUE_ROW,
    IDENTITY,
    NOW,
    QUEUE,
    STORAGE,
    TABLE,
    TABLE_COLUMNS,
)

FOUND = [STORAGE, DATABASE, IDENTITY, TABLE_COLUMNS, Answer("INSERT INTO", changed=1)]
HEADERS = json.dumps({"NServiceBus.MessageId": "m", "count": 7, "on": True})
ROW = "00000000-0000-4000-8000-00000000000a"


@pytest.fixture
def recorder(library, tmp_path):
    return Recorder(library, tmp_path, FOUND)


def frame(**columns):
    """One row."""
    types = {"Body": pa.binary(), "RowVersion": pa.int64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    return pa.RecordBatch.from_pylist([columns], schema)


def inserted(recorder):
    """What was bound to the last INSERT: headers, body, correlation id and reply address
    of its first message.
    """
    *_, last = [each for each in recorder.executions() if each.text.startswith("INSERT INTO")]
    messages = json.loads(next(each.value for each in last.bound if str(each.value).startswith("[[")))
    _, _, _, headers, body, correlation_id, reply_to, *_ = messages[0]
    return json.loads(headers), body, correlation_id, reply_to


@pytest.mark.parametrize("path", ["a queue", "the stage"])
@pytest.mark.parametrize("received", [{}, {"RowVersion": 7, "Id": ROW}], ids=["new", "received"])
def test_what_is_sent_stops_no_neighbour(recorder, path, received):
    """The body is no NULL, headers are an object of strings,
    and the reply address names schema and catalog.
    """
    given = SinkOptions.parse({"url": recorder.url, "queue": "orders", "stream": "billing", "outbox": "none"})
    destinations = Destinations(given)
    row = frame(Body=None, Headers=HEADERS, ReplyToAddress="Shop.Web", **received)
    chunks = composed(given, row, destinations=destinations)
    if path == "a queue":
        with Sender(destinations) as sender:
            assert sender.send(chunks).sent == 1
    else:
        assert stage(destinations, chunks).rows == 1
    headers, *columns = inserted(recorder)
    assert {type(each) for each in headers.values()} == {str}
    assert headers.items() >= {
        "count": "7", "on": "true", "NServiceBus.ReplyToAddress": "Shop.Web@[dbo]@[shop]",
    }.items()  # fmt: skip
    assert columns == ["", "m", "Shop.Web@[dbo]@[shop]"]


@pytest.mark.parametrize(
    "given, full",
    [
        ("Sales@s", "Sales@[s]@[shop]"),
        ("Sales@[s]@[other]", "Sales@[s]@[other]"),
        ("my]table@[my]]schema]", "my]table@[my]]schema]@[shop]"),
    ],
)
def test_a_reply_address_keeps_the_schema_and_the_catalog_that_it_has(recorder, given, full):
    options = SinkOptions.parse({"url": recorder.url, "queue": "orders", "outbox": "none"})
    destinations = Destinations(options)
    with Sender(destinations) as sender:
        sender.send(composed(options, frame(Body=b"", ReplyToAddress=given), destinations=destinations))
    headers, *_, reply_to = inserted(recorder)
    assert headers["NServiceBus.ReplyToAddress"] == reply_to == full


def test_a_message_of_the_command_line_stops_no_neighbour(recorder):
    options = ConnectionOptions.parse({"url": recorder.url})
    draft = queue_tables.Draft(message_type="T", headers={"NServiceBus.ReplyToAddress": "Shop.Web"})
    queue_tables.send(options, "orders", draft)
    headers, body, _, reply_to = inserted(recorder)
    assert (headers["NServiceBus.ReplyToAddress"], body, reply_to) == (
        "Shop.Web@[dbo]@[shop]",
        "",
        "Shop.Web@[dbo]@[shop]",
    )


def test_a_trial_message_says_in_full_where_to_reply(recorder):
    queue_tables.send_load(ConnectionOptions.parse({"url": recorder.url}), "orders", count=1)
    headers, *_, reply_to = inserted(recorder)
    assert headers["NServiceBus.ReplyToAddress"] == reply_to == "Shop.Web@[dbo]@[shop]"


def aborting(recorder):
    """Whether XACT_ABORT is on behind each statement, of those that set it."""
    found = []
    for each in recorder.executions():
        on = re.search(r"(?:IF (N'.*') = (N'.*') )?SET XACT_ABORT ON", each.text)
        if on and on[1] == on[2]:
            found.append(True)
        elif "SET XACT_ABORT OFF" in each.text:
            found.append(False)
    return found


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_an_attempt_leaves_the_one_around_it_as_it_is(library, tmp_path, fails):
    """Else the next error there would end the transaction, and free the rows of a batch that is done."""
    recorder = Recorder(library, tmp_path, [Answer("XACT_STATE", "i", [[1]])])
    with connect(Target(url=recorder.url)) as connection, connection.transaction():
        with connection.attempt():
            with contextlib.suppress(QueueError), connection.attempt():
                if fails:
                    raise QueueError("refused")
            assert aborting(recorder) == [True, False, False]
        assert aborting(recorder) == [True, False, False, True]


def refused_in_an_inner_attempt(connection):
    with connection.transaction(), connection.attempt(), connection.attempt():
        raise QueueError("refused")


@pytest.mark.parametrize("state", [1, 0, -1])
def test_an_error_that_ends_the_transaction_is_told_also_where_the_driver_has_begun_another_one(
    library, tmp_path, state
):
    """Microsoft's driver does so before the next statement; that one stands, and knows no savepoint."""
    unknown = Refused("25000", 6401, "[recording][SQL Server]Cannot roll back attempt 1. (6401)")
    answers = [Answer("XACT_STATE", "i", [[state]]), Answer("ROLLBACK TRANSACTION", rows=[unknown])]
    recorder = Recorder(library, tmp_path, answers)
    said = r"^The server ended the transaction in which a statement failed \(refused\)\.$"
    with connect(Target(url=recorder.url)) as connection, pytest.raises(ConnectionLost, match=said):
        refused_in_an_inner_attempt(connection)
    undone = [each for each in recorder.executions() if "ROLLBACK TRANSACTION" in each.text]
    assert len(undone) == (state == 1)


@pytest.mark.parametrize(
    "address, chosen",
    [("orders", True), ("Orders", True), ("ORDERS@[dbo]@[shop]", True), ("billing", False)],
)
def test_a_queue_that_an_option_names_is_chosen_however_a_message_spells_it(recorder, address, chosen):
    """Else the look at a stranger's table would also hold back what the option sends there."""
    destinations = Destinations(SinkOptions.parse({"url": recorder.url, "queue": "orders", "outbox": "none"}))
    place = destinations.places.destination(address)
    with connect(Target(url=recorder.url)) as connection:
        assert Routes(destinations, lambda _: connection).at(place).chosen is chosen


def test_a_delayed_message_stays_whole_in_a_queue_of_a_code_page(library, tmp_path):
    """The server counts an astral character as two."""
    before, end = (
        '{"a":"\N{GRINNING FACE}\N{GRINNING FACE}"',
        ',"NServiceBus.SqlServer.ForwardDestination":"orders"}',
    )
    recorder = Recorder(
        library,
        tmp_path,
        [
            Answer("NULL, d.Headers", "www", [[DUE_ROW, None, before + end]]),
            Answer("@left, @sent", "ii", [[1, 1]]),
        ],
    )
    due = Due(DUE_ROW, len(before) + 2, end, NOW)
    columns = tuple(
        each._replace(type="varchar(max)") if each.name == "Headers" else each for each in COLUMNS
    )
    with connect(Target(url=recorder.url)) as connection:
        to = replace(QUEUE, columns=columns)
        delayed_mover._move(DelayedTable(connection, TABLE), to, [Forwarded(due, due.before, "}")])
    (sent,) = [each for each in recorder.executions() if "@left" in each.text]
    ((*_, kept, headers),) = json.loads(str(sent.bound[0].value))
    assert (kept, json.loads(headers)) == (0, json.loads(before + "}"))
