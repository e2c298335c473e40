"""Fixtures of all layers: a real PostgreSQL server, a new database a test, each engine, a real Spark.

A test that takes ``engine`` runs once for each engine. An engine that is missing is counted aloud and its
tests are skipped, or fail with ``--require=sqlserver,postgresql``. ``--only=sqlserver`` leaves out what other
engines are enough for.
"""

import contextlib
import inspect
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from pyspark.sql import SparkSession

from sqlqueue_spark import plain_text
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.engines import database_retry
from tests.support import extended_events, kept_connections, mariadb, versions
from tests.support.engines import Engine, QueueTable
from tests.support.in_memory import keep_temporary_files_in_memory
from tests.support.odd_settings import SETTINGS, make_odd
from tests.support.outboxes import OutboxDatabase
from tests.support.postgresql import PostgresEngine, fresh_database
from tests.support.quick_java import quick_java
from tests.support.spark_home import python_path, spark_home
from tests.support.sparks import check_java, start_spark
from tests.support.sqlserver import SqlServerEngine, emptied, opened, set_row_versions, warned_of
from tests.support.sqlserver import fresh_database as fresh_sqlserver_database
from tests.support.wheel import Installed, install
from tests.tiers import tiers, tiers_of

# numpy starts a thread for each processor in every Python process;
# of one that lives for a second that is a fifth of its cost.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ENGINES = ("postgresql", "sqlserver")
#: Shape of the tables and RCSI of the database, by which a SQL Server that is given is tested where rows are
#: claimed, read, settled, taken or purged.
VARIANTS = {
    "sqlserver": ("classic", False),
    "sqlserver-heap": ("heap", False),
    "sqlserver-rcsi": ("classic", True),
    "sqlserver-heap-rcsi": ("heap", True),
}
#: PostgreSQL with odd databases, and their encodings: on these the varied files run in the nightly tier. The
#: first one has odd settings.
ODD = {"postgresql-odd": "UTF8", "postgresql-latin1": "LATIN1", "postgresql-ascii": "SQL_ASCII"}
_VARIED_FOLDERS = ("faults",)
_VARIED_FILES = (
    *("test_claim", "test_settle", "test_replay", "test_idle", "test_limits", "test_destructive_read"),
    *("test_admin_purge", "test_peek_plan", "test_extreme_numbers", "test_sender", "test_stage"),
    *(
        "test_stage_modes",
        "test_stage_readers",
        "test_stage_seal",
        "test_stage_without_rows",
        "test_written_before",
    ),
)
#: With Spark a test takes seconds: only the ends of the scale.
_VARIED_WITH_SPARK = ("sqlserver", "sqlserver-heap-rcsi")
#: Those that keep outbox tables.
OUTBOX_ENGINES = (*ENGINES, "mysql", "oracle")
GUARDED_ROLE, GUARDED_PASSWORD = "guarded", "open sesame"
_MISSING = "is missing"
_numbers = itertools.count(1)

keep_temporary_files_in_memory()
os.environ["SPARK_HOME"] = str(spark_home())
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@pytest.fixture(scope="session", autouse=True)
def _short_pauses() -> Iterator[None]:
    """Chance keeps many clients from trying again at the same time.

    A test has few, and chance only makes it slow.
    """
    with mock.patch.object(database_retry, "JITTER", 0.05):
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    """What the tests have kept is closed. While Python ends it may be an error that it is open."""
    yield
    kept_connections.forget_all()


@pytest.fixture(autouse=True)
def _fresh_minute() -> None:
    """A warning is not left out because other tests have warned in the same minute."""
    plain_text._warned.clear()  # a process has no other way to begin a minute anew


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """One PostgreSQL server for all tests; a test that stops it starts it again."""
    # Not below pytest's own folder, which pytest closes to the server's user when we are root.
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-tests-"))
    settings = {
        "fsync": "off",  # the machine does not lose power during a test
        "max_connections": "200",
        "timezone": "Asia/Kolkata",  # UTC is not to come out right by chance
    }
    try:
        with EmbeddedServer(folder / "data", settings=settings) as running:
            # The first connection to a database makes its cache of the catalogue.
            # New databases have a copy of this one.
            psycopg.connect(running.url("template1")).close()
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The package in an environment outside the clone."""
    return install(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def database_url(server: EmbeddedServer) -> Iterator[str]:
    """A new PostgreSQL database."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with fresh_database(server.url(), name) as url:
        yield url


@pytest.fixture
def postgresql(database_url: str) -> PostgresEngine:
    """For tests of what only PostgreSQL has."""
    return PostgresEngine(database_url)


@pytest.fixture(scope="session")
def sqlserver_database() -> Iterator[Callable[[str], str]]:
    """An empty SQL Server database for a purpose, made once: that takes seconds,
    and Azure charges for each.
    """
    made: dict[str, str] = {}
    with contextlib.ExitStack() as databases:

        def database(purpose: str) -> str:
            if purpose in made:
                return emptied(made[purpose])
            name = f"sqlqueue_{purpose}_{os.getpid()}"
            made[purpose] = databases.enter_context(
                fresh_sqlserver_database(os.environ[versions.SQLSERVER_VARIABLE], name)
            )
            return made[purpose]

        yield database


@pytest.fixture(scope="session")
def sqlserver_events() -> Iterator[Callable[[str], extended_events.Watch]]:
    """Watches a database with ``--watch-events``; at the end it is an error if the server did
    what no test expects.
    """
    watches: dict[str, extended_events.Watch] = {}
    with contextlib.ExitStack() as watching:

        def watch(url: str) -> extended_events.Watch:
            if url not in watches:
                watches[url] = extended_events.watch(url)
                watching.enter_context(watches[url].watching())
            return watches[url]

        yield watch


@pytest.fixture
def sqlserver(request: pytest.FixtureRequest) -> Iterator[SqlServerEngine]:
    """For tests of what only SQL Server has."""
    with _sqlserver(request, "sqlserver") as engine:
        yield engine


@contextlib.contextmanager
def _sqlserver(request: pytest.FixtureRequest, variant: str) -> Iterator[SqlServerEngine]:
    """An empty database, and tables as :data:`VARIANTS` has them."""
    if "sqlserver" in versions.missing_engines():
        pytest.fail(f"sqlserver is required but missing; {versions.missing_engines()['sqlserver']}")
    from tests.support import lookalikes  # which needs the driver's library

    for marker in request.node.iter_markers("needs"):
        lookalikes.require(*marker.args)
    shape, row_versions = VARIANTS[variant]
    if variant != "sqlserver":
        lookalikes.require("alters_databases")
    url = request.getfixturevalue("sqlserver_database")("test_rcsi" if row_versions else "test")
    warned_of(url)
    if lookalikes.given().alters_databases:
        set_row_versions(url, row_versions)
    with contextlib.ExitStack() as watching:
        if request.config.getoption("--watch-events") and lookalikes.given() == lookalikes.Abilities():
            watch = request.getfixturevalue("sqlserver_events")(url)
            watching.enter_context(watch.test(request.node.nodeid, _provoked(request.node)))
        yield SqlServerEngine(url, shape)


def _provoked(item: pytest.Item) -> set[str]:
    """What a test may make the server do.

    Tests of faults cut connections, and a statement that is cut off is an attention.
    """
    said = {word for marker in item.iter_markers("provokes") for word in marker.args}
    return said | ({"attention"} if item.path.parent.name == "faults" else set())


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[dict[str, Any]]:
    """One MariaDB server for all tests that need one."""
    with mariadb.running_server() as where:
        yield where


@pytest.fixture
def mysql(mysql_server: dict[str, Any]) -> Iterator[OutboxDatabase]:
    """For tests of what only MySQL has: a new database."""
    import pymysql

    where = {**mysql_server, "database": f"test_{os.getpid()}_{next(_numbers)}"}
    server = OutboxDatabase("mysql", lambda: pymysql.connect(**mysql_server))
    server.execute(f"CREATE DATABASE {where['database']}")
    yield OutboxDatabase("mysql", lambda: pymysql.connect(**where))
    server.execute(f"DROP DATABASE {where['database']}")


@pytest.fixture
def oracle() -> Iterator[OutboxDatabase]:
    """For tests of what only Oracle has: the schema of the given login, emptied afterwards."""
    import oracledb

    login = os.environ[versions.ORACLE_VARIABLE]
    database = OutboxDatabase("oracle", lambda: oracledb.connect(login))
    yield database
    for (table,) in database.fetch("SELECT table_name FROM user_tables"):
        database.execute(f'DROP TABLE "{table}" PURGE')


@pytest.fixture(params=OUTBOX_ENGINES)
def outbox_database(request: pytest.FixtureRequest) -> OutboxDatabase:
    """A new database of each engine that keeps outbox tables, over the driver that its users take."""
    if request.param in ("mysql", "oracle"):
        found = request.getfixturevalue(request.param)
        assert isinstance(found, OutboxDatabase)
        return found
    engine = request.getfixturevalue(request.param)
    if request.param == "postgresql":
        return OutboxDatabase("postgresql", lambda: psycopg.connect(engine.url, client_encoding="utf8"))
    return OutboxDatabase("sqlserver", lambda: opened(engine.url))


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A new database of each engine; of a SQL Server that is given, of each variant where that matters.

    Its parameters are those of pytest_generate_tests: pytest refuses to collect a fixture with parameters of
    its own beside them.
    """
    if request.param == "postgresql":
        yield request.getfixturevalue("postgresql")
    elif request.param in ODD:
        name, encoding = f"sqlqueue_odd_{os.getpid()}_{next(_numbers)}", ODD[request.param]
        with fresh_database(request.getfixturevalue("server").url(), name, encoding=encoding) as url:
            odd = PostgresEngine(url)
            if encoding == "UTF8":
                make_odd(odd, SETTINGS)
            yield odd
    else:
        with _sqlserver(request, request.param) as found:
            yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = {str(each.args[0]).partition(",")[0] for each in metafunc.definition.iter_markers("parametrize")}
    if "engine" in metafunc.fixturenames and "engine" not in marked:
        path = metafunc.definition.path
        odd = (
            [pytest.param(each, marks=pytest.mark.tier("nightly")) for each in ODD]
            if path.stem in _VARIED_FILES
            else []
        )
        # A test that asks for one engine by name has tables of that engine, by whatever fixture they come.
        of_one = "postgresql" in inspect.signature(metafunc.function).parameters
        engines = ["postgresql"] if of_one else [*_engines(path), *odd]
        metafunc.parametrize("engine", engines, indirect=True)


def _engines(path: Path) -> tuple[str, ...]:
    """The engines on which the tests of a file run, a SQL Server that is given in each variant
    that matters to them.
    """
    if "sqlserver" in versions.missing_engines():
        return ENGINES
    if path.parent.name in _VARIED_FOLDERS or path.stem in _VARIED_FILES:
        return ("postgresql", *VARIANTS)
    return ("postgresql", *_VARIED_WITH_SPARK) if path.parent.name == "streaming" else ENGINES


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Engine]:
    """A second new database of the same engine."""
    with _another(request, engine, "elsewhere") as another:
        yield another


@pytest.fixture
def third(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Engine]:
    """A third new database of the same engine."""
    with _another(request, engine, "third") as another:
        yield another


@contextlib.contextmanager
def _another(request: pytest.FixtureRequest, engine: Engine, name: str) -> Iterator[Engine]:
    if engine.name == "sqlserver":
        yield SqlServerEngine(request.getfixturevalue("sqlserver_database")(name))
    else:
        name = f"sqlqueue_{name}_{os.getpid()}_{next(_numbers)}"
        with fresh_database(request.getfixturevalue("server").url(), name) as url:
            yield PostgresEngine(url)


@pytest.fixture
def queue(engine: Engine) -> QueueTable:
    """An empty classic queue table called orders."""
    return engine.create_queue()


@pytest.fixture
def guarded_url(server: EmbeddedServer, database_url: str) -> str:
    """A login that must give its password and has no right to anything."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {GUARDED_ROLE}")
        connection.execute(f"CREATE ROLE {GUARDED_ROLE} LOGIN PASSWORD '{GUARDED_PASSWORD}'")
    name = database_url.rpartition("/")[2]
    return server.url(name, user=GUARDED_ROLE, password=GUARDED_PASSWORD)


@pytest.fixture
def spark(spark_of_all: SparkSession) -> SparkSession:
    """One Spark for all tests."""
    check_java()
    return spark_of_all


@pytest.fixture(scope="session")
def spark_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with mock.patch.dict(os.environ, quick_java() | {"PYTHONPATH": python_path()}):
        session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require", default="", metavar="ENGINES", help="fail when one of these engines is missing"
    )
    parser.addoption(
        "--watch-events", action="store_true", help="fail when a SQL Server did what no test expects"
    )
    parser.addoption("--tier", default="", metavar="TIERS", help="only tests of these tiers (tests/tiers.py)")
    parser.addoption("--only", default="", metavar="ENGINE", help="only tests that need this engine")


def pytest_configure(config: pytest.Config) -> None:
    unknown = (_required(config) | _only(config)) - set(OUTBOX_ENGINES)
    if unknown:
        raise pytest.UsageError(
            f"--require or --only names unknown engines {sorted(unknown)}; known are {list(OUTBOX_ENGINES)}"
        )


def pytest_report_header() -> list[str]:
    return versions.lines()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = tiers(str(config.getoption("--tier")))
    left_out = {item for item, tier in tiers_of(items).items() if tier not in chosen}
    for only in _only(config):
        left_out |= {item for item in items if not _concerns(item, only)}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # or one of two workers is left with them in the end
    for name, remedy in versions.missing_engines().items():
        if name not in _required(config):
            for item in items:
                if _concerns(item, name):
                    item.add_marker(pytest.mark.skip(reason=f"{name} {_MISSING}; {remedy}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Counts what was not tested, and says what a server that was given has shown;
    the head has said which are missing.
    """
    reasons = [str(each.longrepr) for each in terminalreporter.stats.get("skipped", [])]
    for name in versions.missing_engines():
        count = sum(f"{name} {_MISSING}" in reason for reason in reasons)
        terminalreporter.write_line(f"{name}: MISSING, {count} tests skipped", yellow=True, bold=True)
    for made in sorted({each.partition("Skipped: ")[2] for each in reasons if ": MISSING, " in each}):
        terminalreporter.write_line(made.rstrip("')"), yellow=True, bold=True)
    if "sqlserver" in _only(config) - versions.missing_engines().keys():
        from tests.support import live_report  # which needs the driver's library

        terminalreporter.section("the tests against SQL Server")
        for line in live_report.lines(terminalreporter.stats):
            terminalreporter.write_line(line)


def _only(config: pytest.Config) -> set[str]:
    return {name for name in (str(config.getoption("--only")),) if name}


def _required(config: pytest.Config) -> set[str]:
    return {name for name in str(config.getoption("--require")).split(",") if name}


def _concerns(item: pytest.Item, engine: str) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    for runs_once_each in ("engine", "outbox_database"):
        if hasattr(item, "callspec") and item.callspec.params.get(runs_once_each) is not None:
            return str(item.callspec.params[runs_once_each]).partition("-")[0] == engine
    needs = {"postgresql": {"server", "postgresql"}}.get(engine, {engine})
    return not needs.isdisjoint(item.fixturenames)
