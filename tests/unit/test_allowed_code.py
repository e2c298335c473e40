"""Options of ``format("sqlqueue")`` name code only where a user who may run code has allowed it."""

import errno
import os
import re

import pytest
from pyspark import cloudpickle

from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions, SourceOptions
from sqlqueue_spark.spark.allowed_code import VARIABLE, check, these
from sqlqueue_spark.spark.datasource import SqlQueueDataSource, allowing
from sqlqueue_spark.spark.readers import SCHEMA
from tests.support.asking_server import GSSAPI, asking, certified

FILE = "/home/somebody/evil.so"
CODE = [
    ({"url": "postgresql://h/d", "accessTokenProvider": "os:getlogin"}, "accessTokenProvider", "os:getlogin"),
    (
        {"url": "mssql://h/d", "accessTokenProvider": "azure-identity"},
        "accessTokenProvider",
        "azure-identity",
    ),
    *(
        ({"url": url}, "keyword of the url", name)
        for url, name in (
            (f"Driver={FILE};Server=h", f"Driver={FILE}"),
            (f"Server=h;DRIVER={{{FILE}}}", f"DRIVER={FILE}"),
            (f"Driver=FreeTDS;Driver={FILE};Server=h", f"Driver={FILE}"),
            (f"mssql://h/d?driver={FILE}", f"Driver={FILE}"),
            ("Driver=SQLite3;Database=/etc/passwd;Server=h", "Driver=SQLite3"),
            (f"Server=h;FileDSN={FILE}", f"FileDSN={FILE}"),
            (f"Server=h;SAVEFILE={FILE}", f"SAVEFILE={FILE}"),
            ("Server=h;Trusted_Connection=yes", "Trusted_Connection=yes"),
            ("Server=h;Authentication=ActiveDirectoryMsi", "Authentication=ActiveDirectoryMsi"),
            ("DSN=prod;Server=h", "DSN=prod"),
            (f"Server=h;ServerCertificate={FILE}", f"ServerCertificate={FILE}"),
            (r"Server=np:\\h\pipe\sql\query", r"Server=np:\\h\pipe\sql\query"),
            (r"Server=\\h\pipe\sql\query", r"Server=\\h\pipe\sql\query"),
            (r"Server=.\pipe\sql\query", r"Server=.\pipe\sql\query"),
            ("Server=h;Address=lpc:h", "Address=lpc:h"),
            (r"Server=(localdb)\v11.0", r"Server=(localdb)\v11.0"),
            ("Server=h;Network=dbnmpntw", "Network=dbnmpntw"),
            ("Server=h;ClientCharset=../x", "ClientCharset=../x"),
        )
    ),
    *(
        ({"url": f"postgresql://me:x@h/d?{name}={value}"}, "parameter of the url", f"{name}={value}")
        for name, value in (
            ("sslkey", FILE),
            ("sslcert", FILE),
            ("sslcert", ""),
            ("sslrootcert", FILE),
            ("sslkeylogfile", FILE),
            ("sslcertmode", "require"),
            ("passfile", FILE),
            ("service", "prod"),
            ("hostaddr", "10.0.0.1"),
            ("gssencmode", "prefer"),
            ("gssdelegation", "1"),
            ("krbsrvname", "postgres"),
            ("require_auth", "gss"),
        )
    ),
    ({"url": f"postgresql://me:x@h/d?sslke%79={FILE}"}, "parameter of the url", f"sslkey={FILE}"),
    ({"url": "postgresql://me:x@%2Fvar%2Frun/d"}, "local socket of the url", "host=/var/run"),
    ({"url": "postgresql://me:x@h,%2Frun/d"}, "local socket of the url", "host=/run"),
    ({"url": "postgresql:///d", "password": "x"}, "local socket of the url", "host=local"),
]
#: What a connection takes from no machine where a url of PostgreSQL does not say it.
OFF = (
    "password=&passfile=%2Fdev%2Fnull%2Fnone&sslcert=%2Fdev%2Fnull%2Fnone&options=&gssencmode=disable&"
    "krbsrvname=none&require_auth=%21gss%2C%21sspi"
)


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A home without a password file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGREQUIREAUTH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def refusal(act):
    with pytest.raises(ConfigurationError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("given,what,name", CODE)
def test_code_that_is_not_allowed_is_refused(monkeypatch, given, what, name):
    monkeypatch.setenv(VARIABLE, "something:else, /other.so")
    expected = (
        f"The {what} {name!r} is code, a file or a login of this machine, which a user who may write SQL "
        f"could name, so it must be allowed first: by sqlqueue_spark.register(spark, allowed=[{name!r}]), or "
        f"for all sessions in the environment of Spark's driver (SQLQUEUE_ALLOWED='{name}')."
    )
    source = SqlQueueDataSource({**given, "queue": "orders"})
    assert refusal(lambda: source.reader(SCHEMA)) == expected
    assert refusal(lambda: source.streamReader(SCHEMA)) == expected
    sink = SqlQueueDataSource({**given, "queue": "orders", "outbox": "none"})
    assert refusal(lambda: sink.writer(SCHEMA, overwrite=False)) == expected


@pytest.mark.parametrize("given,what,name", CODE)
def test_code_that_is_allowed_is_taken(monkeypatch, given, what, name):
    """For a session, or for all. A keyword may be in any case."""
    options = SourceOptions.parse({**given, "queue": "orders"})
    keyword, equals, value = name.partition("=")
    check(options, [f"{keyword.upper()}={value}" if equals else name])
    monkeypatch.setenv(VARIABLE, f"something:else, {name}")
    check(options, [])


@pytest.mark.parametrize(
    "url, allowed",
    [
        (f"postgresql://me:x@h/d?sslkeylogfile={FILE}", [FILE, f"sslrootcert={FILE}"]),
        (f"postgresql://me:x@h/d?passfile={FILE}", [FILE, f"sslrootcert={FILE}"]),
        ("Server=h;Trusted_Connection=yes", ["yes", "TrustServerCertificate=yes"]),
        (f"Server=h;SaveFile={FILE}", [FILE, f"Driver={FILE}"]),
        ("mssql://h/d?driver=/lib/other", ["Driver=/LIB/other"]),
    ],
)
def test_what_is_allowed_for_one_keyword_is_not_allowed_for_another(url, allowed):
    assert refusal(lambda: check(SourceOptions.parse({"url": url, "queue": "orders"}), allowed))


def test_the_url_of_another_database_names_no_code_either():
    given = {"url": "postgresql://h/d", "outbox": "none", "endpoint.Billing.url": f"Driver={FILE};Server=h"}
    assert refusal(lambda: check(SinkOptions.parse(given), [])).startswith(
        f"The keyword of the url 'Driver={FILE}' is code"
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d",
        "postgresql://me:x@h1,h2:5433/d?sslmode=verify-full&sslrootcert=system&connect_timeout=3&options=-c%20role%3Dspark",
        "mssql://h/d",
        "mssql://me:x@h/d?encrypt=yes&TrustServerCertificate=yes&hostNameInCertificate=h",
        "postgresql://me:x@h/d?gssencmode=disable&sslcertmode=disable&require_auth=scram-sha-256",
        "Driver=ODBC Driver 18 for SQL Server;Server=h",
        "Driver={FreeTDS};Server=tcp:db.shop.example,1433;ClientCharset=UTF-8;UID=me;PWD=x",
        r"Server=db\SQLEXPRESS;UID=me;PWD=x",
        "Server=(local);UID=me;PWD=x",
        "mssql://me:x@[::1]:1433/d",
        (
            "Server=h;Database=d;UID=me;PWD=x;Trusted_Connection=no;"
            "Authentication=ActiveDirectoryServicePrincipal"
        ),
    ],
)
def test_what_names_no_file_needs_no_leave(url):
    check(SourceOptions.parse({"url": url, "queue": "orders"}), [])


def test_a_home_into_which_the_server_may_not_look_keeps_no_password(monkeypatch, home):
    """A service may have the HOME of the user who has started it. Root may look anywhere, so it is said."""
    look = os.stat

    def stat(path, *more, **named):
        if str(path).startswith(str(home)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, *more, **named)

    monkeypatch.setattr("os.stat", stat)
    checked = check(SourceOptions.parse({"url": "postgresql://me@h/d", "queue": "orders"}), [])
    assert checked.url.startswith("postgresql://me@h/d?")


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


def test_a_url_that_cannot_be_read_is_refused():
    options = SourceOptions.parse({"url": "postgresql://h/d?sslkey=%zz", "queue": "orders"})
    assert refusal(lambda: check(options, [])) == "The driver does not understand the url; correct it."


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://me:x@h/d?service=postgresql://me:hunter2@h/d", "service=…"),
        ("postgresql://me:x@h/d?sslpassword=hunter2", "sslpassword=…"),
        ("postgresql://me:x@h/d?oauth_client_secret=hunter2", "oauth_client_secret=…"),
        ("Server=h;ClientKeyPassword=hunter2", "ClientKeyPassword=…"),
    ],
)
def test_a_password_in_a_refused_parameter_is_not_repeated(url, shown):
    said = refusal(lambda: check(SourceOptions.parse({"url": url, "queue": "orders"}), []))
    assert (repr(shown) in said, "hunter2" in said) == (True, False)


@pytest.mark.parametrize(
    "url, expected",
    [
        ("postgresql://me@h/d", f"?{OFF}"),
        ("postgresql://me:a?b@h/d", "?" + OFF.removeprefix("password=&")),
        (
            "postgresql://me:x@h/d?options=-c%20role%3Dspark",
            "&" + OFF.removeprefix("password=&").replace("options=&", ""),
        ),
        ("postgresql://h/d?gssencmode=disable", "&" + OFF.replace("gssencmode=disable&", "")),
        (
            "postgresql://h/d?require_auth=scram-sha-256",
            f"&{OFF.replace('%21gss%2C%21sspi', 'scram-sha-256')}",
        ),
        ("postgresql://h/d?require_auth=!md5", f"&{OFF.replace('%21gss', '%21md5%2C%21gss')}"),
        ("postgresql://h/d?require_auth=&password=", f"&{OFF}"),
    ],
)
def test_what_a_url_does_not_say_is_taken_from_no_machine(url, expected):
    """libpq has defaults for it on the machine of the driver, and others on those of the workers."""
    given = {"url": url, "queue": "orders"}
    source = SqlQueueDataSource(given)
    assert source._source_options() == SourceOptions.parse({**given, "url": url + expected})
    away = {**given, "outbox": "none", "Endpoint.Billing*.URL": url}
    known = {**away, "url": url + expected, "Endpoint.Billing*.URL": url + expected}
    assert SqlQueueDataSource(away)._sink_options() == SinkOptions.parse(known)


@pytest.mark.parametrize(
    "name, off",
    [
        ("PGPASSWORD", OFF.replace("password=&", "", 1)),
        (".pgpass", OFF.replace("passfile=%2Fdev%2Fnull%2Fnone&", "")),
        ("PGSSLCERT", OFF.replace("sslcert=%2Fdev%2Fnull%2Fnone&", "")),
        ("KRB5CCNAME", OFF.partition("&gssencmode")[0]),
        ("PGSERVICE", ""),
    ],
)
def test_what_is_allowed_is_taken_from_the_machine(name, off):
    url = "postgresql://me@h/d"
    checked = check(SourceOptions.parse({"url": url, "queue": "orders"}), [name])
    assert checked.url == (f"{url}?{off}" if off else url)


def test_a_ticket_that_a_url_names_by_leave_is_taken():
    url = "postgresql://me@h/d?krbsrvname=postgres"
    checked = check(SourceOptions.parse({"url": url, "queue": "orders"}), ["krbsrvname=postgres"])
    assert checked.url == f"{url}&{OFF.partition('&gssencmode')[0]}"


def test_a_stricter_login_of_the_environment_stays(monkeypatch):
    monkeypatch.setenv("PGREQUIREAUTH", "scram-sha-256,gss")
    checked = check(SourceOptions.parse({"url": "postgresql://me@h/d", "queue": "orders"}), [])
    assert checked.url.endswith("&require_auth=scram-sha-256")


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"url": "Server=h"}, "Server={h};UID={none}"),
        ({"url": "Server=h;Trusted_Connection=no;UID="}, "Server={h};Trusted_Connection={no};UID={none}"),
        ({"url": "Server=h;UID=me;User=;PWD=x"}, "Server={h};PWD={x};UID={me}"),
        ({"url": "Server=h", "accessToken": "t"}, "Server=h"),
        ({"url": "Server=h", "allowed": "KRB5CCNAME"}, "Server=h"),
        ({"url": "Server=h;Trusted_Connection=yes", "allowed": "trusted_connection=yes"}, None),
        ({"url": "DSN=prod", "allowed": "DSN=prod"}, None),
    ],
)
def test_a_login_that_a_url_of_sql_server_does_not_name_is_not_that_of_the_machine(given, expected):
    """Without a user FreeTDS takes its Kerberos ticket."""
    allowed = [given.pop("allowed", "")]
    checked = check(SourceOptions.parse({**given, "queue": "orders"}), allowed)
    assert checked.url == (expected or given["url"])


@pytest.mark.parametrize("opened", [connect, open_reader])
def test_a_password_of_the_machine_of_a_worker_is_not_sent(monkeypatch, home, opened):
    """Where the driver's machine has none, nothing is refused."""
    with asking() as server:
        checked = check(SourceOptions.parse({"url": server.url(), "queue": "orders"}), [])
        (home / ".pgpass").write_text("*:*:*:*:secret")
        (home / ".pgpass").chmod(0o600)
        monkeypatch.setenv("PGPASSWORD", "secret")
        with pytest.raises(ConfigurationError):
            opened(Target.of(checked))
        assert b"me\0" in server.heard
        assert b"secret" not in server.heard


@pytest.mark.parametrize("opened", [connect, open_reader])
def test_a_ticket_of_the_machine_is_not_the_login(opened):
    """The server asks for one."""
    with asking(ask=GSSAPI) as server:
        checked = check(SourceOptions.parse({"url": server.url(), "queue": "orders", "password": "x"}), [])
        said = refusal(lambda: opened(Target.of(checked)))
    where = rf"127\.0\.0\.1:{server.port}/shop"
    assert re.fullmatch(
        rf"The server at {where} asks user 'me' for a Kerberos ticket \(.*requirement \"!gss,!sspi\" failed: "
        r"server requested GSSAPI authentication\); give a password, or allow the ticket of this machine: "
        r'sqlqueue_spark\.register\(spark, allowed=\["KRB5CCNAME"\]\)\.',
        said,
    ), said


@pytest.mark.parametrize("opened", [connect, open_reader])
def test_a_certificate_of_the_machine_is_not_shown(home, opened):
    """Except by leave."""
    folder = certified(home)
    given = {"queue": "orders", "password": "x"}
    for allowed, shown in (([], []), (["PGSSLCERT"], ["((('commonName', 'machine'),),)"])):
        with asking(certificates=folder) as server:
            url = server.url().replace("sslmode=disable", "sslmode=require")
            with pytest.raises(ConfigurationError):
                opened(Target.of(check(SourceOptions.parse({**given, "url": url}), allowed)))
            assert (*{*server.shown},) == (*shown,)


def test_the_options_of_a_program_lead_where_they_lead():
    """And no other options do, whatever a user of the same session writes."""
    given = {"url": f"postgresql://me@h/d?sslcert={FILE}&sslkey={FILE}", "queue": "orders"}
    options = SourceOptions.parse(given)
    made = allowing([these(options)])
    assert made(given)._source_options() == options
    for other in ({"url": given["url"].replace("@h", "@other")}, {"user": "root"}):
        assert "is code, a file or a login" in refusal(made({**given, **other})._source_options)


def test_what_a_session_allows_goes_with_its_data_source():
    """Spark plans in another process."""
    made = cloudpickle.loads(cloudpickle.dumps(allowing(["vault:get"])))
    assert (made.name(), made.allowed, SqlQueueDataSource.allowed) == ("sqlqueue", ("vault:get",), ())
    made({"url": "postgresql://h/d", "queue": "orders", "accessTokenProvider": "vault:get"}).reader(SCHEMA)
