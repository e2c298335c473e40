"""A stranger arms his table at any moment of a transaction that sends to it: his code never runs.

He may do so before we look, while we wait for his lock, or before any of our statements. Either he comes too
late, and the message is in his plain table, or it has failed.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import psycopg
import pytest

from sqlqueue_spark.administration import failed_retry
from sqlqueue_spark.engines.postgresql.connection import PostgresConnection
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from tests.support.error_rows import fail
from tests.support.every_way import WAYS
from tests.support.forwarding import forwarding
from tests.support.outcomes import sent_to
from tests.support.sending import batch, options, send
from tests.support.strangers import ATTACKER, SHOP, TEAM, Scene, cast, inhabited, queue, trigger
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("all")  # they send some dozen times each

LEVELS = ("readCommitted", "repeatableRead", "serializable")
#: How a table is armed.
HOW = {
    "trigger": [trigger()],
    "constraint trigger": [trigger("AFTER INSERT", more="DEFERRABLE INITIALLY DEFERRED")],
    "rule": ["CREATE RULE evil AS ON INSERT TO {t} DO ALSO SELECT lair.ran()"],
    "policy": [
        "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY evil ON {t} WITH CHECK (lair.one(headers) = 1)",
    ],
    "default": ["ALTER TABLE {t} ALTER seq SET DEFAULT lair.ran()"],
    "another column": ["ALTER TABLE {t} ADD extra int DEFAULT lair.ran()"],
    "check": ["ALTER TABLE {t} ADD CHECK (lair.one(headers) = 1)"],
    "domain": ["ALTER TABLE {t} ALTER headers TYPE lair.word"],
    "index": ["CREATE INDEX ON {t} (lair.one(headers))"],
    "partition": [
        (
            "CREATE TABLE lair.around "
            "(id uuid NOT NULL, expires timestamp, headers text NOT NULL, body bytea, seq bigint NOT NULL) "
            "PARTITION BY LIST (lair.one(headers))"
        ),
        "ALTER TABLE lair.around ATTACH PARTITION {t} FOR VALUES IN (1)",
    ],
    "another table": [
        "DROP TABLE {t}",
        queue(),
        trigger(),
        "GRANT INSERT ON {t} TO PUBLIC",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA lair TO PUBLIC",
    ],
    "a view": [
        "ALTER TABLE {t} RENAME TO renamed",
        "CREATE VIEW {t} AS SELECT * FROM lair.renamed",
        trigger("INSTEAD OF INSERT"),
        "GRANT INSERT ON {t} TO PUBLIC",
    ],
}


#: A table that is armed from the beginning.
ARMED = [
    each.replace("{t}", "lair.armed")
    for each in (
        queue(),
        trigger(),
        "GRANT INSERT ON {t} TO PUBLIC",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA lair TO PUBLIC",
    )
]


@pytest.fixture(scope="module")
def made(server):
    with cast(server), inhabited(server, "races") as scene:
        yield scene


@pytest.fixture
def scene(made):
    made.clear()
    renew(made)
    return made


_DROP = """
DO $$ DECLARE it record; BEGIN
    FOR it IN SELECT oid::regclass AS name, relkind FROM pg_class
        WHERE relnamespace = 'lair'::regnamespace AND relname IN ('plain', 'renamed', 'around')
        ORDER BY relkind DESC
    LOOP
        EXECUTE format('DROP %s IF EXISTS %s CASCADE',
            CASE it.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, it.name);
    END LOOP;
END $$
"""


def renew(scene: Scene) -> None:
    """Let the stranger's table be a plain one again."""
    scene.admin.execute(_DROP)
    scene.stranger.make_plain("plain")


def by_sink(level: str) -> Callable[[Scene, str], None]:
    def sends(scene: Scene, to: str) -> None:
        given = options(scene.job, errorQueue="error", isolationLevel=level)
        send(given, batch([1, 2, 3], Destination=["billing", to, "billing"]))

    return sends


def by_way(way: str) -> Callable[[Scene, str], None]:
    return lambda scene, to: scene.send(way, to)


def by_retry(scene: Scene, to: str) -> None:
    fail(scene.queue("error"), range(2, 3), to)
    failed_retry.retry(ConnectionOptions.parse({"url": scene.job.url}), "error", Selection())


def by_stage(scene: Scene, to: str) -> None:
    """Staged, sealed and settled, without billing."""
    orders = scene.queue("orders")
    orders.insert(1, start=2)
    with forwarding(scene.job, orders, to, errorQueue="error", commandTimeout="1s") as stream:
        stream.sink_says = {"errorQueue": "error", "endpoint": "Sales"}
        stream.drain(survives=QueueError)  # what is found before the batch is logged ends it


SENDING: dict[str, Callable[[Scene, str], None]] = {
    **{level: by_sink(level) for level in LEVELS},
    **{way: by_way(way) for way in WAYS if way != "sink"},
    "retry": by_retry,
    "stage": by_stage,
}


def assert_safe(scene: Scene) -> None:
    """No code has run, and the message is in the stranger's plain table or in the error queue."""
    assert not scene.stranger.ran()
    took = scene.admin.fetch("SELECT count(*) FROM lair.plain")
    failed = [number for number in sent_to(scene.queue("error")) if number == 2]
    assert (took, failed) in (([(1,)], []), ([(0,)], [2])), (took, failed)


def assert_refused(scene: Scene) -> None:
    """No code has run, and the message has failed."""
    assert not scene.stranger.ran()
    assert sent_to(scene.queue("error")) == [2]


# -- he has armed it before us, and commits while we wait -------------------------------------------


def send_while_he_commits(scene: Scene, how: str, way: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        with scene.stranger.arming("plain", *HOW[how]):
            sending = pool.submit(SENDING[way], scene, '"lair"."plain"')
            eventually(lambda: scene.stranger.blocked() or sending.done())
        sending.result()


@pytest.mark.parametrize("how", HOW)
def test_what_he_commits_while_we_wait_is_seen(scene, how):
    send_while_he_commits(scene, how, "readCommitted")
    assert not scene.stranger.ran()
    assert (sent_to(scene.queue("billing")), sent_to(scene.queue("error"))) == ([1, 3], [2])


@pytest.mark.parametrize("way", [way for way in SENDING if way != "readCommitted"])
def test_every_way_sees_what_he_commits_while_it_waits(scene, way):
    """At every level of isolation, although a transaction has a snapshot from before."""
    send_while_he_commits(scene, "trigger", way)
    assert not scene.stranger.ran()
    assert sent_to(scene.queue("error")) == [2]


# -- he comes before one of our statements ----------------------------------------------------------


@contextlib.contextmanager
def before_statement(number: int, act: Callable[[], object]) -> Iterator[list[int]]:
    """Do something before our connections run the statement of this number. Yields whether it was done."""
    count, done = itertools.count(1), list[int]()
    translated = PostgresConnection.translated

    def acting(self: PostgresConnection, doing: str) -> contextlib.AbstractContextManager[None]:
        if next(count) == number:
            done.append(number)
            act()
        return translated(self, doing)

    with mock.patch.object(PostgresConnection, "translated", acting):
        yield done


def at_every_statement(
    scene: Scene,
    way: str,
    act: Callable[[], object],
    *,
    to: str = '"lair"."plain"',
    renewed: Callable[[Scene], object] = renew,
    holds: Callable[[Scene], None] = assert_safe,
) -> None:
    """Send again and again, and let him act before the first, the second, … statement."""
    for number in itertools.count(1):
        renewed(scene)
        scene.clear()
        with before_statement(number, act) as done:
            SENDING[way](scene, to)
        holds(scene)
        if not done:
            return


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=() if way in ("readCommitted", "delayed") else pytest.mark.tier("nightly"))
        for way in SENDING
    ],
)
def test_a_trigger_that_comes_before_any_of_our_statements_does_not_run(scene, way):
    came = list[bool]()
    at_every_statement(scene, way, lambda: came.append(scene.stranger.arm("plain", most_ms=10)))
    assert {True, False} == set(came), "he must come in time for some, and too late for others"


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("how", [how for how in HOW if how not in ("trigger", "another table")])
def test_whatever_comes_before_any_of_our_statements_does_not_run(scene, how):
    at_every_statement(scene, "readCommitted", lambda: scene.stranger.arm("plain", *HOW[how], most_ms=10))


@pytest.mark.tier("nightly")
def test_a_table_that_takes_the_place_of_another_one_runs_no_code(scene):
    """The message may be gone with the table that was dropped."""
    at_every_statement(
        scene,
        "readCommitted",
        lambda: scene.stranger.arm("plain", *HOW["another table"], most_ms=10),
        holds=lambda scene: assert_not(scene.stranger.ran()),
    )


def assert_not(ran: bool) -> None:
    assert not ran


@pytest.mark.parametrize(
    "way",
    [
        "readCommitted",
        *(pytest.param(way, marks=pytest.mark.tier("nightly")) for way in ("in_transit", "delayed")),
    ],
)
@pytest.mark.parametrize("owner", [ATTACKER, pytest.param(TEAM, marks=pytest.mark.tier("nightly"))])
def test_a_schema_that_gets_the_name_of_another_one_leads_nowhere(scene, way, owner):
    """Its owner, and each login of that role, may rename it while we hold a lock on a table in it."""
    at_every_statement(
        scene,
        way,
        scene.stranger.swap_schemas,
        to=f'"{SHOP}"."t"',
        renewed=lambda scene: scene.stranger.make_schemas(owner),
        holds=assert_refused,
    )


@pytest.mark.tier("nightly")
def test_a_view_that_was_there_at_the_first_look_leads_nowhere_when_a_batch_is_settled(scene):
    """It was made after the batch was sealed, and an armed table takes its place while it is settled."""
    orders = scene.queue("orders")

    def take_its_place() -> None:
        scene.stranger.arm("plain", "DROP VIEW {t}", "ALTER TABLE lair.armed RENAME TO plain", most_ms=10)

    for number in itertools.count(1):
        renew(scene)
        scene.clear()
        scene.stranger.run("DROP TABLE IF EXISTS lair.armed", *ARMED)
        orders.insert(1, start=2)
        with forwarding(
            scene.job, orders, '"lair"."plain"', errorQueue="error", commandTimeout="1s"
        ) as stream:
            stream.sink_says = {"errorQueue": "error", "endpoint": "Sales"}
            assert stream.trigger()
            scene.stranger.arm("plain", *HOW["a view"])
            with before_statement(number, take_its_place) as done:
                stream.drain()
        assert_refused(scene)
        if not done:
            return


# -- an index that becomes ready while we hold our lock ---------------------------------------------

_SLOW = """
CREATE OR REPLACE FUNCTION lair.slow(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('application_name') = 'builder' THEN
        PERFORM pg_advisory_xact_lock_shared(4711);
        RETURN 1;
    END IF;
    RETURN lair.one($1);
END $$
"""
_STATE = """
SELECT bool_and(i.indisready) FROM pg_index AS i
WHERE i.indrelid = 'lair.plain'::regclass AND i.indexprs IS NOT NULL
"""


class _Builder:
    """Builds an index on an expression, which is there but not ready, until it is let go."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._gate = scene, psycopg.connect(scene.admin.url, autocommit=True)
        self._gate.execute("SELECT pg_advisory_lock(4711)")
        scene.stranger.run(_SLOW, "INSERT INTO lair.plain (id, headers) VALUES (gen_random_uuid(), '{}')")
        self._thread = threading.Thread(target=self._build)
        self._thread.start()
        eventually(lambda: scene.admin.fetch(_STATE) == [(False,)])

    def _build(self) -> None:
        with psycopg.connect(
            self._scene.admin.url, autocommit=True, application_name="builder"
        ) as connection:
            connection.execute("SET ROLE attacker")
            connection.execute("CREATE INDEX CONCURRENTLY ON lair.plain (lair.slow(headers))")

    def let_go(self) -> None:
        """Return when the index is ready; it is valid only when all who hold the table have ended."""
        self._gate.close()
        eventually(lambda: self._scene.admin.fetch(_STATE) == [(True,)])

    def end(self) -> None:
        self._gate.close()
        self._thread.join()


@pytest.mark.tier("nightly")
def test_an_index_that_is_built_beside_us_runs_no_code(scene):
    """The server builds it under a lock that lets inserts pass, and uses it before all inserts have ended."""
    for number in itertools.count(1):
        renew(scene)
        scene.clear()
        builder = _Builder(scene)
        try:
            with before_statement(number, builder.let_go) as done:
                by_sink("readCommitted")(scene, '"lair"."plain"')
        finally:
            builder.end()
        assert (scene.stranger.ran(), sent_to(scene.queue("error"))) == (False, [2])
        if not done:
            return
