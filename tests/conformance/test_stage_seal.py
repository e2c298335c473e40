"""A batch goes out from its stage whole or not at all: what the database has forgotten of it is
never taken for nothing.
"""

import json
import re

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.errors import ClaimLost, ConfigurationError
from sqlqueue_spark.options import ATOMIC
from tests.support.driver import at_step, crash
from tests.support.forwarding import STAGE, Forward, forwarding, mark_of, staged
from tests.support.messages import message_id, message_ids
from tests.support.sending import ids_in
from tests.support.stages import gives_way

pytestmark = [
    pytest.mark.tier("all", variants="nightly"),
    pytest.mark.needs("reads_json_as_documented"),
    gives_way,
]


@pytest.fixture
def billing(engine):
    """An empty queue called billing."""
    return engine.create_queue("billing")


def write_mark(engine, text):
    statement = {
        "postgresql": f"""UPDATE "{STAGE}" SET mark = '{text}' WHERE task = ''""",
        "sqlserver": f"UPDATE [{STAGE}] SET Headers = N'{text}' WHERE Task = ''",
    }
    engine.execute(statement[engine.name])


def forget_last_rows(engine):
    """What the last task has staged is gone."""
    statement = {
        "postgresql": (
            f'DELETE FROM "{STAGE}" WHERE seq = '
            f"""(SELECT max(seq) FROM "{STAGE}" WHERE task <> '')"""
        ),
        "sqlserver": (
            f"DELETE s FROM [{STAGE}] AS s WHERE RowVersion = (SELECT MAX(RowVersion) FROM "
            f"[{STAGE}] WHERE Task <> '')"
        ),
    }
    engine.execute(statement[engine.name])


LOST = r"its database has lost what was committed\."
NEVER_CALLED = (
    r"the program has not called its sink for the batch \(a guard like isEmpty\(\), an error that it "
    r"swallowed\), the sink does not stage there, or its database has lost what was committed\. "
    r"Call the sink for each batch, also with an empty frame\. If the query has another source of this mode, "
    r"that one has sent these rows: do not run the batch again, but delete them, and give this source "
    r"receiveOnly\."
)


def refusal(engine, what, why=LOST):
    return (
        rf"^The stage Forward\.Outgoing@\[{engine.default_schema}\] {what}, so the 50 rows of the last batch "
        rf"of orders@\[.*\] stay in the queue: {why} Remove the newest "
        r"file of the checkpoint's folder commits: the batch then runs again\. Where that does not help, "
        r"because Spark has begun another batch since, give a new checkpoint folder \(a state that the query "
        r"keeps is lost\)\.$"
    )


def refused_and_run_again(stream, queue, billing, said):
    """The living process, and the next one, refuse; as the remedy says, the batch runs again."""
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=said):
            stream.trigger()
        stream.crash()
        assert (queue.count(), billing.count()) == (50, 0)
    stream.done -= 1
    stream.drain()
    assert (ids_in(billing), queue.count(), staged(stream.engine)) == (message_ids(range(50)), 0, 0)


def test_a_batch_whose_seal_is_lost_is_not_settled(engine, queue, billing):
    """It is not taken for one that has nothing to send."""
    queue.insert(50)
    opened = []
    with forwarding(engine, queue) as stream:
        with at_step(fail_points.ROWS_STAGED, lambda: opened.append(mark_of(engine))):
            assert stream.trigger()
        write_mark(engine, opened[0].to_json())
        refused_and_run_again(
            stream,
            queue,
            billing,
            refusal(engine, "was opened for the batch, but never sealed", NEVER_CALLED),
        )


def test_a_batch_that_lost_staged_rows_is_not_settled(engine, queue, billing):
    """The server has lost them."""
    queue.insert(50)
    with forwarding(engine, queue) as stream:
        assert stream.trigger()
        forget_last_rows(engine)
        left = {"postgresql": 25, "sqlserver": 49}[engine.name]
        refused_and_run_again(
            stream,
            queue,
            billing,
            refusal(engine, f"holds {left} of the 50 messages that the batch has staged"),
        )


def test_a_mark_without_counts_is_settled(engine, queue, billing):
    """An earlier version did not count."""
    queue.insert(50)
    with forwarding(engine, queue) as stream:
        assert stream.trigger()
        mark = mark_of(engine)
        old = {
            "claim": mark.claim,
            "run": mark.run,
            "tasks": [*mark.tasks],
            "destinations": mark.destinations,
        }
        write_mark(engine, json.dumps(old))
        stream.crash()
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(50)), 0, 0)


def test_a_batch_that_others_took_is_settled_empty(engine, queue, billing):
    """Taken before its replay, which seals it empty, too."""
    queue.insert(5)
    with forwarding(engine, queue) as stream:
        with at_step(fail_points.STAGE_SEALED, crash), pytest.raises(BaseException, match=r"^$"):
            stream.trigger()
        stream.crash()
        while queue.take() is not None:
            pass
        assert stream.trigger()
        assert (mark_of(engine).sealed, mark_of(engine).tasks) == (True, {})
        queue.insert(5, start=5)
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(5, 10)), 0, 0)


def test_a_lost_seal_without_rows_left_stops_no_stream(engine, queue, billing, caplog):
    """The receivers that took its rows have processed them."""
    queue.insert(5)
    opened = []
    with forwarding(engine, queue) as stream:
        with at_step(fail_points.ROWS_STAGED, lambda: opened.append(mark_of(engine))):
            assert stream.trigger()
        write_mark(engine, opened[0].to_json())
        stream.crash()
        while queue.take() is not None:
            pass
        queue.insert(5, start=5)
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(5, 10)), 0, 0)
    assert re.search(
        r"nothing_to_send queue=orders.* never sealed, and no row of the batch is left", caplog.text
    )


def test_sending_is_logged_only_once_committed(engine, queue, billing, caplog):
    caplog.set_level("INFO", logger="sqlqueue_spark")
    queue.insert(5)
    logged = []

    def look():
        logged.append(re.findall(r"sent queue=\S+ stage=\S+ sent=\d+", caplog.text))

    with forwarding(engine, queue) as stream, at_step(fail_points.DELETED, look):
        stream.drain()
    assert logged == [[]]
    (line,) = re.findall(r"sent queue=(\S+) stage=\S+ sent=(\d+)", caplog.text)
    assert line[1] == "5"
    assert stream.options.transaction_mode == ATOMIC


def others(*numbers):
    """Messages that do not come from the queue."""
    return [
        {"Headers": json.dumps({"NServiceBus.MessageId": message_id(n)}), "Body": b"x", "RowVersion": n}
        for n in numbers
    ]


@pytest.mark.parametrize("first", [True, False], ids=["sealed before", "sealed after"])
def test_a_sink_does_not_seal_another_querys_batch(engine, queue, billing, first):
    """What it had staged would go out with that batch, or with none when that batch runs again."""
    queue.insert(5)
    with forwarding(engine, queue) as stream:
        stranger = Forward(engine, queue, transactionMode=ATOMIC)
        assert stream.construct()
        messages = stream.read(stream.plan())
        one, two = (stream, stranger) if first else (stranger, stream)
        one.write(messages if first else others(100))
        with pytest.raises(ClaimLost, match="or another query has the same option stream, so this one ends"):
            two.write(others(100) if first else messages)
        stream.crash()
        stream.sink.clear()
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(5)), 0, 0)


def test_lost_messages_stop_a_batch_without_rows(engine, queue, billing):
    """The server has lost them; the refusal names the remedy."""
    with forwarding(engine, queue) as stream:
        stream.construct_without_rows(others(100, 101))
        stream.run()
        forget_last_rows(engine)
        for _ in range(2):
            with pytest.raises(ConfigurationError) as caught:
                stream.trigger()
            assert str(caught.value) == (
                f"The stage Forward.Outgoing@[{engine.default_schema}] holds 1 of the 2 messages that the "
                "batch has staged, so it is not sent: the database has lost what was committed. To go on "
                f"without these messages, drop the table Forward.Outgoing@[{engine.default_schema}] and "
                "start the stream."
            )
            stream.crash()
        drop = {"postgresql": f'DROP TABLE "{STAGE}"', "sqlserver": f"DROP TABLE [{STAGE}]"}
        engine.execute(drop[engine.name])
        queue.insert(5)
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(5)), 0, 0)
