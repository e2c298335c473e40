"""What is wrong is said in one sentence with the remedy, and no secret is ever in it."""

import logging
import socket
import traceback
from urllib.parse import urlsplit

import psycopg
import pytest

from sqlqueue_spark.engines import database_retry
from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import (
    ConfigurationError,
    ConnectionLost,
    NoRight,
    QueueError,
    SqlQueueError,
    TryAgain,
)
from sqlqueue_spark.options import ConnectionOptions, SourceOptions
from sqlqueue_spark.receive import Receiver, Slice, SliceReader
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.spark.readers import StreamReaderBeforeSpark42
from tests.support.driver import streaming
from tests.support.messages import row_ids
from tests.support.postgresql import PostgresEngine
from tests.support.waiting import eventually

SECRET = "hunter2/&%"
ENCODED = "hunter2%2F%26%25"


def place(url):
    return url.rpartition("@")[2]


def options(url, queue="orders", **more):
    return SourceOptions.parse({"url": url, "queue": queue, **more})


def failure(given):
    """What a stream with these options fails with at its first call."""
    receiver = Receiver(given)
    try:
        with pytest.raises(SqlQueueError) as caught:
            receiver.latest(None, 10)
    finally:
        receiver.close()
    return caught.value


def everything_said(error, caplog, given):
    """All that a log, a traceback or a debugger's first look would show."""
    said = [
        "".join(traceback.format_exception(error)),
        caplog.text,
        repr(given),
        str(given),
        repr(Target.of(given)),
    ]
    said += [str(record.__dict__) for record in caplog.records]
    while error is not None:
        said += [str(error), repr(error), repr(error.args)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(said)


@pytest.fixture(autouse=True)
def _log_everything(caplog):
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("where", ["url", "password", "accessToken"])
def test_a_wrong_password_is_said_without_it(guarded_url, caplog, where):
    url, more = guarded_url.replace("open%20sesame", ENCODED), {}
    if where != "url":
        url, more = guarded_url.replace(":open%20sesame", ""), {where: SECRET}
    given = options(url, **more)
    error = failure(given)
    assert type(error) is ConfigurationError
    by_token = (
        f"The database at {place(url)} refused the Microsoft Entra token (connection failed: "
        "connection to server at "
        f'"127.0.0.1", port {urlsplit(url).port} failed: FATAL:  password authentication failed for user '
        '"guarded"); get a '
        "fresh one (accessTokenProvider gets one for each connection), "
        "and see that the database has a user for it."
    )
    by_password = (
        f"The database at {place(url)} refused the login of user 'guarded'; check user and password."
    )
    assert str(error) == (by_token if where == "accessToken" else by_password)
    said = everything_said(error, caplog, given)
    assert [secret for secret in (SECRET, ENCODED, "hunter2") if secret in said] == []


def test_a_missing_password_is_said(guarded_url):
    error = failure(options(guarded_url.replace(":open%20sesame", "")))
    assert str(error) == (
        f"The database at {place(guarded_url)} refused the login of user 'guarded', for whom no password is "
        "given; put it into the environment (SQLQUEUE_PASSWORD, and this url as SQLQUEUE_URL), or give it as "
        "option password."
    )


def test_a_workers_wrong_password_is_said_without_it(guarded_url, caplog, monkeypatch):
    monkeypatch.setattr(database_retry, "RETRY_SECONDS", 0.1)
    given = options(guarded_url.replace("open%20sesame", ENCODED))
    part = Slice(statement=Statement.parse("SELECT 1"), queue="orders", rows=RowSet([(1, 2)]))
    # The driver has logged in before any worker does: to them it is a database that fails over,
    # and is waited for.
    with pytest.raises(ConnectionLost) as caught:
        list(SliceReader(Target.of(given)).read(part))
    assert str(caught.value) == (
        f"The database at {place(guarded_url)} refused the login of user 'guarded'; check user and password."
    )
    assert "hunter2" not in everything_said(caught.value, caplog, given)


def test_a_secret_stays_unsaid_when_connections_break(guarded_url, postgresql, caplog):
    """They are tried again."""
    queue = postgresql.create_queue()
    queue.execute("GRANT SELECT, UPDATE, DELETE ON {table} TO guarded")
    queue.insert(30)
    with streaming(PostgresEngine(guarded_url), queue, maxMessagesPerTrigger="10") as stream:
        while len(stream.ids()) < 30:
            stream.trigger()
            postgresql.cut_connections()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(30)), 0)
        said = everything_said(None, caplog, stream.options)
    assert "claim_lost" in said
    assert [secret for secret in ("open sesame", "open%20sesame", "sesame") if secret in said] == []


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://user:{ENCODED}@host/database",
        f"postgresql://user:{ENCODED}%zz@host/database",
        f"postgresql://user:{ENCODED}@host/database?no_such_parameter=1",
        f"host=127.0.0.1 password={SECRET}",
        SECRET,
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url, caplog):
    """It is refused."""
    given = options(url)
    with pytest.raises(ConfigurationError, match=r"^The option url ") as caught:
        Receiver(given).latest(None, 10)
    said = everything_said(caught.value, caplog, given)
    assert [secret for secret in (SECRET, ENCODED, "hunter2") if secret in said] == []


def test_a_server_that_is_not_there_is_said_at_once(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    given = options(f"postgresql://user:{ENCODED}@127.0.0.1:{port}/shop")
    for connecting in (connect, open_reader):
        with pytest.raises(ConnectionLost) as caught:
            connecting(Target.of(given))
        assert str(caught.value).startswith(f"No database answers at 127.0.0.1:{port}/shop (")
        assert str(caught.value).endswith("); check host, port and that the server runs.")
        assert "hunter2" not in everything_said(caught.value, caplog, given)
    assert isinstance(failure(given), ConnectionLost)


def test_a_database_that_is_not_there_is_said(postgresql):
    url = postgresql.url.rpartition("/")[0] + "/nowhere"
    error = failure(options(url))
    assert type(error) is ConfigurationError
    assert str(error).startswith(f"There is no such database at {place(url)} (")
    assert str(error).endswith('database "nowhere" does not exist); correct the url.')


@pytest.mark.parametrize(
    "queue, table, named",
    [
        ("orders", "orders@[public]", "orders"),
        ("orders@[sales]", "orders@[sales]", "orders@[sales]"),
        ("my]orders", "my]orders@[public]", "my]orders"),
        ('"sales"."orders"', "orders@[sales]", "orders@[sales]"),
        ('"public"."or@ders"', "or@ders@[public]", '"public"."or@ders"'),
    ],
)
def test_a_missing_table_is_said_with_the_remedy(postgresql, queue, table, named):
    """The command that creates it."""
    error = failure(options(postgresql.url, queue))
    assert type(error) is QueueError
    assert str(error) == (
        f"There is no queue table {table} in this database; create it with: sqlqueue create '{named}', "
        "or correct the queue name or its schema."
    )


def test_a_table_dropped_under_a_stream_is_said(postgresql):
    queue = postgresql.create_queue()
    with streaming(postgresql, queue) as stream:
        assert not stream.trigger()
        queue.execute("DROP TABLE {table}")
        stream.crash()
        with pytest.raises(
            QueueError, match=r"^There is no queue table orders@\[public\] in this database; "
        ):
            stream.trigger()
        queue = postgresql.create_queue()
        assert not stream.trigger()
        queue.execute("DROP TABLE {table}")
        with pytest.raises(QueueError) as caught:
            eventually(stream.trigger)
    name = f"orders@[public]@[{postgresql.url.rpartition('/')[2]}]"
    assert str(caught.value) == (
        f"The table is not there while claiming from {name} at {place(postgresql.url)} "
        '(relation "public.orders" does not exist); create it with: '
        f"sqlqueue create '{name}'."
    )


def test_a_queue_in_another_database_is_refused(postgresql):
    error = failure(options(postgresql.url, "orders@[public]@[elsewhere]"))
    assert str(error) == (
        "The queue orders@[public]@[elsewhere] lies in database 'elsewhere' but the url leads to "
        f"{postgresql.url.rpartition('/')[2]!r}; PostgreSQL reaches one database a connection, "
        "so put the queue's database into the url."
    )


def test_a_table_of_another_shape_is_said(postgresql):
    postgresql.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    error = failure(options(postgresql.url))
    assert type(error) is QueueError
    name = f"orders@[public]@[{postgresql.url.rpartition('/')[2]}]"
    assert str(error) == (
        f"{name} has no column expires (timestamp without time zone); create a table of another name with "
        "sqlqueue create and move the rows, or correct the queue name."
    )


def test_a_column_that_goes_under_a_stream_is_said_with_what_tells_more(postgresql):
    queue = postgresql.create_queue()
    with streaming(postgresql, queue) as stream:
        assert not stream.trigger()
        queue.execute("ALTER TABLE {table} DROP COLUMN body")
        with pytest.raises(QueueError) as caught:
            eventually(stream.trigger)
    name = f"orders@[public]@[{postgresql.url.rpartition('/')[2]}]"
    assert str(caught.value) == (
        f'The table is not shaped like a queue table while claiming from {name} (column "body" does not '
        "exist); see what is "
        f"wrong with: sqlqueue inspect '{name}'."
    )


@pytest.mark.parametrize("granted", ["", "SELECT", "SELECT, DELETE"])
def test_a_missing_right_is_said_with_the_rights_needed(guarded_url, postgresql, granted):
    queue = postgresql.create_queue()
    queue.insert(1)
    if granted:
        queue.execute(f"GRANT {granted} ON {{table}} TO guarded")
    error = failure(options(guarded_url))
    assert type(error) is NoRight
    name = f"orders@[public]@[{postgresql.url.rpartition('/')[2]}]"
    assert str(error) == (
        f"User 'guarded' lacks a right at {place(guarded_url)} while claiming from {name} "
        "(permission denied for table orders); a receiver needs SELECT, DELETE (and UPDATE on PostgreSQL, to "
        "lock rows) on its queue, a sender INSERT (and USAGE on the sequence of a PostgreSQL queue)."
    )


def test_the_rights_said_to_be_needed_are_enough(guarded_url, postgresql):
    queue = postgresql.create_queue()
    queue.execute("GRANT SELECT, DELETE, UPDATE ON {table} TO guarded")
    queue.insert(10)
    with streaming(PostgresEngine(guarded_url), queue, maxMessagesPerTrigger="4") as stream:
        assert stream.trigger()
        stream.crash()
        stream.drain()
        assert (stream.ids(), queue.count()) == (row_ids(range(10)), 0)


def test_a_statement_that_takes_too_long_is_said(postgresql):
    """It may be tried again."""
    with connect(Target(url=postgresql.url)) as connection:
        connection.execute("SELECT set_config('statement_timeout', '10', false)")
        with pytest.raises(TryAgain) as caught:
            connection.execute("SELECT pg_sleep(10)", doing="claiming from orders")
    assert str(caught.value) == (
        "A statement ran into commandTimeout while claiming from orders (canceling "
        "statement due to statement timeout); try again or raise it."
    )
    assert isinstance(caught.value.__cause__, psycopg.errors.QueryCanceled)


@pytest.mark.parametrize(
    "query, said",
    [
        ("sslmod=require", "The option url has a parameter 'sslmod'; did you mean sslmode?"),
        (
            "connect_timeout=abc",
            "The driver does not understand the url (bad value for connect_timeout: 'abc'); correct it.",
        ),
        (
            "sslmode=requir",
            (
                "The driver does not understand the url (connection is bad: invalid "
                'sslmode value: "requir"); '
                "correct it."
            ),
        ),
    ],
)
def test_a_wrong_parameter_of_a_url_is_named(query, said):
    assert str(failure(options(f"postgresql://me:hunter2@127.0.0.1:1/d?{query}"))) == said


@pytest.mark.parametrize("url", ["postgresql://me:hun/ter2@h:5432/d", "postgresql://me:hunter@2@h/d"])
def test_no_part_of_an_unencoded_password_is_shown(url, caplog):
    """A url whose password is not percent-encoded is refused."""
    given = options(url)
    error = failure(given)
    assert type(error) is ConfigurationError
    assert str(error) == (
        "The option url cannot be read as postgresql://user@host:port/database; correct it (special "
        "characters in a password are percent-encoded, or it goes into the option password)."
    )
    assert "hun" not in everything_said(error, caplog, given)


@pytest.mark.parametrize(
    "closed, said_of_it",
    [
        ("SELECT ON pg_catalog.pg_stat_all_tables", "permission denied for view pg_stat_all_tables"),
        ("EXECUTE ON FUNCTION pg_try_advisory_lock(bigint)", "for function pg_try_advisory_lock"),
    ],
    ids=["view", "function"],
)
def test_a_stream_begins_without_the_right_to_inspect(postgresql, guarded_url, caplog, closed, said_of_it):
    """What inspect would find is advice, and a part of the catalogue may be closed."""
    queue = postgresql.create_queue()
    queue.insert(3)
    queue.execute("GRANT SELECT, UPDATE, DELETE ON {table} TO guarded")
    postgresql.execute(f"REVOKE {closed} FROM PUBLIC")
    reader = StreamReaderBeforeSpark42(options(guarded_url))
    try:
        start = reader.initialOffset()
        (part,) = reader.partitions(start, reader.latestOffset())
        assert sum(batch.num_rows for batch in reader.read(part)) == 3
    finally:
        reader.stop()
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith(f"not_inspected queue={queue.address}")
    assert said_of_it in said


def test_an_attempt_leaves_the_longest_time_of_a_statement_as_it_was(postgresql):
    """Within it a statement may take as long as it needs."""

    def longest():
        return connection.execute("SHOW statement_timeout")[0][0]

    given = ConnectionOptions.parse({"url": postgresql.url, "commandTimeout": "7s"})
    with connect(Target.of(given)) as connection, connection.transaction():
        times = [longest()]
        with connection.attempt():
            times.append(longest())
            with connection.attempt():
                pass
            times.append(longest())
        times.append(longest())
        with connection.attempt(hurried=True):
            times.append(longest())
    assert times == ["7s", "0", "0", "7s", "7s"]
