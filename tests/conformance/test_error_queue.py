"""Failed messages are looked at, put back and discarded, as the command does it."""

import base64
import itertools
import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import error_discard, error_queue, failed_retry, queue_peek
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.messages.failure_headers import failed_headers, poison
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.messages.servicecontrol import Verdict
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import queue_admin
from sqlqueue_spark.tables.queue_admin import Envelope, QueueAdmin
from tests.support import dotnet
from tests.support.error_rows import ACKNOWLEDGEMENT, fail, failed, failure, full
from tests.support.messages import body, headers, message_id, message_ids, row_id
from tests.support.sending import ids_in

pytestmark = pytest.mark.needs("reads_json_as_documented")

ALL = Selection()
PAST = datetime(2020, 1, 1)  # noqa: DTZ001 -- the column has no zone


@pytest.fixture
def error(engine):
    return engine.create_queue("error")


def options(engine, **more):
    return ConnectionOptions.parse({"url": engine.url, "lockTimeout": "1s", **more})


def looked(engine, **means):
    return [*error_queue.look(options(engine), "error", Selection(**means))]


def numbers(engine, **means):
    return [row.row_version for row in looked(engine, **means)]


def retry(engine, selection=ALL, **more):
    return failed_retry.retry(options(engine), "error", selection, **more)


def name_of(postgresql):
    """The queue orders as the commands show it."""
    return f"orders@[public]@[{urlsplit(postgresql.url).path[1:]}]"


def test_headers_are_read_a_few_at_a_time_where_they_are_long(engine, error, monkeypatch):
    """A stranger may have written 100,000 of them, hundreds of times."""
    fail(error, range(7), full(engine))
    monkeypatch.setattr(queue_admin, "_PAGE_BYTES", 3 * engine.bytes_of(error.rows()[0].headers) + 1_000)
    asked: list[list[Envelope]] = []
    monkeypatch.setattr(QueueAdmin, "envelopes", _telling(asked))
    assert numbers(engine) == [1, 2, 3, 4, 5, 6, 7]
    assert [len(each) for each in asked] == [3, 3, 1]
    asked.clear()
    chosen = MessageSelection(ids=frozenset({message_id(6)}))
    assert [message.row_version for message in queue_peek.look(options(engine), "error", chosen)] == [7]
    assert [len(each) for each in asked] == [3, 3, 1]


def _telling(asked):
    read = QueueAdmin.envelopes

    def envelopes(self, *given):
        asked.append(found := read(self, *given))
        return found

    return envelopes


def test_each_filter_finds_its_rows(engine, error):
    fail(error, range(2), full(engine), hours=3)
    fail(error, range(2, 4), full(engine, "billing"), kind="shop.Late", hours=1)
    fail(error, range(4, 5), full(engine, schema="sales"), kind="System.ArgumentException")
    error.insert_row(id=row_id(5), headers="no JSON", body=b"x")
    error.insert_row(id=row_id(6), headers=json.dumps(ACKNOWLEDGEMENT), body=b"")
    assert numbers(engine) == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(engine, failed_queue="orders") == [1, 2]
    assert numbers(engine, failed_queue="orders@sales") == [5]
    assert numbers(engine, failed_queue=full(engine, "billing")) == [3, 4]
    assert numbers(engine, exception_type="shop.Late") == [3, 4]
    assert numbers(engine, exception_type="ArgumentException") == [5]
    assert numbers(engine, older_than=timedelta(hours=2)) == [1, 2]
    assert numbers(engine, newer_than=timedelta(hours=2)) == [3, 4, 5]
    assert numbers(engine, older_than=timedelta(minutes=30), newer_than=timedelta(hours=2)) == [3, 4]
    assert numbers(engine, message_ids=frozenset({message_id(1), str(row_id(5))})) == [2, 6]
    assert numbers(engine, stopping=True) == [6]
    assert [row.kind for row in looked(engine)][-2:] == ["failure", "acknowledgement"]


def test_rows_are_looked_at_in_portions(engine, error, monkeypatch):
    monkeypatch.setattr(queue_peek, "_ROWS", 3)
    error.insert(7)
    assert numbers(engine) == [1, 2, 3, 4, 5, 6, 7]


def test_an_empty_error_queue_has_no_rows(engine, error):
    assert numbers(engine) == []
    assert retry(engine).count == 0


def test_rows_that_stop_servicecontrol_are_marked(engine, error):
    good = failed(1, failure(full(engine)))
    rows = [
        (good, b"x", None),
        (good, None, None),
        ("null", b"", None),
        ("not json", b"", None),
        (good[:-1] + ',"n":1}', b"", None),
        (good[:-1] + ',"half":"\\ud83d"}', b"", None),
        (good.replace(message_id(1), "x" * 500), b"", None),
        (headers(1), b"", None),
        (good, b"", PAST),
        (json.dumps(ACKNOWLEDGEMENT), b"", None),
    ]
    for number, (text, content, expires) in enumerate(rows):
        error.insert_row(id=row_id(number), headers=text, body=content, expires=expires)
    found = [row.ingestion.verdict for row in looked(engine)]
    without_body = (
        Verdict.STOPS if engine.name == "postgresql" else Verdict.TAKEN
    )  # where it is read as an empty one
    assert found == [
        *(Verdict.TAKEN, without_body),
        *[Verdict.STOPS] * 5,
        *(Verdict.REFUSED, Verdict.DROPPED, Verdict.TAKEN),
    ]


def test_a_message_goes_back_whole(postgresql):
    """With a new row id, without expiry, without the headers of its failure;
    its others and its body byte for byte.
    """
    error, orders = postgresql.create_queue("error"), postgresql.create_queue()
    content = b"\xef\xbb\xbf\x00\xff"
    error.insert_row(
        id=row_id(1),
        headers=failed(1, failure(full(postgresql))),
        body=content,
        expires=datetime(2120, 1, 1),  # noqa: DTZ001 -- the column has no zone
    )
    done = retry(postgresql)
    (row,) = orders.rows()
    left = headers(1)[:-1] + ', "NServiceBus.ProcessingEndpoint": "orders"}'
    assert (row.headers, row.body, row.expires) == (left, content, None)
    assert row.id != row_id(1)
    assert (error.count(), done.went, done.stayed, done.held) == (0, {name_of(postgresql): 1}, {}, 0)


def test_a_row_that_has_expired_goes_back(engine, error):
    """What an operator puts back shall be handled, whatever time it was to be received in."""
    orders = engine.create_queue()
    error.insert_row(id=row_id(1), headers=failed(1, failure(full(engine))), body=b"x", expires=PAST)
    assert retry(engine).count == 1
    assert [(row.body, row.expires) for row in orders.rows()] == [(b"x", None)]


def test_a_row_that_a_net_endpoint_wrote_goes_back(postgresql):
    recorded = dotnet.rows("error")
    error = dotnet.create_queue(postgresql, "error", recorded)
    interop = dotnet.create_queue(postgresql, "Interop.Recorder")
    done = retry(postgresql)
    rows = interop.rows()
    assert [row.body for row in rows] == [row.body for row in recorded[1:]]
    for row, was in zip(rows, recorded[1:], strict=True):
        lost = json.loads(was.headers).keys() - json.loads(row.headers).keys()
        assert {name.split(".")[1] for name in lost} == {
            "FailedQ",
            "ExceptionInfo",
            "TimeOfFailure",
            "Retries",
        }
    (stays,) = done.stayed
    assert (error.ids(), done.count) == ([recorded[0].id], 2)
    assert stays.startswith("They say in no header NServiceBus.FailedQ for which queue they have failed; ")


def test_raw_headers_are_restored(engine, error):
    orders = engine.create_queue()
    raw = ["no JSON", '{"a":{"b":1}}', '{ "NServiceBus.TimeSent":"now", "x":"\\u00e9" }']
    for number, text in enumerate(raw):
        sent = failed_headers(text, poison(text), queue=full(engine), endpoint="orders", row_id="r")
        error.insert_row(id=row_id(number), headers=sent, body=body(number))
    assert retry(engine).count == 3
    assert [(row.headers, row.body) for row in orders.rows()] == [
        (text, body(number)) for number, text in enumerate(raw)
    ]


def test_a_body_that_is_null_goes_back_as_an_empty_one(engine, error):
    orders = engine.create_queue()
    error.insert_row(id=row_id(1), headers=failed(1, failure(full(engine))), body=None)
    assert retry(engine, Selection(stopping=engine.name == "postgresql")).count == 1
    assert [row.body for row in orders.rows()] == [b""]


def test_messages_go_to_the_queues_that_they_failed_for(engine, error):
    """In any schema, in the order in which they failed."""
    orders, sales = engine.create_queue(), engine.create_queue(schema="sales")
    for number in range(6):
        fail(error, range(number, number + 1), full(engine, schema="sales" if number % 2 else None))
    retry(engine)
    assert (ids_in(orders), ids_in(sales)) == (message_ids([0, 2, 4]), message_ids([1, 3, 5]))
    assert error.count() == 0


def test_only_what_is_meant_goes(engine, error):
    orders = engine.create_queue()
    fail(error, range(4), full(engine))
    fail(error, range(4, 6), full(engine), kind="shop.Late")
    retry(engine, Selection(exception_type="Late"))
    assert (ids_in(orders), ids_in(error)) == (message_ids([4, 5]), message_ids(range(4)))


def test_what_is_no_failure_stays(engine, error):
    engine.create_queue()
    error.insert_row(id=row_id(1), headers=json.dumps(ACKNOWLEDGEMENT), body=b"")
    done = retry(engine, to="orders")
    assert (done.count, done.stayed, error.count()) == (0, {}, 1)


def test_raw_rows_need_a_destination(engine, error):
    """They go there with their headers as they are."""
    orders = engine.create_queue()
    error.insert_row(id=row_id(1), headers="no JSON", body=b"x")
    assert sum(retry(engine).stayed.values()) == 1
    assert retry(engine, to="orders").count == 1
    assert [(row.headers, row.body) for row in orders.rows()] == [("no JSON", b"x")]


def test_a_destination_that_is_given_is_only_for_those_that_have_none(engine, error):
    orders, spare = engine.create_queue(), engine.create_queue("spare")
    fail(error, range(2), full(engine))
    error.insert_row(id=row_id(5), headers="{}", body=b"x")
    retry(engine, to="spare")
    assert (orders.count(), spare.count()) == (2, 1)


def test_a_destination_that_is_given_and_missing_is_refused(engine, error):
    """Also where no message needs it."""
    engine.create_queue()
    fail(error, range(2), full(engine))
    with pytest.raises(QueueError, match=r"^There is no queue table order@\[\w+\] in this database; create"):
        retry(engine, to="order")
    with pytest.raises(QueueError, match=r", or correct the queue name or its schema\.$"):
        failed_retry.plan(ConnectionOptions.parse({"url": engine.url}), "error", ALL, to="order")
    assert error.count() == 2


@pytest.mark.parametrize("batch", [2, 250])
def test_the_messages_of_a_missing_queue_stay_and_the_others_go(engine, error, monkeypatch, batch):
    monkeypatch.setattr(error_queue, "_BATCH_ROWS", batch)
    orders = engine.create_queue()
    fail(error, range(3), full(engine, "gone"))
    fail(error, range(3, 6), full(engine))
    done = retry(engine)
    assert (ids_in(orders), ids_in(error)) == (message_ids([3, 4, 5]), message_ids([0, 1, 2]))
    assert done.stayed == {
        f"There is no queue table gone@[{engine.default_schema}], for which they have failed; "
        f"create it with: sqlqueue create 'gone@[{engine.default_schema}]'.": 3
    }


def test_what_cannot_be_a_destination_says_why(postgresql):
    error = postgresql.create_queue("error")
    postgresql.execute("CREATE TABLE other (id int)")
    for number, address in enumerate(
        ["error", "a@b@c@d", "orders@WEB-07", "orders@[public]@[elsewhere]", "other"]
    ):
        fail(error, range(number, number + 1), address)
    done = retry(postgresql)
    said = [
        r"They have failed for error@\[public\]@\[\w+\], which is the error queue itself\.",
        r"The queue address 'a@b@c@d' cannot be read after the first '@'; .*",
        (
            r"There is no queue table orders@\[WEB-07\], for which they have failed; create it with: "
            r"sqlqueue create 'orders@\[WEB-07\]', or, where 'WEB-07' is a machine .* say "
            r"--legacy-addresses; a queue on another server is out of reach\."
        ),
        r"The queue orders@\[public\]@\[elsewhere\] lies in database 'elsewhere' but the url leads to .*",
        r"Nothing is changed in the table other@.* \(of postgres\): it has no column .* as a queue has it;.*",
    ]
    assert [bool(re.fullmatch(*each)) for each in zip(said, done.stayed, strict=True)] == [True] * 5
    assert (done.count, error.count()) == (0, 5)


def test_machines_in_addresses_may_be_ignored(engine, error):
    orders = engine.create_queue()
    fail(error, range(2), "orders@WEB-07")
    failed_retry.retry(options(engine, legacyAddresses="true"), "error", ALL)
    assert orders.count() == 2


def test_a_destination_without_the_right_keeps_its_messages(postgresql, guarded_url):
    error, orders, billing = (postgresql.create_queue(name) for name in ("error", "orders", "billing"))
    postgresql.execute("GRANT SELECT, UPDATE, DELETE ON error TO guarded")
    postgresql.execute("GRANT INSERT ON orders TO guarded")
    postgresql.execute("GRANT USAGE ON SEQUENCE orders_seq_seq TO guarded")
    fail(error, range(2), full(postgresql))
    fail(error, range(2, 4), full(postgresql, "billing"))
    done = failed_retry.retry(ConnectionOptions.parse({"url": guarded_url}), "error", ALL)
    assert (orders.count(), billing.count(), error.count()) == (2, 0, 2)
    assert [why.partition(" at ")[0] for why in done.stayed] == ["User 'guarded' lacks a right"]


def test_a_plan_changes_nothing(engine, error):
    engine.create_queue()
    fail(error, range(3), full(engine))
    fail(error, range(3, 5), full(engine, "gone"))
    before = error.rows()
    found = failed_retry.plan(options(engine), "error", ALL)
    assert (found.count, found.stayed.total(), found.held, error.rows()) == (3, 2, 0, before)
    assert engine.queue().count() == 0


def test_rows_that_others_hold_are_left_to_them(engine, error):
    orders = engine.create_queue()
    fail(error, range(4), full(engine))
    with error.locked(2, 3):
        done = retry(engine)
        assert (done.count, done.held, ids_in(orders)) == (2, 2, message_ids([0, 3]))
    assert ids_in(error) == message_ids([1, 2])


def test_what_comes_later_is_left_alone(engine, error):
    """Else a message that fails again at once would go round for ever."""
    orders = engine.create_queue()
    fail(error, range(2), full(engine))

    def fails_again(_):
        fail(error, range(2, 3), full(engine))

    retry(engine, rate=1_000, progress=fails_again)
    assert (ids_in(orders), ids_in(error)) == (message_ids([0, 1]), message_ids([2]))


def test_a_rate_is_kept(engine, error, monkeypatch):
    engine.create_queue()
    slept: list[float] = []
    monkeypatch.setattr(error_queue, "time", SimpleNamespace(sleep=slept.append, monotonic=lambda: 0.0))
    fail(error, range(6), full(engine))
    told: list[int] = []
    retry(engine, rate=20, progress=told.append)
    assert (told, slept) == ([2, 2, 2], [0.0, 0.1, 0.2])


def test_large_messages_make_small_batches(engine, error, monkeypatch):
    monkeypatch.setattr(error_queue, "_BATCH_BYTES", 3_000)
    engine.create_queue()
    fail(error, range(4), full(engine))
    told: list[int] = []
    retry(engine, progress=told.append)
    assert sum(told) == 4
    assert len(told) > 1


def test_columns_of_before_go_along(sqlserver):
    error, orders = sqlserver.create_queue("error"), sqlserver.create_queue()
    fail(error, range(1), full(sqlserver))
    error.execute("UPDATE {table} SET CorrelationId = 'c', ReplyToAddress = 'r'")
    retry(sqlserver)
    found = sqlserver.fetch("SELECT CorrelationId, ReplyToAddress, Recoverable, Expires FROM orders")
    assert ([tuple(row) for row in found], orders.count()) == ([("c", "r", True, None)], 1)


def test_one_message_is_shown_in_full(engine, error):
    fail(error, range(3), full(engine))
    ((message, row),) = error_queue.show(
        options(engine), "error", Selection(message_ids=frozenset({message_id(1)}))
    )
    assert (message.row_version, message.body, row.message_id) == (2, body(1), message_id(1))
    (again,) = error_queue.show(options(engine), "error", ALL, row_version=2)
    assert again == (message, row)
    for missing in (0, 9):
        with pytest.raises(QueueError, match="There is no such message in error@"):
            next(error_queue.show(options(engine), "error", ALL, row_version=missing))


def test_a_message_that_no_queue_takes_stays_and_the_others_go(postgresql, error):
    """A sender may write headers that are to go back as they were, with a character that no table takes."""
    postgresql.create_queue()
    fail(error, range(2), full(postgresql))
    forged = json.dumps({"NServiceBus.FailedQ": full(postgresql), "sqlqueue.RawHeaders": "\0"})
    error.insert_row(id=row_id(7), headers=forged, body=b"")
    fail(error, range(2, 4), full(postgresql))
    done = retry(postgresql)
    assert (done.count, done.stayed.total(), error.ids()) == (4, 1, [row_id(7)])
    assert ids_in(postgresql.queue("orders")) == message_ids(range(4))


def test_what_fails_again_meanwhile_is_not_put_back_without_end_whatever_number_a_sender_chose(
    postgresql, error, monkeypatch
):
    orders = postgresql.create_queue()
    error.execute(
        "INSERT INTO {table} (id, headers, body, seq) "
        "VALUES (gen_random_uuid(), '{{}}', 'x', 9000000000000000000)"
    )
    fail(error, range(600), full(postgresql))
    firsts = itertools.count(1000, 1000)

    def fails_again(step):
        if step == fail_points.FAILED_COMMITTED:
            first = next(firsts)
            fail(error, range(first, first + orders.count()), full(postgresql))
            orders.execute("DELETE FROM {table}")

    monkeypatch.setattr(fail_points, "step", fails_again)
    assert retry(postgresql).count == 601, "as many as stood there, of which one is no failure"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_is_discarded_stands_in_a_file(engine, error, tmp_path):
    engine.create_queue()
    fail(error, range(2), full(engine))
    error.insert_row(id=row_id(7), headers="no JSON", body=None)
    error.insert_row(id=row_id(8), headers=json.dumps(ACKNOWLEDGEMENT), body=b"")
    before = error.rows()[:3]
    file = tmp_path / "kept.jsonl"
    done = error_discard.discard(options(engine), "error", ALL, file)
    found = lines(file)
    assert (done.discarded, done.held, error.ids()) == (3, 0, [row_id(8)])
    assert [(each["rowVersion"], each["id"], each["headers"], each["expires"]) for each in found] == [
        (row.row_version, str(row.id), row.headers, None) for row in before
    ]
    assert [each["bodyBase64"] and base64.b64decode(each["bodyBase64"]) for each in found] == [
        body(0),
        body(1),
        None,
    ]
    assert found[0]["queue"].startswith("error@")
    assert file.stat().st_mode & 0o077 == 0


def test_what_stops_servicecontrol_is_discarded_whatever_it_is(postgresql, tmp_path):
    """The summary says so, and ServiceControl goes on behind it. A retry still takes failures alone."""
    error = postgresql.create_queue("error")
    stopping = Selection(stopping=True)
    for number, content in (7, None), (8, b""):
        error.insert_row(id=row_id(number), headers=json.dumps(ACKNOWLEDGEMENT), body=content)
    assert retry(postgresql, stopping).count == 0
    assert error_discard.plan(options(postgresql), "error", stopping).discarded == 1
    done = error_discard.discard(options(postgresql), "error", stopping, tmp_path / "kept.jsonl")
    assert (done.discarded, error.ids()) == (1, [row_id(8)])


def test_a_file_keeps_what_stands_in_it(engine, error, tmp_path):
    """A line that was torn stays a line of its own."""
    file = tmp_path / "kept.jsonl"
    file.write_text('{"torn":')
    fail(error, range(1), full(engine))
    error_discard.discard(options(engine), "error", ALL, file)
    torn, kept = file.read_text().splitlines()
    assert (torn, json.loads(kept)["rowVersion"]) == ('{"torn":', 1)


def test_a_file_that_cannot_be_written_leaves_all(engine, error, tmp_path):
    fail(error, range(2), full(engine))
    with pytest.raises(
        ConfigurationError, match=r"The file '.*' cannot be written \(.*\); nothing more is discarded\."
    ):
        error_discard.discard(options(engine), "error", ALL, tmp_path / "no folder" / "file")
    assert error.count() == 2


def test_a_disk_that_is_full_leaves_what_is_not_written(postgresql):
    error = postgresql.create_queue("error")
    fail(error, range(2), full(postgresql))
    with pytest.raises(ConfigurationError, match="No space left on device"):
        error_discard.discard(options(postgresql), "error", ALL, Path("/dev/full"))
    assert error.count() == 2


def test_a_missing_error_queue_is_said(engine):
    with pytest.raises(QueueError, match="There is no queue table error@"):
        looked(engine)
