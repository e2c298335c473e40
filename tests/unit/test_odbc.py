"""Connection strings and URLs of SQL Server, and which ODBC driver they are used with."""

import platform
import sys

import pytest

from sqlqueue_spark.engines.engine_of_url import SQLSERVER, dialect_of
from sqlqueue_spark.engines.sqlserver import odbc_driver
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.engines.sqlserver.login_and_tls import tls_by_default
from sqlqueue_spark.engines.sqlserver.odbc_driver import Driver, driver_of, find_driver
from sqlqueue_spark.errors import ConfigurationError
from tests.support.installing import OF_MSSQL


@pytest.mark.parametrize(
    "text, parts",
    [
        ("Server=h;Database=d", [("Server", "h"), ("Database", "d")]),
        (" server = tcp:h,1433 ;; PWD={a;b}}c=d} ; ", [("server", "tcp:h,1433"), ("PWD", "a;b}c=d")]),
        (
            "Driver={ODBC Driver 18 for SQL Server};UID=",
            [("Driver", "ODBC Driver 18 for SQL Server"), ("UID", "")],
        ),
        ("mssql://h", [("Server", "h")]),
        (
            "mssql://me:p%40ss%2F%3B@h:1433/my%20shop?encrypt=yes&Trust_Server_Certificate=no&applicationName=x",
            [
                ("Server", "h,1433"),
                ("Database", "my shop"),
                ("UID", "me"),
                ("PWD", "p@ss/;"),
                ("Encrypt", "yes"),
                ("TrustServerCertificate", "no"),
                ("APP", "x"),
            ],
        ),
        (
            "MSSQL://h/d?authentication=ActiveDirectoryMsi",
            [("Server", "h"), ("Database", "d"), ("Authentication", "ActiveDirectoryMsi")],
        ),
    ],
)
def test_strings_and_urls_are_read(text, parts):
    assert list(OdbcString.of(text).parts) == parts
    assert OdbcString.of(str(OdbcString.of(text))).parts == tuple(parts)
    assert dialect_of(text) is SQLSERVER


@pytest.mark.parametrize(
    "text", ["Server=h;hunter2", "Server=h;PWD={hunter2", "=hunter2", "Server=h;PWD={hunter2}x"]
)
def test_an_unreadable_string_is_not_shown(text):
    with pytest.raises(ConfigurationError) as caught:
        OdbcString.of(text)
    assert str(caught.value) == (
        "The option url cannot be read as an ODBC connection string, "
        "Server=host,1433;Database=…;Encrypt=yes; put values that hold ; or } between braces, "
        "with each } doubled."
    )


@pytest.mark.parametrize(
    "url",
    [
        "mssql://",
        "mssql:///d",
        "mssql://me:hunter2@h:port/d",
        "mssql://[hunter2/d",
        "mssql://me:1/hunter2@h/d",
    ],
)
def test_an_unreadable_url_is_not_shown(url):
    with pytest.raises(ConfigurationError) as caught:
        OdbcString.of(url)
    assert str(caught.value) == (
        "The option url cannot be read as mssql://user@host:1433/database?encrypt=yes; correct it (special "
        "characters in a password are percent-encoded, or it goes into the option password)."
    )


def test_an_unknown_keyword_suggests_the_nearest():
    """The driver itself would ignore it, and not encrypt."""
    with pytest.raises(ConfigurationError) as caught:
        OdbcString.of("mssql://h/d?encript=yes")
    assert str(caught.value) == (
        "The url says 'encript' after its question mark, which no driver understands; did you mean encrypt?"
    )


def test_the_first_of_two_values_counts():
    """And an option wins over both."""
    text = OdbcString.of("user=a;UID=b;Server=h")
    assert text.get("UID") == "a"
    assert text.completed({"UID": "c", "Database": "d", "APP": None}).get("UID") == "a"
    assert text.replaced({"UID": "c", "PWD": None}).parts == (("Server", "h"), ("UID", "c"))


def test_a_value_cannot_begin_another_keyword():
    text = OdbcString.of("Server=h").replaced({"PWD": "x};Encrypt=no;{", "UID": "a;b"})
    assert str(text) == "Server={h};PWD={x}};Encrypt=no;{};UID={a;b}"
    assert OdbcString.of(str(text)).parts == (("Server", "h"), ("PWD", "x};Encrypt=no;{"), ("UID", "a;b"))


def test_a_connection_string_hides_its_values():
    assert repr(OdbcString.of("Server=h;PWD=hunter2")) == "OdbcString(Server, PWD)"


# -- drivers --------------------------------------------------------------------------------------

EIGHTEEN, SEVENTEEN = "ODBC Driver 18 for SQL Server", "ODBC Driver 17 for SQL Server"
#: The packages in which Microsoft brings its driver.
WHEELS = ("mssql_python_odbc", "mssql_python")


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Makes a wheel that holds Microsoft's driver, and its file; none is there otherwise.

    A process looks into a wheel once, and nothing public forgets what it found:
    so the private cache is emptied.
    """
    for name in WHEELS:
        monkeypatch.setitem(sys.modules, name, None)
    odbc_driver._inside.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    def make(distribution="debian_ubuntu", name=WHEELS[0]):
        monkeypatch.delitem(sys.modules, name)
        folder = tmp_path / name / "libs" / "linux" / distribution / "arm64" / "lib"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('imported')")
        file = folder / "libmsodbcsql-18.6.so.2.1"
        file.touch()
        return str(file)

    yield make
    odbc_driver._inside.cache_clear()


def test_microsofts_installed_driver_comes_first(wheel):
    """Of two, the newer one."""
    wheel()
    both = ["FreeTDS", SEVENTEEN, EIGHTEEN, "ODBC Driver 13 for SQL Server"]
    assert find_driver(both) == Driver(name=EIGHTEEN, version=18, origin="installed")
    assert find_driver([SEVENTEEN, "FreeTDS"]) == Driver(name=SEVENTEEN, version=17, origin="installed")


@pytest.mark.parametrize(
    "release, distribution",
    [
        ({"ID": "debian"}, "debian_ubuntu"),
        ({"ID": "mint", "ID_LIKE": "ubuntu debian"}, "debian_ubuntu"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "rhel"),
        ({"ID": "alpine"}, "alpine"),
        ({"ID": "unheard of"}, "debian_ubuntu"),
    ],
)
def test_the_driver_inside_the_wheel_comes_second(wheel, monkeypatch, release, distribution):
    """The one for this distribution, found without importing the wheel."""
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    file = wheel(distribution)
    assert find_driver(["FreeTDS"]) == Driver(name=file, version=18, origin="wheel mssql-python-odbc")


def test_an_older_wheel_is_looked_into_too(wheel, monkeypatch):
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    older = wheel(name="mssql_python")
    assert find_driver([]) == Driver(name=older, version=18, origin="wheel mssql-python")


def test_freetds_comes_last(wheel):
    assert find_driver(["PostgreSQL", "FreeTDS"]) == Driver(name="FreeTDS", origin="installed")


def test_a_missing_driver_is_told_with_the_remedy(wheel):
    with pytest.raises(ConfigurationError) as caught:
        find_driver(["PostgreSQL", "ODBC Driver 13 for SQL Server"])
    assert str(caught.value) == (
        f"There is no ODBC driver for SQL Server; install Microsoft's with: {OF_MSSQL}, or its package "
        "msodbcsql18."
    )


@pytest.mark.parametrize(
    "text, driver",
    [
        (
            "Driver={ODBC Driver 17 for SQL Server};Server=h",
            Driver(name=SEVENTEEN, version=17, origin="named"),
        ),
        (
            "mssql://h?driver=/opt/libmsodbcsql-18.6.so.2.1",
            Driver(name="/opt/libmsodbcsql-18.6.so.2.1", version=18, origin="named"),
        ),
        ("Driver=FreeTDS;Server=h", Driver(name="FreeTDS", origin="named")),
        ("DSN=shop", None),
        ("Server=h", Driver(name=EIGHTEEN, version=18, origin="installed")),
    ],
)
def test_a_driver_that_is_named_is_taken(text, driver):
    assert driver_of(OdbcString.of(text), [EIGHTEEN]) == driver


def test_every_driver_is_made_to_encrypt():
    assert tls_by_default(Driver(name=EIGHTEEN, version=18, origin="installed")) == {}
    assert tls_by_default(Driver(name=SEVENTEEN, version=17, origin="installed")) == {"Encrypt": "yes"}
    assert tls_by_default(Driver(name="FreeTDS", origin="installed")) == {
        "Encryption": "require",
        "TDS_Version": "7.4",
    }
