"""Tables of strangers run no code as our login where no option names them: for a list, a pattern, the doctor.

A stranger may create tables, functions and types, and lets everyone use his tables. PostgreSQL only.
"""

import json
import time
from collections.abc import Iterable, Iterator

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from sqlqueue_spark.administration import completion, database_overview
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.inspection.doctor.database_checks import checks
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.pipeline.running import delayed_delivery
from sqlqueue_spark.plain_text import warn_once
from sqlqueue_spark.receive.claiming import queue_list, stream_scanner
from sqlqueue_spark.receive.reading.peek import plan_peek
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables import queue_table, table_code
from sqlqueue_spark.tables.queue_table import left_alone
from sqlqueue_spark.tables.table_code import DELETE, INSERT, LOOK
from sqlqueue_spark.tables.table_code import found as found_in
from tests.support.delayed import DelayedRows
from tests.support.driver import streaming
from tests.support.postgresql import PostgresEngine
from tests.support.sending import batch, composed
from tests.support.several import by_queue
from tests.support.subscriptions import SubscriptionRows
from tests.support.waiting import eventually

#: As whom each piece of code ran.
_NOTES = """
CREATE TABLE notes (ran_as text);
GRANT INSERT ON notes TO public;
GRANT CREATE, USAGE ON SCHEMA public TO {stranger};
"""
_CODE = """
CREATE FUNCTION note() RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.notes VALUES (current_user); RETURN true; END $$;
CREATE FUNCTION note(x int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN PERFORM public.note(); RETURN true; END $$;
CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM public.note(); RETURN coalesce(NEW, OLD); END $$;
"""
_TABLE = """
CREATE TABLE {table} (
    id uuid PRIMARY KEY, expires timestamp, headers text NOT NULL, body bytea, seq bigserial UNIQUE);
GRANT ALL ON {table} TO public;
GRANT ALL ON SEQUENCE {sequence} TO public;
"""
#: What a stranger can give a table so that a look at its rows runs his code.
LOOKED = {
    "policy": "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON {table} USING (note())",
    "index": "CREATE INDEX i ON {table} (seq) WHERE note(1)",
    "statistics": "CREATE STATISTICS s ON (note(1)), seq FROM {table}",
    "type": (
        "CREATE TYPE odd AS ENUM ('1'); "
        "CREATE FUNCTION odd_text(odd) RETURNS text LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM note(); RETURN '1'; END $$; "
        "CREATE CAST (odd AS text) WITH FUNCTION odd_text(odd) AS IMPLICIT; "
        "ALTER TABLE {table} DROP headers, ADD headers odd NOT NULL DEFAULT '1'"
    ),
}
#: And so that only receiving from it does.
RECEIVED = {
    "trigger": "CREATE TRIGGER t BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION note_row()",
    "rule": "CREATE RULE r AS ON DELETE TO {table} WHERE note() DO ALSO NOTHING",
    "reference": (
        "CREATE TABLE followers (s bigint CONSTRAINT k REFERENCES {table} (seq) ON DELETE CASCADE); "
        "CREATE TRIGGER t BEFORE DELETE ON followers FOR EACH ROW EXECUTE FUNCTION note_row()"
    ),
}
REASONS = {
    "policy": "its row-security policy 'p'",
    "index": "what its index 'i' computes",
    "statistics": "what its statistics 's' compute",
    "type": "what converts its column 'headers'",
    "trigger": "its trigger 't'",
    "rule": "its rule 'r'",
    "reference": "what its foreign key 'k' leads to",
}


def possible(engine: PostgresEngine, codes: Iterable[str]) -> list[str]:
    """Those that the server knows: statistics of expressions came with PostgreSQL 14."""
    knows = engine.fetch("SELECT current_setting('server_version_num')::int >= 140000") == [(True,)]
    return [code for code in codes if code != "statistics" or knows]


class Stranger:
    """A login that may create tables in public."""

    def __init__(self, owner: PostgresEngine, name: str) -> None:
        self.name, self._owner = name, owner
        owner.execute(f"CREATE ROLE {name} LOGIN")
        owner.execute(_NOTES.format(stranger=name))
        self.execute(_CODE)

    def execute(self, statements: str) -> None:
        with psycopg.connect(self._owner.url, autocommit=True) as connection:
            connection.execute(f"SET SESSION AUTHORIZATION {self.name}")
            connection.execute(statements)

    def create(self, name: str = "theirs", code: str | None = None) -> str:
        """Create a queue of his, and give it code; returns what he says of it in a log."""
        table, sequence = (f'"{each}"' for each in (name, f"{name}_seq_seq"))
        self.execute(_TABLE.format(table=table, sequence=sequence))
        if code is not None:
            self.execute({**LOOKED, **RECEIVED}[code].format(table=table))
            return f"it belongs to '{self.name}', and {REASONS[code]} would run as this login"
        return ""

    def insert(self, name: str) -> None:
        """Insert one row; of a type of his the headers have a default."""
        with psycopg.connect(self._owner.url) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_attribute "
                "WHERE attrelid = %s::regclass AND attname = 'headers' AND atthasdef",
                [name],
            ).fetchone()
        columns = "(id) VALUES (gen_random_uuid())" if found == (1,) else (
            "(id, headers) VALUES (gen_random_uuid(), '{}')")  # fmt: skip
        self.execute(f"INSERT INTO {name} {columns}")

    def ran(self) -> list[str]:
        return [str(name) for (name,) in self._owner.fetch("SELECT DISTINCT ran_as FROM notes")]

    def gone(self) -> None:
        self._owner.execute(f"DROP OWNED BY {self.name} CASCADE; DROP ROLE {self.name}")


@pytest.fixture
def stranger(postgresql) -> Iterator[Stranger]:
    name = "stranger_" + postgresql.url.rpartition("/")[2]
    made = Stranger(postgresql, name)
    yield made
    made.gone()


@pytest.fixture
def logins(postgresql, guarded_url):
    """Ours: a superuser, for whom policies do not count, and an ordinary one."""
    return {"superuser": postgresql, "ordinary": PostgresEngine(guarded_url)}


@pytest.fixture(autouse=True)
def told_anew():
    """What was told once is told again."""
    warn_once.cache_clear()


def options(engine):
    return ConnectionOptions.parse({"url": engine.url, "lockTimeout": "1s"})


def name_of(engine, table):
    return f"{table}@[public]@[{engine.url.rpartition('/')[2]}]"


class Both:
    """What a stream is to leave empty: ours, and a table of a stranger."""

    address = ""

    def __init__(self, postgresql, *names):
        self.tables = [postgresql.queue(name) for name in names]

    def count(self):
        return sum(each.count() for each in self.tables)


@pytest.mark.parametrize("who", ["superuser", "ordinary"])
def test_a_list_runs_no_code_of_strangers_and_says_so(logins, stranger, who):
    """Their tables without code, and those of administrators, are looked at as ever."""
    engine, codes = logins[who], possible(logins[who], LOOKED)
    said = {code: (False, f"not looked at: {stranger.create(code, code)}") for code in codes}
    stranger.create("harmless")
    for name in (*codes, "harmless"):
        stranger.insert(name)
    logins["superuser"].create_queue().insert(2)
    logins["superuser"].execute("GRANT SELECT ON orders TO guarded; DELETE FROM notes")
    found = {each.table.partition("@")[0]: each for each in database_overview.overview(options(engine))}
    assert stranger.ran() == []
    free = ["harmless", "orders", *(["policy"] if who == "superuser" else [])]  # he is subject to none
    assert {name: (each.exact, each.problem) for name, each in found.items()} == {
        **said, **dict.fromkeys(free, (True, None)),
    }  # fmt: skip
    assert (found["orders"].rows, found["harmless"].rows) == (2, 1)
    found_names = completion._names(options(engine), endpoints=False)
    assert sorted(found_names) == sorted([*codes, "harmless", "orders"])
    assert stranger.ran() == []
    for name in set(codes) - {*free}:  # else the test would prove nothing
        with psycopg.connect(engine.url) as connection:
            connection.execute(
                sql.SQL("SELECT headers::text FROM {} WHERE seq > 0").format(sql.Identifier(name))
            )
        assert stranger.ran() == [{"superuser": "postgres", "ordinary": "guarded"}[who]]
        logins["superuser"].execute("DELETE FROM notes")


EVENTS = (LOOK, INSERT, DELETE)
#: With which of them each piece of code runs.
WHEN = {
    **dict.fromkeys(("policy", "index", "type"), EVENTS),
    "statistics": (LOOK, DELETE),
    **dict.fromkeys(RECEIVED, (DELETE,)),
}


def test_code_counts_for_the_events_that_run_it(logins, stranger):
    said = {code: stranger.create(code, code) for code in possible(logins["superuser"], WHEN)}
    stranger.execute("CREATE VIEW views AS SELECT note()")
    said["views"] = f"it belongs to '{stranger.name}', and it is no ordinary table"
    with connect(Target(url=logins["ordinary"].url)) as connection, connection.transaction():
        tables = [Table(table=name, schema="public") for name in said]
        found = {
            (name, event): code.why and f"it belongs to {code.owner!r}, and {code.why}"
            for event in EVENTS
            for name, code in zip(said, found_in(connection, tables, event, shaped=False), strict=True)
        }
    assert found == {
        (name, event): why if event in WHEN.get(name, EVENTS) else None
        for name, why in said.items()
        for event in EVENTS
    }


def test_a_trigger_of_a_stranger_on_a_table_of_ours_counts_and_one_of_ours_does_not(logins, stranger):
    """The right to make one can be given away."""
    ours, table = logins["superuser"], Table(table="orders", schema="public")
    ours.create_queue()
    ours.execute(f"GRANT TRIGGER ON orders TO {stranger.name}")
    ours.execute(
        "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; "
        "CREATE TRIGGER mine BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION mine()"
    )
    with connect(Target(url=ours.url)) as connection:
        for statement, why in (
            ("SELECT 1", None),
            (RECEIVED["trigger"], "it belongs to 'postgres', and its trigger 't' would run as this login"),
        ):
            stranger.execute(statement.format(table="orders"))
            with connection.transaction():
                assert left_alone(connection, table) == why
            with connection.transaction():
                assert left_alone(connection, table, table_code.LOOK) is None


def test_triggers_do_not_count_for_a_look(logins, stranger):
    for name, code in (("a", "trigger"), ("b", "rule")):
        stranger.create(name, code)
    assert {
        (each.exact, each.problem) for each in database_overview.overview(options(logins["ordinary"]))
    } == {(True, None)}


def test_tables_of_subscriptions_are_looked_at_likewise(logins, stranger, caplog):
    """The doctor finds them by itself."""
    stranger.execute(
        "CREATE TABLE elsewhere (queueaddress text, endpoint text, topic text); "
        "GRANT ALL ON elsewhere TO public; "
        + LOOKED["policy"].format(table="elsewhere")
        + "; INSERT INTO elsewhere VALUES ('x', 'x', 'x')"
    )
    SubscriptionRows(logins["superuser"]).create()
    logins["superuser"].execute('GRANT SELECT ON "SubscriptionRouting" TO guarded; DELETE FROM notes')
    said = {each.name: each.state.name for each in checks(options(logins["ordinary"]), None, None)}
    assert (stranger.ran(), said["database"]) == ([], "FINE")
    why = f"it belongs to '{stranger.name}', and {REASONS['policy']} would run as this login"
    assert caplog.messages == [f"not_looked_at table=elsewhere@[public]: {why}"]


def test_a_publisher_reads_no_table_of_subscriptions_with_code_of_strangers(logins, stranger):
    """It reads one without code, also that of a stranger."""
    engine = logins["superuser"]
    billing = engine.create_queue("billing")
    stranger.execute(
        'CREATE TABLE "SubscriptionRouting" (queueaddress text, endpoint text, topic text); '
        """INSERT INTO "SubscriptionRouting" VALUES ('"public"."billing"', 'billing', 'Shop.Placed')"""
    )
    given = SinkOptions.parse({"url": engine.url, "endpoint": "Sales", "outbox": "none"})
    events = batch([1], EventType="Shop.Placed")

    def publish():
        destinations = Destinations(given)
        with Sender(destinations) as sender:
            return sender.send(composed(given, events, destinations=destinations))

    assert publish() == Sent(sent=1)
    stranger.execute('CREATE INDEX i ON "SubscriptionRouting" (topic) WHERE note(1)')
    engine.execute("DELETE FROM notes")
    why = f"it belongs to '{stranger.name}', and {REASONS['index']} would run as this login"
    with pytest.raises(QueueError) as caught:
        publish()
    said = f"The table SubscriptionRouting@[public] is left alone: {why}; let an administrator own it."
    assert (str(caught.value), stranger.ran(), billing.count()) == (said, [], 1)


#: Of the commands that use a queue: those that look at it, and those that change it.
LOOKING = (
    "length error", "length error --max-rows 0", "length error --max-age 1s", "peek error", "inspect error",
    "doctor error", "errors list", "errors show --row-version 1", "errors retry --dry-run",
)  # fmt: skip
CHANGING = (
    "send error --type X", "send error --count 2", "purge error --yes", "purge error --expired --yes",
    "errors retry --yes", "errors discard --yes --to-file discarded", "delayed run orders --once",
)  # fmt: skip


def ran(engine, command):
    """What a command says."""
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, command).output


@pytest.mark.tier("all")
@pytest.mark.parametrize("who", ["superuser", "ordinary"])
@pytest.mark.parametrize("code", [*LOOKED, *RECEIVED])
def test_no_command_runs_code_of_strangers(logins, stranger, tmp_path, monkeypatch, who, code):
    """Of a table that it names, or that it takes for the error queue."""
    monkeypatch.chdir(tmp_path)
    if not possible(logins["superuser"], [code]):
        pytest.skip("this server has no statistics of expressions")
    why = stranger.create("error", code)
    stranger.insert("error")
    logins["superuser"].execute("DELETE FROM notes")
    for command in (*LOOKING, *CHANGING):
        said = ran(logins[who], command)
        assert (command, stranger.ran()) == (command, [])
        looks = not command.startswith(("send", "inspect", "delayed"))
        if code in LOOKED and looks and (code, who) != ("policy", "superuser"):  # he is subject to none
            assert why in said, command


@pytest.mark.parametrize(
    "command", ["errors retry --to theirs --yes", "delayed run theirs --once", "delayed run orders --once"]
)
def test_no_command_writes_into_code_of_strangers(logins, stranger, command):
    """A failed message goes into a queue that a person names; a due one into its own, or where it says."""
    owner = logins["superuser"]
    failed, orders = owner.create_queue("error"), owner.create_queue()
    stranger.create("theirs")
    stranger.execute('CREATE TRIGGER t BEFORE INSERT ON "theirs" FOR EACH ROW EXECUTE FUNCTION note_row()')
    failed.insert(1)
    for name in ("theirs", "orders"):
        headers = json.dumps({FORWARD_DESTINATION: "theirs"} if name == "orders" else {})
        owner.execute(
            f"INSERT INTO {DelayedRows(owner, name).create().quoted} (headers, body, due) "
            f"VALUES ('{headers}', '', timestamp '2020-01-01')"
        )
    owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO guarded; "
                  "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO guarded; DELETE FROM notes")  # fmt: skip
    ran(logins["ordinary"], command)
    assert (stranger.ran(), owner.queue("theirs").count(), orders.count()) == ([], 0, 0)


def test_a_table_of_a_stranger_that_he_has_locked_holds_up_no_look_and_no_job(logins, stranger, caplog):
    """The list, the doctor and a job over a pattern pass over it."""
    owner = logins["superuser"]
    owner.create_queue().insert(2)
    stranger.create("theirs")
    stranger.execute('CREATE TABLE elsewhere (queueaddress text, endpoint text, topic text); '
                     'CREATE TABLE "theirs.Delayed" (headers text, body bytea, due date, id bigserial); '
                     'GRANT ALL ON elsewhere, "theirs.Delayed" TO public')  # fmt: skip
    given = {"url": owner.url, "lockTimeout": "60s"}
    with psycopg.connect(owner.url) as holding:
        holding.execute('LOCK TABLE theirs, "theirs.Delayed", elsewhere')
        began = time.monotonic()
        listed = {each.table.partition("@")[0]: each.problem for each in database_overview.overview(
            ConnectionOptions.parse(given))}  # fmt: skip
        said = {each.name: each.state.name for each in checks(ConnectionOptions.parse(given), "orders", None)}
        source = SourceOptions.parse({**given, "queuePattern": ".*"})
        with connect(Target.of(source)) as connection, connection.transaction():
            owners = delayed_delivery._received(connection, source)
        took = time.monotonic() - began
    assert (listed["orders"], listed["theirs"]) == (None, "not looked at: another session has locked it")
    assert (said["database"], said["queue"], owners, took < 20) == ("FINE", "FINE", [], True)


def test_a_look_at_a_table_of_ours_waits_for_no_index(logins):
    owner = logins["superuser"]
    owner.create_queue().insert(2)
    with psycopg.connect(owner.url) as holding:
        holding.execute("LOCK TABLE orders IN SHARE MODE")  # as CREATE INDEX does
        for command in ("length orders", "peek orders", "inspect orders", "errors list orders"):
            assert "locked" not in ran(owner, command), command


def test_what_only_the_catalogue_tells_of_a_table_of_a_stranger_is_told(logins, stranger):
    """Its rights too, which the one who asks lacks; a finding says that its rows were not looked at."""
    why = stranger.create("theirs", "policy")
    found = json.loads(ran(logins["ordinary"], "inspect theirs --role receiver --json"))
    (said,) = [each["message"] for each in found["findings"] if "left alone" in each["message"]]
    name = name_of(logins["ordinary"], "theirs")
    assert said == (
        f"{name} is left alone: {why}; use it as its owner, or name it in the option allowedDestinations."
    )
    assert stranger.ran() == []


def test_a_command_runs_the_code_of_a_table_that_is_allowed(logins, stranger):
    stranger.create("theirs", "policy")
    stranger.insert("theirs")
    logins["superuser"].execute("DELETE FROM notes")
    said = ran(logins["ordinary"], "length theirs --allowed-destinations +theirs --json")
    assert (json.loads(said)["rows"], stranger.ran()) == (1, ["guarded"])


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    "command, code",
    [("delayed length", "policy"), ("delayed run --once", "policy"), ("delayed run --once", "trigger")],
)
def test_a_command_runs_the_code_of_a_delayed_table_only_where_it_is_allowed(logins, stranger, command, code):
    owner = logins["superuser"]
    owner.create_queue("error")
    theirs = owner.create_queue("theirs")
    waiting = DelayedRows(owner, "theirs").create()
    owner.execute(f"ALTER TABLE {waiting.quoted} OWNER TO {stranger.name}")
    stranger.execute({**LOOKED, **RECEIVED}[code].format(table=waiting.quoted))
    owner.execute(f"INSERT INTO {waiting.quoted} (headers, body, due) VALUES ('{{}}', '', '2020-01-01'); "
                  "GRANT ALL ON ALL TABLES IN SCHEMA public TO guarded; "
                  "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO guarded")  # fmt: skip
    said = ran(logins["ordinary"], f"{command} theirs")
    assert f"it belongs to '{stranger.name}', and {REASONS[code]} would run as this login" in said
    assert (stranger.ran(), waiting.count()) == ([], 1)
    said = ran(logins["ordinary"], f"{command} theirs --allowed-destinations +theirs.Delayed")
    assert (stranger.ran(), theirs.count()) == (["guarded"], int("run" in command)), said


@pytest.mark.tier("all")
@pytest.mark.parametrize("event", ["INSERT", "UPDATE", "DELETE"])
@pytest.mark.parametrize("who", ["superuser", "ordinary"])
def test_no_subscription_runs_code_of_strangers(logins, stranger, who, event):
    logins["superuser"].create_queue()
    stranger.execute(
        'CREATE TABLE "SubscriptionRouting" (queueaddress text, endpoint text, topic text, '
        'PRIMARY KEY (endpoint, topic)); GRANT ALL ON "SubscriptionRouting" TO public; '
        """INSERT INTO "SubscriptionRouting" VALUES ('x', 'orders', 'Shop.Placed'); """
        f'CREATE TRIGGER t BEFORE {event} ON "SubscriptionRouting" FOR EACH ROW EXECUTE FUNCTION note_row()'
    )
    refused = [
        "left alone" in ran(logins[who], command)
        for command in ("subscribe orders Shop.Placed", "unsubscribe orders Shop.Placed", "subscriptions")
    ]
    assert stranger.ran() == []
    assert refused == [event != "DELETE", event == "DELETE", False]


def receiving(engine, **more):
    return SourceOptions.parse({"url": engine.url, "queuePattern": ".*", **more})


@pytest.mark.parametrize("who", ["superuser", "ordinary"])
def test_a_pattern_adopts_no_table_with_code_of_strangers(logins, stranger, caplog, who):
    """It says so once. Ours, and theirs without code, are received from."""
    engine, codes = logins[who], possible(logins[who], [*LOOKED, *RECEIVED])
    said = {code: stranger.create(code, code) for code in codes}
    stranger.create("harmless")
    for name in (*codes, "harmless"):
        stranger.insert(name)
    logins["superuser"].create_queue().insert(2)
    logins["superuser"].execute("GRANT SELECT, UPDATE, DELETE ON orders TO guarded; DELETE FROM notes")
    free = {"harmless": [1], "orders": [1, 2], **({"policy": [1]} if who == "superuser" else {})}
    with streaming(engine, Both(logins["superuser"], *free), queuePattern=".*") as stream:
        stream.drain()
        assert by_queue(stream.messages()) == free
    assert stranger.ran() == []
    assert sorted(each for each in caplog.messages if each.startswith("queue_left_alone")) == sorted(
        f"queue_left_alone queue={name_of(engine, code)}: {said[code]}; to receive from it, name it in queues"
        for code in codes
        if code not in free
    )


@pytest.mark.parametrize("table", ["theirs", "theirs.Delayed"], ids=["answers", "retries"])
def test_a_pattern_adopts_no_queue_into_which_nothing_could_be_written(logins, stranger, caplog, table):
    """A handler's answers for another database may be stored in the queue, and its retries beside it."""
    stranger.create()
    stranger.insert("theirs")
    stranger.execute(
        'CREATE TABLE "theirs.Delayed" (headers text, body bytea, due timestamptz, id bigserial)'
    )
    stranger.execute(f'CREATE TRIGGER t BEFORE INSERT ON "{table}" FOR EACH ROW EXECUTE FUNCTION note_row()')
    owner = logins["superuser"]
    owner.create_queue().insert(2)
    owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO guarded")
    with streaming(logins["ordinary"], Both(owner, "orders"), queuePattern=".*") as stream:
        stream.drain()
        assert by_queue(stream.messages()) == {"orders": [1, 2]}
    assert f"it belongs to '{stranger.name}', and its trigger 't' would run as this login" in caplog.text


@pytest.mark.parametrize(
    "who, code", [("ordinary", "policy"), ("ordinary", "trigger"), ("superuser", "index")]
)
def test_code_that_comes_after_a_queue_was_adopted_does_not_run_either(
    logins, stranger, caplog, monkeypatch, who, code
):
    """The queue is set aside; the others go on. A pattern is not looked for again meanwhile."""
    monkeypatch.setattr(stream_scanner, "_LIST_SECONDS", 600.0)
    owner = logins["superuser"]
    stranger.create()
    owner.create_queue().insert(2)
    owner.execute("GRANT SELECT, UPDATE, DELETE ON orders TO guarded")
    with streaming(logins[who], Both(owner, "orders"), queuePattern=".*", claimAhead="false") as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(stream.done))  # until then the claim keeps code out
        stranger.execute({**LOOKED, **RECEIVED}[code].format(table="theirs"))
        stranger.insert("theirs")
        owner.execute("DELETE FROM notes")
        owner.queue().insert(1, start=2)
        stream.drain()
        assert by_queue(stream.messages()) == {"orders": [1, 2, 3]}
    assert stranger.ran() == []
    (said,) = [each for each in caplog.messages if each.startswith("queue_set_aside")]
    why = f"it belongs to '{stranger.name}', and {REASONS[code]} would run as this login"
    assert f"{name_of(owner, 'theirs')} is left alone: {why}; to receive from it, name it in queues." in said


@pytest.mark.parametrize("how", ["given away", "created anew"])
def test_a_queue_that_was_ours_and_is_a_stranger_s_now_is_looked_at(logins, stranger, monkeypatch, how):
    """It was no stranger's when the stream first opened it."""
    monkeypatch.setattr(stream_scanner, "_LIST_SECONDS", 0.0)
    owner = logins["superuser"]
    owner.create_queue("theirs").insert(2)
    owner.create_queue().insert(2)
    both = Both(owner, "orders")
    with streaming(owner, both, queuePattern=".*", claimAhead="false", pollInterval="10ms") as stream:
        assert stream.trigger()
        stream.receiver.settle(stream.end(stream.done))
        if how == "given away":
            owner.execute(f"ALTER TABLE theirs OWNER TO {stranger.name}")
        else:
            owner.execute("DROP TABLE theirs")
            stranger.create()
        pool = stream.receiver.source._pool
        table = next(each for each in pool.names if each.table == "theirs")
        eventually(lambda: not stream.trigger() and pool.guards(table))
        monkeypatch.setattr(stream_scanner, "_LIST_SECONDS", 600.0)
        stream.trigger()
        stranger.execute(RECEIVED["trigger"].format(table="theirs"))
        stranger.insert("theirs")
        owner.execute("DELETE FROM notes")
        owner.queue().insert(1, start=2)
        stream.drain()
    assert stranger.ran() == []


@pytest.mark.parametrize("when", ["before", "during"])
def test_what_inherits_from_a_queue_since_it_was_adopted_is_no_part_of_it(
    logins, stranger, monkeypatch, when
):
    """No lock of ours keeps a stranger from that: whatever he does in another table, it is not looked at."""
    monkeypatch.setattr(stream_scanner, "_LIST_SECONDS", 600.0)
    owner = logins["superuser"]
    stranger.create()
    stranger.insert("theirs")
    both = Both(owner, "theirs")
    with streaming(logins["ordinary"], both, queuePattern=".*", claimAhead="false") as stream:
        assert stream.trigger()
        if when == "before":
            stream.receiver.settle(stream.end(stream.done))
        stranger.execute(
            "CREATE TABLE child () INHERITS (theirs); GRANT ALL ON child TO public; "
            + RECEIVED["trigger"].format(table="child")
        )
        for name in ("child", *(["theirs"] if when == "before" else [])):
            stranger.insert(name)
        owner.execute("DELETE FROM notes")
        if stream.trigger():
            stream.receiver.settle(stream.end(stream.done))
    assert (stranger.ran(), owner.fetch("SELECT count(*) FROM child")) == ([], [(1,)])


_OPERATOR = """
CREATE FUNCTION more(numeric, {0}) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN note(); END';
CREATE OPERATOR > (LEFTARG = numeric, RIGHTARG = {0}, FUNCTION = more);
"""


def test_no_operator_of_a_stranger_compares_a_column_of_his_table(logins, stranger, caplog):
    """The server's own takes only columns of the types that a queue has."""
    engine = logins["superuser"]
    stranger.create()
    stranger.execute("ALTER TABLE theirs ALTER seq TYPE numeric")
    for type_ in ("bigint", "integer", "smallint"):
        stranger.execute(_OPERATOR.format(type_))
    stranger.insert("theirs")
    engine.execute("SELECT FROM theirs WHERE seq > 0")
    assert stranger.ran() == ["postgres"]  # else the test would prove nothing
    engine.execute("DELETE FROM notes")
    why = f"it belongs to '{stranger.name}', and it has no column 'seq' as a queue has it"
    (found,) = database_overview.overview(options(engine))
    engine.create_queue()
    with streaming(engine, Both(engine, "orders"), queuePattern=".*") as stream:
        stream.drain()
    assert (stranger.ran(), found.problem) == ([], f"not looked at: {why}")
    assert caplog.messages[0] == (
        f"queue_left_alone queue={name_of(engine, 'theirs')}: {why}; to receive from it, name it in queues"
    )


def test_the_owner_of_a_queue_that_a_pattern_found_is_not_trusted(logins, stranger):
    """A message in it leads to no other table of his with a trigger."""
    engine = logins["superuser"]
    stranger.create()
    stranger.create("evil")
    stranger.execute("CREATE TRIGGER t BEFORE INSERT ON evil FOR EACH ROW EXECUTE FUNCTION note_row()")
    engine.create_queue("error")
    way = json.dumps({FORWARD_DESTINATION: "evil"})
    stranger.execute(f"INSERT INTO theirs (id, headers, body) VALUES (gen_random_uuid(), '{way}', '')")
    theirs = Both(engine, "theirs")
    with streaming(engine, theirs, queuePattern="theirs|error", errorQueue="error") as stream:
        stream.drain()
    assert (stranger.ran(), engine.queue("evil").count()) == ([], 0)


def test_a_claim_keeps_new_code_out(logins, stranger):
    """The lock is the one that a trigger waits for."""
    stranger.create()
    stranger.insert("theirs")
    with streaming(logins["superuser"], Both(logins["superuser"]), queuePattern=".*") as stream:
        assert stream.trigger()
        for code in (*RECEIVED.values(), LOOKED["policy"], LOOKED["index"]):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                stranger.execute(f"SET lock_timeout = 50; {code.format(table='theirs')}")


def test_mode_none_adopts_no_table_of_a_stranger(logins, stranger, caplog):
    """Its workers take rows in transactions of their own."""
    stranger.create()
    ours = Both(logins["superuser"], "orders")
    logins["superuser"].create_queue().insert(2)
    with streaming(logins["superuser"], ours, queuePattern=".*", transactionMode="none") as stream:
        stream.drain()
        assert by_queue(stream.messages()) == {"orders": [1, 2]}
    (told,) = [each for each in caplog.messages if each.startswith("queue_left_alone")]
    assert "no lock keeps new code out while workers take its rows" in told


def test_a_job_over_a_pattern_moves_nothing_out_of_a_delayed_table_with_code_of_strangers(
    logins, stranger, caplog
):
    engine = logins["superuser"]
    for name in ("theirs", "harmless"):
        stranger.create(name)
        stranger.execute(
            f'CREATE TABLE "{name}.Delayed" (headers text, body bytea, due timestamptz, id bigserial)'
        )
    stranger.execute(RECEIVED["trigger"].format(table='"theirs.Delayed"'))
    sink = SinkOptions.parse({"url": engine.url, "endpoint": "Sales", "errorQueue": "error"})
    owners = delayed_delivery._owners(receiving(engine), Places(sink, sink))
    assert [each.table.table for each in owners] == ["harmless"]
    why = f"it belongs to '{stranger.name}', and {REASONS['trigger']} would run as this login"
    assert caplog.messages == [f"delayed_left_alone table=theirs.Delayed@[public]: {why}"]


def test_a_peek_by_a_pattern_takes_no_right_but_select(logins, stranger):
    """Triggers and rules do not count for it; a policy does."""
    for code in ("policy", "trigger", "rule"):
        stranger.create(code, code)
        stranger.insert(code)
        stranger.execute(f"REVOKE ALL ON {code} FROM public; GRANT SELECT ON {code} TO public")
    logins["superuser"].execute("DELETE FROM notes")
    tasks = plan_peek(receiving(logins["ordinary"]))
    assert [part.queue.partition("@")[0] for task in tasks for part in task] == ["rule", "trigger"]
    assert stranger.ran() == []


def test_a_table_that_a_stranger_locks_stops_no_listing(logins, stranger, monkeypatch):
    monkeypatch.setattr(queue_table, "LOCKED_MS", 20)
    stranger.create()
    logins["superuser"].create_queue().insert(2)
    with psycopg.connect(logins["superuser"].url) as connection:
        connection.execute(f"SET SESSION AUTHORIZATION {stranger.name}")
        connection.execute("LOCK TABLE theirs IN ACCESS EXCLUSIVE MODE")
        with connect(Target(url=logins["superuser"].url)) as own, own.transaction():
            found = queue_list.tables_of(own, receiving(logins["superuser"]))
        assert [each.table for each in found] == ["orders", "theirs"]


def test_a_queue_that_an_option_names_keeps_its_policies_and_triggers(logins, stranger):
    """Its receiver's administrator chose that; docs/rights.md says what it means."""
    stranger.create(code="policy")
    stranger.execute(RECEIVED["trigger"].format(table="theirs"))
    stranger.insert("theirs")
    logins["superuser"].execute("DELETE FROM notes")
    with streaming(logins["ordinary"], Both(logins["superuser"], "theirs"), queues='["theirs"]') as stream:
        stream.drain()
        assert by_queue(stream.messages()) == {"theirs": [1]}
    assert stranger.ran() == ["guarded"]


def test_the_doctor_says_to_whom_a_login_lends_its_power(logins, stranger):
    stranger.create(code="trigger")
    logins["superuser"].create_queue()
    logins["superuser"].execute(
        "GRANT INSERT, SELECT, DELETE, UPDATE ON orders TO guarded; ALTER TABLE orders OWNER TO guarded"
    )
    theirs = name_of(logins["superuser"], "theirs")

    def said(who, queue):
        return {each.name: each.said for each in checks(options(logins[who]), queue, "receiver")}["rights"]

    why = f"it belongs to '{stranger.name}', and its trigger 't' would run as this login"
    mighty = "; it is a superuser, as no job's login should (docs/rights.md)"
    assert said("ordinary", "theirs") == f"guarded may receive; note of {theirs}: {why}"
    assert said("superuser", "theirs") == f"postgres may receive{mighty}; note of {theirs}: {why}"
    assert (
        said("ordinary", "orders")
        == "guarded may receive; it owns the table, as no job's login should (docs/rights.md)"
    )
