"""What a destination refuses is found before the batch is logged, and named;
what it refuses later is named too.
"""

import contextlib
import json
import re
import shlex
from uuid import UUID

import pytest
from click.testing import CliRunner

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import failed_retry, queue_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import NoRight, QueueError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ATOMIC, ConnectionOptions
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.tables.stages.stage import Stage, StageRun
from sqlqueue_spark.tables.stages.stage_name import table_named, table_of
from tests.support import tampering
from tests.support.clock import impatient_settling
from tests.support.delayed import DelayedRows, in_an_hour
from tests.support.driver import at_step
from tests.support.engines import full_address
from tests.support.forwarding import NAME, forwarding, staged
from tests.support.messages import message_ids
from tests.support.sending import batch, columns_of, composed, ids_in, options
from tests.support.stages import gives_way, opened

pytestmark = [
    pytest.mark.tier("all", variants="nightly"),
    pytest.mark.needs("reads_json_as_documented"),
    gives_way,
]

COLUMN = {
    "postgresql": "ALTER TABLE {table} ADD extra int {null}",
    "sqlserver": "ALTER TABLE {table} ADD Extra int {null}",
}
UNDO = {"postgresql": "ALTER TABLE {table} DROP extra", "sqlserver": "ALTER TABLE {table} DROP COLUMN Extra"}
ID = "0000000a-0000-4000-8000-00000000000b"


@pytest.fixture
def billing(engine):
    """An empty queue called billing."""
    return engine.create_queue("billing")


def demand_a_column(engine, queue):
    """Rows must have a value that no sender writes."""
    queue.execute(COLUMN[engine.name].replace("{null}", "NOT NULL"))


def test_a_missing_right_to_the_stage_is_said_with_the_rights_that_a_stage_needs(postgresql, guarded_url):
    given = ConnectionOptions.parse({"url": postgresql.url})
    queue_tables.create(given, ["orders"], stream="Forward")
    target = Target.of(ConnectionOptions.parse({"url": guarded_url}))
    with connect(target) as connection, pytest.raises(NoRight) as caught, connection.transaction():
        Stage(connection, table_named("Forward", "public")).mark()
    assert str(caught.value).endswith(
        "(permission denied for table Forward.Outgoing); a stage needs SELECT, INSERT and UPDATE on its "
        "table, and TRUNCATE (on SQL Server ALTER) to be emptied; sqlqueue script QUEUE --engine postgresql "
        "--grants 'guarded' --role receiver --stream 'Forward' writes the statements."
    )


def test_a_refusal_is_found_before_the_batch_is_logged(engine, queue, billing):
    """The destination refuses every message."""
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        demand_a_column(engine, billing)
        said = (
            rf"^The destination {re.escape(billing.address)}@\[\w+\] refuses a message that this batch "
            r"sends: .*[Ee]xtra.* Nothing of the batch was sent, and its rows stay in the queue. Mend the "
            r"table or the rights to it, or send elsewhere; the batch then runs again.$"
        )
        with pytest.raises(QueueError, match=said):
            stream.trigger()
        assert stream.done == 0
        stream.crash()
        billing.execute(UNDO[engine.name])
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(10)), 0, 0)


def test_a_refusal_when_settling_can_be_mended(engine, queue, billing):
    """What the destination refuses is named."""
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        assert stream.trigger()
        demand_a_column(engine, billing)
        said = (
            rf" The destination {re.escape(billing.address)}@\[\w+\] refuses a message of a batch that is "
            rf"done: .*[Ee]xtra.* Its messages wait on the stage {STAGE_NAME}@\[\w+\], and its rows in the "
            r"queue. Mend the table or the rights to it, and start the stream. "
            r"Its 10 rows are free again; remove "
        )
        with impatient_settling(), pytest.raises(QueueError, match=said):
            stream.trigger()
        stream.crash()
        billing.execute(UNDO[engine.name])
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(10)), 0, 0)


STAGE_NAME = r"Forward\.Outgoing"


def test_a_dropped_destination_is_found_in_time(engine, queue, billing):
    """Dropped while messages are staged for it; it is found before the batch is logged."""
    queue.insert(10)
    with forwarding(engine, queue) as stream:
        with (
            at_step(fail_points.ROWS_STAGED, lambda: tampering.drop(billing)),
            pytest.raises(QueueError, match=r"^The destination billing@.* is not there any more"),
        ):
            stream.trigger()
        assert stream.done == 0
        stream.crash()
        engine.create_queue("billing")
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(engine)) == (message_ids(range(10)), 0, 0)


def test_a_taken_id_is_found_before_the_batch_is_logged(engine, queue, billing):
    """The destination has it already; any of the batch's rows may have it, not only the first one."""
    tampering.keep_ids_unique(engine, billing)
    billing.insert_row(id=UUID(ID), headers="{}", body=b"")
    atomic = options(engine, queue="billing", transactionMode=ATOMIC, stream=NAME)
    ids = [f"0000000a-0000-4000-8000-{number:012x}" for number in range(5, 15)]
    with opened(engine) as (connection, found):
        with connection.transaction():
            run = found.open("claim")
        done = [stage(Destinations(atomic), composed(atomic, batch(range(10), Id=ids)))]
        with pytest.raises(QueueError) as caught:
            seal(atomic, done, StageRun(name=run), own_ids=True)
        text = str(caught.value)
        assert text.startswith(f"The destination {billing.address}@[")
        assert ID in text.lower()
        assert text.endswith(
            "Nothing of the batch was sent, and its rows stay in the queue. A row with that Id is there "
            "already: leave the column Id out of the frame, and each message gets a new one; "
            "the batch then runs again."
        )
        with connection.transaction():
            mark = found.mark()
            assert mark is not None
            assert not mark.sealed
    assert billing.count() == 1


def test_a_locked_destination_refuses_nothing(postgresql):
    """Which messages it takes shows when it is free; a batch does not wait for that."""
    queue, billing = postgresql.create_queue(), postgresql.create_queue("billing")
    queue.insert(10)
    with forwarding(postgresql, queue) as stream:
        assert stream.construct()
        with billing.session() as other:
            other.connection.execute("LOCK TABLE billing IN SHARE MODE")  # as an index is built
            stream.run()
        stream.drain()
    assert (ids_in(billing), queue.count(), staged(postgresql)) == (message_ids(range(10)), 0, 0)


@pytest.fixture
def delayed(engine):
    """The table in which the messages of Sales wait; it is dropped after two were staged for it."""
    table = DelayedRows(engine, "Sales").create()

    @contextlib.contextmanager
    def dropped(**more):
        given = options(engine, transactionMode=ATOMIC, stream="Forward", **more)
        with connect(Target.of(ConnectionOptions.parse({"url": engine.url}))) as connection:
            found = Stage(connection, table_of(given), given)
            with connection.transaction():
                found.create()
            with connection.transaction():
                found.hold()
                found.open("a claim")
            rows = batch([1, 2], DeliverAt=in_an_hour(), Destination="billing")
            destinations = Destinations(given)
            run = prepare(destinations, columns_of("DeliverAt"), ["billing"])
            seal(given, [stage(destinations, composed(given, rows, destinations=destinations))], run)
            engine.execute('DROP TABLE "Sales.Delayed"')
            yield connection, found
        table.create()

    return dropped


def test_delayed_messages_whose_table_is_gone_fail_for_their_queue(engine, billing, delayed):
    """In the error queue only FailedQ says where they were to go."""
    error = engine.create_queue("error")
    with delayed(errorQueue="error") as (connection, found), connection.transaction():
        found.move("a claim")
    told = json.loads(error.rows()[0].headers)
    known_as = full_address(engine, "billing")
    assert (told["NServiceBus.FailedQ"], told["NServiceBus.ProcessingEndpoint"]) == (known_as, "billing")
    retried = failed_retry.retry(ConnectionOptions.parse({"url": engine.url}), "error", Selection())
    assert (retried.went.total(), ids_in(billing)) == (2, message_ids([1, 2]))


def test_without_an_error_queue_the_remedy_makes_their_table_again(engine, billing, delayed):
    with delayed() as (connection, found):
        with pytest.raises(QueueError) as caught, connection.transaction():
            found.move("a claim")
        [made] = re.findall(r"create it again with: sqlqueue (.*), and start the stream\.", str(caught.value))
        done = CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, shlex.split(made))
        assert (done.exit_code, shlex.split(made)[:2]) == (0, ["delayed", "create"])
        with connection.transaction():
            found.move("a claim")
    assert DelayedRows(engine, "Sales").count() == 2
