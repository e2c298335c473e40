"""Options of ``format("sqlqueue")`` name code only where somebody who may run code has allowed it."""

import pytest
from pyspark import cloudpickle

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.spark.allowed_code import VARIABLE, check
from sqlqueue_spark.spark.datasource import SqlQueueDataSource, allowing
from sqlqueue_spark.spark.readers import SCHEMA

FILE = "/home/somebody/evil.so"
CODE = [
    ({"url": "postgresql://h/d", "accessTokenProvider": "os:getlogin"}, "accessTokenProvider", "os:getlogin"),
    (
        {"url": "mssql://h/d", "accessTokenProvider": "azure-identity"},
        "accessTokenProvider",
        "azure-identity",
    ),
    ({"url": f"Driver={FILE};Server=h"}, "Driver of the url", FILE),
    ({"url": f"Server=h;DRIVER={{{FILE}}}"}, "DRIVER of the url", FILE),
    ({"url": f"Driver=FreeTDS;Driver={FILE};Server=h"}, "Driver of the url", FILE),
    ({"url": f"mssql://h/d?driver={FILE}"}, "Driver of the url", FILE),
    ({"url": f"Server=h;FileDSN={FILE}"}, "FileDSN of the url", FILE),
    ({"url": f"Server=h;SAVEFILE={FILE}"}, "SAVEFILE of the url", FILE),
    ({"url": "Server=h;Trusted_Connection=yes"}, "Trusted_Connection of the url", "yes"),
    (
        {"url": "Server=h;Authentication=ActiveDirectoryMsi"},
        "Authentication of the url",
        "ActiveDirectoryMsi",
    ),
    ({"url": "DSN=prod;Server=h"}, "DSN of the url", "prod"),
    ({"url": f"Server=h;ServerCertificate={FILE}"}, "ServerCertificate of the url", FILE),
    *(
        ({"url": f"postgresql://me:x@h/d?{name}={value}"}, f"parameter {name} of the url", value)
        for name, value in (
            ("sslkey", FILE),
            ("sslcert", FILE),
            ("sslrootcert", FILE),
            ("sslkeylogfile", FILE),
            ("passfile", FILE),
            ("service", "prod"),
            ("hostaddr", "10.0.0.1"),
            ("gssdelegation", "1"),
            ("krbsrvname", "postgres"),
        )
    ),
    ({"url": f"postgresql://me:x@h/d?sslke%79={FILE}"}, "parameter sslkey of the url", FILE),
    ({"url": "postgresql://me:x@%2Fvar%2Frun/d"}, "local socket of the url", "/var/run"),
    ({"url": "postgresql://me:x@h,%2Frun/d"}, "local socket of the url", "/run"),
    ({"url": "postgresql:///d", "password": "x"}, "local socket of the url", "local"),
]


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A home without a password file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def refusal(act):
    with pytest.raises(ConfigurationError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("given,what,name", CODE)
def test_code_that_nobody_has_allowed_is_refused(monkeypatch, given, what, name):
    monkeypatch.setenv(VARIABLE, "something:else, /other.so")
    expected = (
        f"The {what} {name!r} is code, a file or a login of this machine, which a user who may write SQL could name, so it must be allowed "
        f"first: by sqlqueue_spark.register(spark, allowed=[{name!r}]), or for all sessions in the environment of Spark's driver "
        f"(SQLQUEUE_ALLOWED='{name}')."
    )
    source = SqlQueueDataSource({**given, "queue": "orders"})
    assert refusal(lambda: source.reader(SCHEMA)) == expected
    assert refusal(lambda: source.streamReader(SCHEMA)) == expected
    sink = SqlQueueDataSource({**given, "queue": "orders", "outbox": "none"})
    assert refusal(lambda: sink.writer(SCHEMA, overwrite=False)) == expected


@pytest.mark.parametrize("given,what,name", CODE)
def test_code_that_is_allowed_is_taken(monkeypatch, given, what, name):
    """For a session, or for all."""
    options = SourceOptions.parse({**given, "queue": "orders"})
    check(options, [name])
    monkeypatch.setenv(VARIABLE, f"something:else, {name}")
    check(options, [])


def test_the_url_of_another_database_names_no_code_either():
    given = {"url": "postgresql://h/d", "outbox": "none", "endpoint.Billing.url": f"Driver={FILE};Server=h"}
    assert refusal(lambda: check(SinkOptions.parse(given), [])).startswith(
        f"The Driver of the url {FILE!r} is code"
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d",
        "postgresql://me:x@h1,h2:5433/d?sslmode=verify-full&sslrootcert=system&connect_timeout=3&options=-c%20role%3Dspark",
        "mssql://h/d",
        "mssql://me:x@h/d?encrypt=yes&TrustServerCertificate=yes&hostNameInCertificate=h",
        "Driver=ODBC Driver 18 for SQL Server;Server=h",
        "Server=h;Database=d;UID=me;PWD=x;Trusted_Connection=no;Authentication=ActiveDirectoryServicePrincipal",
    ],
)
def test_what_names_no_file_needs_no_leave(url):
    check(SourceOptions.parse({"url": url, "queue": "orders"}), [])


@pytest.mark.parametrize("kept", ["PGPASSWORD", "PGPASSFILE", ".pgpass"])
def test_a_password_that_the_machine_keeps_is_given_to_no_server_that_sql_names(monkeypatch, home, kept):
    """libpq would send it to whatever host the url names."""
    if kept == ".pgpass":
        (home / kept).write_text("*:*:*:*:secret")
    else:
        monkeypatch.setenv(kept, "secret")
    options = SourceOptions.parse({"url": "postgresql://me@h/d", "queue": "orders"})
    said = refusal(lambda: check(options, []))
    assert said.startswith(
        f"The password kept on this machine for a url without one {kept!r} is code, a file or"
    )
    assert "secret" not in said
    check(options, [kept])
    check(SourceOptions.parse({"url": "postgresql://me@h/d", "queue": "orders", "password": "mine"}), [])


def test_a_url_that_nobody_can_read_is_refused():
    options = SourceOptions.parse({"url": "postgresql://h/d?sslkey=%zz", "queue": "orders"})
    assert refusal(lambda: check(options, [])) == "The driver does not understand the url; correct it."


def test_a_password_in_a_refused_parameter_is_not_repeated():
    given = {"url": "postgresql://me:x@h/d?service=postgresql://me:secret@h/d", "queue": "orders"}
    assert "secret" not in refusal(lambda: check(SourceOptions.parse(given), []))


def test_what_a_session_allows_goes_with_its_data_source():
    """Spark plans in another process."""
    made = cloudpickle.loads(cloudpickle.dumps(allowing(["vault:get"])))
    assert (made.name(), made.allowed, SqlQueueDataSource.allowed) == ("sqlqueue", ("vault:get",), ())
    made({"url": "postgresql://h/d", "queue": "orders", "accessTokenProvider": "vault:get"}).reader(SCHEMA)
