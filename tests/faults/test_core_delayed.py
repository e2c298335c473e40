"""Movers die at every step, two at once: each delayed message is in its table or in its queue,
never in both, and none is lost.
"""

import contextlib
import json
import signal
import threading
from datetime import UTC, datetime, timedelta
from unittest import mock

import psycopg
import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import QueueError, TooMuch
from sqlqueue_spark.messages.servicecontrol import Ingestion, Verdict, ingestion
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.running import delayed_delivery
from sqlqueue_spark.pipeline.running.delayed_delivery import delivering
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting import delayed_mover
from sqlqueue_spark.tables.delayed import DelayedTable
from tests.support import death_steps
from tests.support.delayed import DelayedRows, move, mover, options
from tests.support.driver import Crash, at_step, crash
from tests.support.drivers import death
from tests.support.error_rows import full
from tests.support.messages import message_id, message_ids
from tests.support.postgresql import PostgresEngine
from tests.support.sending import batch, ids_in, send, steps, watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("reads_json_as_documented")

MANY = 60


@pytest.fixture
def tables(engine, queue):
    """Due messages for two queues of which one is gone, these queues, and the error queue."""
    waiting = DelayedRows(engine, "Sales").create()
    error, gone = engine.create_queue("error"), engine.create_queue("gone")
    past = datetime.now(UTC) - timedelta(minutes=5)
    to = ["gone" if number == 7 else "orders" for number in range(MANY)]
    given = SinkOptions.parse({"url": engine.url, "outbox": "none", "endpoint": "Sales"})
    send(given, batch(range(MANY), DeliverAt=past, Destination=to))
    gone.execute("DROP TABLE {table}")
    return waiting, queue, error


def put(engine, waiting, text, body="'b'", *, minutes=0.0):
    """Put a row into a table of delayed messages, as another sender may; it was due this many minutes ago."""
    seconds = round(60 * minutes)
    due = {
        "postgresql": f"now() AT TIME ZONE 'UTC' - interval '{seconds} seconds'",
        "sqlserver": f"DATEADD(second, {-seconds}, GETUTCDATE())",
    }
    quoted = text.replace("'", "''")
    sent = {"postgresql": body, "sqlserver": f"CAST({body} AS varbinary(max))"}[engine.name]
    engine.execute(
        f"INSERT INTO {waiting.quoted} (headers, body, due) VALUES (N'{quoted}', {sent}, {due[engine.name]})"
    )


def places(tables):
    """The ids that wait, and those that were delivered, or failed."""
    waiting, queue, error = tables
    left = sorted(row.headers["NServiceBus.MessageId"] for row in waiting.rows())
    return left, sorted(ids_in(queue)), ids_in(error)


DELIVERED: tuple[list[str], ...] = ([], message_ids([*range(7), *range(8, MANY)]), [message_id(7)])


@pytest.mark.parametrize("step", death_steps.DUE_STEPS)
def test_a_mover_that_dies_loses_and_doubles_nothing(engine, tables, step, monkeypatch):
    monkeypatch.setattr(delayed_mover, "_PORTION", 16)
    with watched(), at_step(step, crash, on={2}) as crashes, steps(), pytest.raises(Crash):
        move(engine, "Sales")
    left, delivered, failed = places(tables)
    assert (crashes, sorted([*left, *delivered, *failed])) == ([2], message_ids(range(MANY)))
    assert move(engine, "Sales")[0] == len(left)
    assert places(tables) == DELIVERED


@pytest.mark.parametrize(
    "column, there, back",
    [
        ("headers", "bytea USING convert_to(headers, 'UTF8')", "text USING convert_from(headers, 'UTF8')"),
        pytest.param("body", "text", "bytea USING body::bytea", marks=pytest.mark.tier("all")),
    ],
)
def test_messages_of_another_type_wait_until_it_is_put_right(postgresql, tables, column, there, back):
    """The type changes under a mover."""
    waiting, queue, error = tables
    waiting.make_due("-1 hour")
    rows = waiting.rows()
    moving = mover(postgresql, "Sales")
    try:
        assert moving.move_due() == Sent()
        retype = f"ALTER TABLE {waiting.quoted} ALTER {column} TYPE"
        postgresql.execute(f"{retype} {there}")
        waiting.make_due("2 hours")
        with pytest.raises(QueueError, match=r"^The table is not shaped like a queue table while "):
            moving.move_due()
    finally:
        moving.close()
    postgresql.execute(f"{retype} {back}")
    assert (waiting.count(), queue.count(), error.count()) == (MANY, 0, 0)
    move(postgresql, "Sales")
    assert places(tables) == DELIVERED
    assert {row.body for row in queue.rows()} < {row.body for row in rows}


@pytest.mark.parametrize("step", death_steps.DUE_STEPS)
@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
def test_another_mover_at_each_step_delivers_nothing_twice(engine, tables, step, dies, monkeypatch):
    monkeypatch.setattr(delayed_mover, "_PORTION", 16)

    def meanwhile():
        move(engine, "Sales")
        if dies:
            crash()

    with watched(), at_step(step, meanwhile, on=(2,)) as times, steps(), contextlib.suppress(Crash):
        move(engine, "Sales")
    left, delivered, failed = places(tables)
    assert (times, sorted([*left, *delivered, *failed])) == ([2], message_ids(range(MANY)))
    move(engine, "Sales")
    assert places(tables) == DELIVERED


@pytest.mark.parametrize(
    "where",
    [
        (fail_points.DUE_LOCKED, fail_points.DUE_SENT),
        (fail_points.DUE_SENT, fail_points.DUE_MOVED),
        (fail_points.DUE_MOVED, fail_points.DUE_LOCKED),
    ],
    ids=["locked, sent", "sent, moved", "moved, locked"],
)
def test_two_movers_at_once_are_killed(postgresql, tmp_path, where):
    """Each in a process of its own, at its first or its second portion; a third one delivers what is left."""
    waiting, queue = DelayedRows(postgresql, "orders").create(), postgresql.create_queue()
    postgresql.create_queue("error")
    postgresql.execute(f"INSERT INTO {waiting.quoted} (headers, body, due) {_MANY_DUE}")
    children = [
        death.started(
            tmp_path / f"steps {number}", step, 1 + number, postgresql.url, "delayed", "run", "orders"
        )
        for number, step in enumerate(where)
    ]
    assert [each.wait(60) for each in children] == [-signal.SIGKILL] * 2
    eventually(lambda: not postgresql.fetch(_OTHERS))
    ids = "SELECT count(*), count(DISTINCT headers::json ->> 'NServiceBus.MessageId') FROM "
    ((delivered, _),), ((left, _),) = (postgresql.fetch(ids + table) for table in ("orders", waiting.quoted))
    assert (delivered + left, left > 0) == (20_000, True)
    assert move(postgresql, "orders") == (left, 0)
    assert (postgresql.fetch(f"{ids} orders"), waiting.count()) == ([(20_000, 20_000)], 0)
    assert queue.count() == 20_000


#: Messages that are due, by the server itself, and the sessions of others.
_MANY_DUE = """
SELECT '{"NServiceBus.MessageId":"' || n || '"}', 'b', now() AT TIME ZONE 'UTC' - interval '1 hour'
  FROM generate_series(1, 20000) n
"""
_OTHERS = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def test_all_that_is_due_goes_also_where_a_statement_locks_few_rows(engine, tables, monkeypatch):
    """As on SQL Server, where one that locks more could be given the whole table."""
    monkeypatch.setattr(type(Target.of(options(engine)).dialect), "chunk", 7)
    assert move(engine, "Sales") == (MANY - 1, 1)
    assert places(tables) == DELIVERED


def test_a_portion_that_is_too_much_for_the_server_is_halved_and_grows_again(engine, tables, monkeypatch):
    """As one for more queues than the server has locks."""
    asked: list[int] = []
    lock = DelayedTable.lock_due

    def lock_due(table, count, since=None):
        asked.append(count)
        if count > 5:
            raise TooMuch("out of shared memory")
        return lock(table, count, since)

    monkeypatch.setattr(DelayedTable, "lock_due", lock_due)
    monkeypatch.setattr(delayed_mover, "_PORTION", 16)
    monkeypatch.setattr(delayed_mover, "_MORE", 2)
    assert move(engine, "Sales") == (MANY - 1, 1)
    assert asked[:8] == [16, 8, 4, 6, 3, 5, 7, 3]
    assert places(tables) == DELIVERED


def test_a_portion_that_has_no_time_leaves_the_other_destinations_to_the_next(engine, tables, monkeypatch):
    monkeypatch.setattr(delayed_mover, "_TOGETHER_SECONDS", 0.0)
    assert move(engine, "Sales") == (MANY - 1, 1)
    assert places(tables) == DELIVERED


def test_many_locked_queues_hold_up_none_behind_them(postgresql, tables, monkeypatch):
    """There is no time for all of them in a portion. Each message for them comes once they are free."""
    waiting, orders, _ = tables
    monkeypatch.setattr(delayed_mover, "_TOGETHER_SECONDS", 0.0)
    monkeypatch.setattr(delayed_mover, "_LOCKED_MS", 20)
    names = [f"held{number}" for number in range(6)]
    for name in names:
        postgresql.create_queue(name)
        put(postgresql, waiting, f'{{"NServiceBus.SqlServer.ForwardDestination":"{name}"}}', minutes=60)
    with psycopg.connect(postgresql.url) as other:
        other.execute(f"LOCK TABLE {','.join(names)} IN ACCESS EXCLUSIVE MODE")
        move(postgresql, "Sales")
        assert (orders.count(), waiting.count()) == (MANY - 1, len(names))
    move(postgresql, "Sales")
    assert [postgresql.queue(name).count() for name in names] == [1] * len(names)


def test_messages_that_cannot_even_fail_hold_up_none_of_their_moment(postgresql, tables, monkeypatch):
    """The error queue is locked, and there is no time for all of their destinations."""
    waiting, orders, _ = tables
    monkeypatch.setattr(delayed_mover, "_TOGETHER_SECONDS", 0.0)
    monkeypatch.setattr(delayed_mover, "_LOCKED_MS", 20)
    for number in range(6):
        put(
            postgresql,
            waiting,
            f'{{"NServiceBus.SqlServer.ForwardDestination":"missing{number}"}}',
            minutes=60,
        )
    postgresql.execute(f"UPDATE {waiting.quoted} SET due = (SELECT min(due) FROM {waiting.quoted})")
    with psycopg.connect(postgresql.url) as other:
        other.execute("LOCK TABLE error IN ACCESS EXCLUSIVE MODE")
        move(postgresql, "Sales")
        assert (orders.count(), waiting.count()) == (MANY - 1, 7)
    assert move(postgresql, "Sales") == (0, 7)


def test_a_server_that_bears_no_portion_ends_the_mover(engine, tables, monkeypatch):
    monkeypatch.setattr(DelayedTable, "lock_due", mock.Mock(side_effect=TooMuch("out of shared memory")))
    with pytest.raises(TooMuch):
        move(engine, "Sales")
    assert tables[0].count() == MANY


def test_movers_at_once_deliver_each_message_once(engine, tables, monkeypatch):
    """Four of them, in small portions; each dies now and then between its steps."""
    monkeypatch.setattr(delayed_mover, "_PORTION", 3)
    together = threading.Barrier(4)

    def work():
        together.wait()
        while tables[0].count():
            moving = mover(engine, "Sales")
            try:
                moving._portion()
            finally:
                moving.close()

    movers = [threading.Thread(target=work) for _ in range(4)]
    for each in movers:
        each.start()
    for each in movers:
        each.join()
    assert places(tables) == DELIVERED


def test_a_connection_that_is_cut_costs_no_message(engine, tables):
    with at_step(fail_points.DUE_SENT, engine.cut_connections, on={1}) as cut, steps():
        looks = iter([False, False, True])
        mover(engine, "Sales").run(lambda _: next(looks))
    assert (cut, places(tables)) == ([1], DELIVERED)


def test_a_mover_waits_while_its_login_is_refused(postgresql, guarded_url, tables):
    """The database fails over, and has cut its connection."""
    waiting, *_ = tables
    for name in ('"Sales.Delayed"', "orders", "error"):
        postgresql.execute(f"GRANT ALL ON {name} TO guarded")
    for name in ("orders_seq_seq", "error_seq_seq"):
        postgresql.execute(f"GRANT USAGE ON SEQUENCE {name} TO guarded")
    back = threading.Timer(0.5, postgresql.execute, ["ALTER ROLE guarded LOGIN"])

    def refuse():
        postgresql.execute("ALTER ROLE guarded NOLOGIN")
        postgresql.cut_connections()
        back.start()

    with at_step(fail_points.DUE_SENT, refuse) as times, steps():
        mover(PostgresEngine(guarded_url), "Sales").run(lambda _: waiting.count() == 0)
    back.join()
    assert (times, places(tables)) == ([1], DELIVERED)


def test_a_table_that_goes_while_a_mover_runs_is_said_with_the_remedy(postgresql, tables):
    waiting, *_ = tables

    def rename_at_the_second(_):
        if waiting.count() == 0:
            postgresql.execute(f'ALTER TABLE {waiting.quoted} RENAME TO "Before"')
        return False

    with pytest.raises(QueueError, match=r"create it with: sqlqueue delayed create 'Sales@\[public\]'"):
        mover(postgresql, "Sales").run(rename_at_the_second)


def test_rows_of_a_mover_that_hangs_are_left_to_it(engine, tables):
    """The others go on with the rest."""
    hanging = mover(engine, "Sales")
    assert len(hanging._opened().lock_due(10)) == 10
    assert sum(move(engine, "Sales")) == MANY - 10
    hanging.close()
    assert sum(move(engine, "Sales")) == 10
    assert places(tables) == DELIVERED


def test_an_error_queue_that_another_session_holds_keeps_only_what_has_failed_waiting(postgresql, tables):
    with psycopg.connect(postgresql.url) as session:
        session.execute("LOCK TABLE error IN ACCESS EXCLUSIVE MODE")
        assert move(postgresql, "Sales") == (MANY - 1, 0)
        assert [row.headers["NServiceBus.MessageId"] for row in tables[0].rows()] == [message_id(7)]
    assert move(postgresql, "Sales") == (0, 1)
    assert places(tables) == DELIVERED


def test_one_message_for_a_locked_queue_holds_up_none_of_its_moment(postgresql, tables, monkeypatch):
    monkeypatch.setattr(delayed_mover, "_PORTION", 10)
    waiting, queue, _ = tables
    postgresql.create_queue("held")
    put(postgresql, waiting, '{"NServiceBus.SqlServer.ForwardDestination":"held"}')
    postgresql.execute(f"UPDATE {waiting.quoted} SET due = '2026-01-01'")
    with psycopg.connect(postgresql.url) as other:
        other.execute("LOCK TABLE held IN ACCESS EXCLUSIVE MODE")
        assert sum(move(postgresql, "Sales")) == MANY
    assert (waiting.count(), len(ids_in(queue))) == (1, MANY - 1)


def test_messages_for_a_locked_queue_hold_up_none_behind_them(postgresql, tables, monkeypatch):
    """They fill each portion, and are due before all others."""
    monkeypatch.setattr(delayed_mover, "_PORTION", 10)
    waiting, queue, _ = tables
    held = postgresql.create_queue("held")
    to = '{"NServiceBus.SqlServer.ForwardDestination":"held"}'
    for _ in range(25):
        put(postgresql, waiting, to)
    postgresql.execute(f"UPDATE {waiting.quoted} SET due = '-infinity' WHERE headers = '{to}'")
    with psycopg.connect(postgresql.url) as other:
        other.execute("LOCK TABLE held IN ACCESS EXCLUSIVE MODE")
        assert sum(move(postgresql, "Sales")) == MANY
        assert len(ids_in(queue)) == MANY - 1
    assert move(postgresql, "Sales") == (25, 0)
    assert (waiting.count(), held.count()) == (0, 25)


def test_messages_for_a_locked_queue_hold_up_none_of_their_moment(postgresql, tables, monkeypatch):
    """They fill several portions, and stand before, among and behind others of the same due."""
    monkeypatch.setattr(delayed_mover, "_PORTION", 10)
    waiting, queue, error = tables
    held = postgresql.create_queue("held")
    to = '{"NServiceBus.SqlServer.ForwardDestination":"held"}'
    for minutes in (9, 9, 8, 0):
        for _ in range(8):
            put(postgresql, waiting, to, minutes=minutes)
    among = f"headers <> '{to}' OR due > now() AT TIME ZONE 'UTC' - interval '1 minute'"
    postgresql.execute(f"UPDATE {waiting.quoted} SET due = '2026-01-01' WHERE {among}")
    postgresql.execute(f"UPDATE {waiting.quoted} SET due = '2026-01-01' WHERE headers = '{to}'")
    with psycopg.connect(postgresql.url) as other:
        other.execute("LOCK TABLE held IN ACCESS EXCLUSIVE MODE")
        assert move(postgresql, "Sales") == (MANY - 1, 1)
        assert (waiting.count(), len(ids_in(queue)), ids_in(error)) == (32, MANY - 1, [message_id(7)])
    assert move(postgresql, "Sales") == (32, 0)
    assert (waiting.count(), held.count()) == (0, 32)


@pytest.mark.parametrize(
    "to", ["a\\u0000b", "x" * 600, "a@b@c@d", "\\ud83d"], ids=["NUL", "long", "parts", "half"]
)
def test_an_address_that_no_table_can_have_fails_its_message_alone(engine, tables, to):
    waiting, queue, error = tables
    text = f'{{"NServiceBus.MessageId":"odd","NServiceBus.SqlServer.ForwardDestination":"{to}"}}'
    put(engine, waiting, text, "NULL")
    assert move(engine, "Sales") == (MANY - 1, 2)
    assert (waiting.count(), len(ids_in(queue)), len(ids_in(error))) == (0, MANY - 1, 2)
    assert [row.body for row in error.rows() if "odd" in row.headers] == [b""]
    assert {ingestion(row.headers) for row in error.rows()} == {Ingestion(Verdict.TAKEN)}


def test_a_destination_that_another_session_holds_keeps_only_its_own_messages_waiting(postgresql, tables):
    engine = postgresql
    other = engine.create_queue("billing")
    given = SinkOptions.parse({"url": engine.url, "outbox": "none", "endpoint": "Sales", "queue": "billing"})
    send(given, batch([100], DeliverAt=datetime.now(UTC) - timedelta(minutes=1)))
    with psycopg.connect(engine.url) as session:
        session.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        assert move(engine, "Sales") == (1, 1)
        assert ids_in(other) == [message_id(100)]
    assert move(engine, "Sales") == (MANY - 1, 0)
    assert places(tables) == DELIVERED


# -- messages that go where most of the last ones went --------------------------------------------


@pytest.fixture
def portions(monkeypatch):
    """Small portions."""
    monkeypatch.setattr(delayed_mover, "_PORTION", 16)


def test_what_ends_otherwise_goes_its_own_way(engine, tables, portions):
    """Among messages that one statement moves: another queue, other forms of the header, none,
    and what only looks like it.
    """
    waiting, queue, _ = tables
    billing, sales = engine.create_queue("billing"), engine.create_queue("Sales")
    addresses = {name: full(engine, name) for name in ("orders", "billing")}
    way = f'"NServiceBus.SqlServer.ForwardDestination":{json.dumps(addresses["orders"])}'
    odd = {
        "other": (
            '{"NServiceBus.MessageId":"other",'
            f'"NServiceBus.SqlServer.ForwardDestination":{json.dumps(addresses["billing"])}}}'
        ),
        "first": f'{{{way},"NServiceBus.MessageId":"first"}}',
        "spaced": f'{{"NServiceBus.MessageId":"spaced", {way}}}',
        "twice": f'{{"NServiceBus.MessageId":"twice",{way},{way}}}',
        "none": '{"NServiceBus.MessageId":"none"}',
        "value": f'{{"NServiceBus.MessageId":"value","x":{json.dumps("," + way + "}")}}}',
        "empty": f'{{"NServiceBus.MessageId":"empty",{way}}}',
        "unicode": f'{{"NServiceBus.MessageId":"unicode","x":"\U0001f600é",{way}}}',
    }
    for number, text in enumerate(odd.values()):
        put(engine, waiting, text, "NULL" if number == 6 else "'b'", minutes=5 - number / 100)
    assert move(engine, "Sales") == (MANY - 1 + len(odd), 1)
    theirs = sorted(["first", "spaced", "twice", "empty", "unicode"])
    assert sorted(ids_in(queue)) == sorted([*DELIVERED[1], *theirs])
    assert (ids_in(billing), sorted(ids_in(sales)), waiting.count()) == (["other"], ["none", "value"], 0)
    ours = {json.loads(row.headers)["NServiceBus.MessageId"]: row for row in [*queue.rows(), *sales.rows()]}
    for name in ("none", *(each for each in theirs if each != "twice")):
        left = json.loads(odd[name])
        left.pop("NServiceBus.SqlServer.ForwardDestination", None)
        assert json.loads(ours[name].headers) == left
    assert ours["empty"].body == b""
    assert ours["value"].headers == odd["value"]


def test_a_queue_that_is_dropped_between_two_portions_has_its_messages_fail(engine, tables, portions):
    waiting, queue, error = tables
    moving = mover(engine, "Sales")
    assert moving._portion()[1].sent == 15
    queue.execute("DROP TABLE {table}")
    moving.move_due()
    moving.close()
    assert (waiting.count(), sorted(ids_in(error))) == (0, message_ids([7, *range(16, MANY)]))


def test_a_queue_that_refuses_one_message_fails_that_one_alone(postgresql, tables, portions):
    waiting, queue, error = tables
    queue.execute("""ALTER TABLE {table} ADD CHECK (body NOT LIKE '%"order":42,%')""")
    assert move(postgresql, "Sales") == (MANY - 2, 2)
    assert (waiting.count(), ids_in(error)) == (0, message_ids([7, 42]))


def test_the_owner_of_a_queue_that_is_made_anew_under_a_mover_is_still_trusted(postgresql, guarded_url):
    """He has a trigger on the destination that a message names."""
    waiting, billing = DelayedRows(postgresql, "orders").create(), postgresql.create_queue("billing")
    for name in ("orders", "error"):
        postgresql.create_queue(name)
    postgresql.execute("CREATE ROLE shop")
    try:
        postgresql.execute(
            "CREATE FUNCTION public.seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
            "CREATE TRIGGER seen BEFORE INSERT ON billing FOR EACH ROW EXECUTE FUNCTION public.seen(); "
            "ALTER FUNCTION public.seen() OWNER TO shop; ALTER TABLE billing OWNER TO shop"
        )
        moving = mover(PostgresEngine(guarded_url), "orders")
        for anew in ("", "DROP TABLE orders; CREATE TABLE orders (LIKE billing INCLUDING ALL); "):
            postgresql.execute(
                f"{anew}ALTER TABLE orders OWNER TO shop; GRANT ALL ON ALL TABLES IN SCHEMA public TO "
                "guarded; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO guarded"
            )
            headers = json.dumps({"a": "b", "NServiceBus.SqlServer.ForwardDestination": "billing"})
            put(postgresql, waiting, headers, minutes=1)
            assert moving.move_due() == Sent(sent=1)
        moving.close()
        assert billing.count() == 2
    finally:
        postgresql.execute("DROP OWNED BY shop CASCADE; DROP ROLE shop")


def test_messages_of_which_one_waits_for_a_lock_wait_together_and_are_counted_when_they_go(
    postgresql, tables
):
    """The queue refuses one of them, so the others were tried in parts before that one met the lock."""
    waiting, queue, error = tables
    queue.execute("ALTER TABLE {table} ADD CHECK (headers NOT LIKE '%\"" + message_id(3) + "\"%')")
    queue.execute("CREATE UNIQUE INDEX ON {table} ((headers::json ->> 'NServiceBus.MessageId'))")
    with psycopg.connect(postgresql.url) as session:
        session.execute(
            "INSERT INTO orders (id, headers, body) VALUES (gen_random_uuid(), %s, 'x')",
            [json.dumps({"NServiceBus.MessageId": message_id(42)})],
        )
        assert move(postgresql, "Sales") == (0, 1)
        assert waiting.count() == MANY - 1
        session.rollback()
    assert move(postgresql, "Sales") == (MANY - 2, 1)
    assert (waiting.count(), len(ids_in(queue)), ids_in(error)) == (0, MANY - 2, message_ids([7, 3]))


def test_a_row_whose_id_is_there_already_gets_another_one(postgresql, tables, portions):
    """An operator has put rows back that were delivered before."""
    waiting, queue, _ = tables
    postgresql.execute(
        f"INSERT INTO orders (id, headers) SELECT id, '{{}}' FROM {waiting.quoted} WHERE headers LIKE "
        f"'%{message_id(20)}%'"
    )
    assert move(postgresql, "Sales") == (MANY - 1, 1)
    queue.execute("DELETE FROM {table} WHERE headers = '{{}}'")
    assert places(tables) == DELIVERED


def test_messages_go_in_the_order_in_which_they_are_due_either_way(engine, tables, portions):
    waiting, queue, _ = tables
    for number in range(40):
        to = json.dumps(full(engine, "orders" if number % 5 else "gone"))
        text = f'{{"NServiceBus.MessageId":"{number:02}","NServiceBus.SqlServer.ForwardDestination":{to}}}'
        put(engine, waiting, text, "'b'", minutes=(37 * number) % 40 + 60)
    move(engine, "Sales")
    found = [each for each in ids_in(queue) if len(each) == 2]
    assert found == sorted(found, key=lambda each: -((37 * int(each)) % 40))
    assert len(found) == 32
    assert ids_in(queue)[32:] == DELIVERED[1]


def test_a_job_keeps_no_mover_of_a_table_that_is_gone(engine, queue, monkeypatch, caplog):
    """Instances of an endpoint come and go for weeks. When a table comes back, its mover does."""
    monkeypatch.setattr(delayed_delivery, "_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(delayed_delivery, "_LOOK_SECONDS", 0.02)
    engine.create_queue("error")
    waiting = DelayedRows(engine, "orders").create()
    sink = SinkOptions.parse({"url": engine.url, "errorQueue": "error", "endpoint": "Shop"})
    source = SourceOptions.parse({"url": engine.url, "queue": "orders"})
    with delivering(source, Places(sink, sink)):
        (moving,) = [each for each in threading.enumerate() if each.name.endswith("(_run)")]
        engine.execute(f"DROP TABLE {waiting.quoted}")
        moving.join(30)
        assert not moving.is_alive()
        assert caplog.text.count("delivery_stopped") == 1
        waiting.create()
        put(engine, waiting, '{"a":"b"}', minutes=5)
        eventually(lambda: queue.count() == 1)
