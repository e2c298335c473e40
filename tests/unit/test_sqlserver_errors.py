"""What SQL Server's driver says while connecting, in its own words as they were reported,
and what a user is told.
"""

import importlib
from unittest import mock

import pyodbc
import pytest
import stamina

from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import Connection, Target, connect
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost, NoPassword, NotReady, QueueError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables import queue_table

URL = "Driver=librecording.so;Server=sql.example.com,1433;Database=shop"
BY_DRIVER = "[Microsoft][ODBC Driver 18 for SQL Server]"
NO_LOGIN = f"[28000] {BY_DRIVER}[SQL Server]Login failed for user 'spark'. (18456) (SQLDriverConnect)"


def said(monkeypatch, sqlstate, text, *, again=False, **login):
    """The error that comes of what the driver says."""

    def refuse(*_, **__):
        raise pyodbc.Error(sqlstate, text)

    monkeypatch.setattr(pyodbc, "connect", refuse)
    with pytest.raises((ConfigurationError, ConnectionLost)) as caught:
        connect(Target(url=URL, **login), again=again)
    return type(caught.value), str(caught.value)


def test_a_wrong_password_is_said(monkeypatch):
    assert said(monkeypatch, "28000", NO_LOGIN, user="spark", password="wrong") == (
        ConfigurationError,
        (
            "The database at sql.example.com,1433/shop refused the login of user 'spark'; "
            "check user and password."
        ),
    )


def test_a_password_that_is_not_given_is_said(monkeypatch):
    """The server does not tell it from a wrong one."""
    assert said(monkeypatch, "28000", NO_LOGIN, user="spark") == (
        NoPassword,
        (
            "The database at sql.example.com,1433/shop refused the login of user 'spark', for whom no "
            "password is given; put it into the environment (SQLQUEUE_PASSWORD, and this url as "
            "SQLQUEUE_URL), or give it as option password."
        ),
    )
    assert said(monkeypatch, "28000", NO_LOGIN, user="spark", again=True)[0] is ConnectionLost


def test_a_missing_database_is_no_wrong_password(monkeypatch):
    """The server says first that the login failed, and only then why."""
    why = (
        f'{BY_DRIVER}[SQL Server]Cannot open database "shop" requested by the login. The login failed. (4060)'
    )
    kind, sentence = said(monkeypatch, "28000", f"{NO_LOGIN}; [28000] {why}", user="spark")
    assert (kind, sentence.partition(" (")[0]) == (
        ConfigurationError,
        "There is no such database at sql.example.com,1433/shop",
    )


RESUMING = (
    f"{BY_DRIVER}[SQL Server]Database 'shop' on server 'sql' is not currently available. "
    "Please retry later. (40613)"
)


@pytest.mark.parametrize(
    "sqlstate, text",
    [
        (
            "28000",
            (
                f"{NO_LOGIN}; [28000] {BY_DRIVER}[SQL Server]Database 'shop' is being recovered. Waiting "
                "until recovery is finished. (922)"
            ),
        ),
        ("HY000", f"[HY000] {RESUMING} (SQLDriverConnect)"),
        (
            "HY000",
            f"[HY000] {BY_DRIVER}[SQL Server]The service is currently busy. (40501) (SQLDriverConnect)",
        ),
        ("42000", f"[42000] {BY_DRIVER}[SQL Server]The SQL pool is warming up. (42109) (SQLDriverConnect)"),
    ],
    ids=["recovering", "resuming", "throttled", "warming up"],
)
def test_a_database_that_is_not_ready_is_told_as_that(monkeypatch, sqlstate, text):
    """It is waited for, and is no wrong password, and no server that does not answer."""
    with stamina.set_testing(True, attempts=2):
        kind, sentence = said(monkeypatch, sqlstate, text, user="spark")
    assert (kind, sentence.partition(" (")[0]) == (
        NotReady,
        "The database at sql.example.com,1433/shop is not ready yet",
    )


def test_the_first_connection_waits_for_a_database_to_resume(monkeypatch):
    """Its caller does not wait: a caller that has never reached the database takes an error for one
    of the configuration.
    """
    answers = [pyodbc.Error("HY000", f"[HY000] {RESUMING} (SQLDriverConnect)")] * 3
    opened = mock.Mock(spec=pyodbc.Connection)
    opened.cursor.return_value = mock.Mock(description=None, nextset=mock.Mock(return_value=False))
    monkeypatch.setattr(pyodbc, "connect", mock.Mock(side_effect=[*answers, opened]))
    with stamina.set_testing(True, attempts=5):
        connection = connect(Target(url=URL))
    assert connection.target.url == URL
    assert pyodbc.connect.call_count == 4
    assert [each.kwargs["timeout"] for each in pyodbc.connect.call_args_list] == [30] * 4


def test_a_later_connection_leaves_the_waiting_to_its_caller(monkeypatch):
    """The caller waits already, and one who waits within one who waits takes twice as long."""
    monkeypatch.setattr(
        pyodbc, "connect", mock.Mock(side_effect=pyodbc.Error("HY000", f"[HY000] {RESUMING}"))
    )
    with pytest.raises(NotReady):
        connect(Target(url=URL), again=True)
    assert pyodbc.connect.call_count == 1


def test_a_wrong_password_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(pyodbc, "connect", mock.Mock(side_effect=pyodbc.Error("28000", NO_LOGIN)))
    with pytest.raises(ConfigurationError):
        connect(Target(url=URL))
    assert pyodbc.connect.call_count == 1


def test_an_expired_token_is_no_wrong_password(monkeypatch):
    text = (
        f"[28000] {BY_DRIVER}[SQL Server]Login failed for user '<token-identified principal>'. The token is "
        "expired. (18456)"
    )
    assert said(monkeypatch, "28000", f"{text} (SQLDriverConnect)", access_token="secret.of.mine") == (
        ConfigurationError,
        (
            "The database at sql.example.com,1433/shop refused the Microsoft Entra token "
            "(Login failed for user '<token-identified principal>'. The token is expired. (18456) "
            "(SQLDriverConnect)); get a fresh one (accessTokenProvider gets one for each connection), and "
            "see that the database has a user for it."
        ),
    )


def test_an_untrusted_certificate_is_told_as_that(monkeypatch):
    """And not as a server that does not answer."""
    text = (
        f"[08001] {BY_DRIVER}SSL Provider: [error:0A000086:SSL routines::certificate verify "
        "failed:self-signed certificate]"
    )
    assert said(monkeypatch, "08001", f"{text} (-1) (SQLDriverConnect)") == (
        ConfigurationError,
        (
            "The certificate of sql.example.com,1433/shop is not trusted (SSL Provider: [error:0A000086:SSL "
            "routines::certificate verify failed:self-signed certificate] (-1) (SQLDriverConnect)); install "
            "the authority that signed it, or correct what the url says of it (hostNameInCertificate, "
            "trustServerCertificate; sslmode, sslrootcert)."
        ),
    )


def test_an_unknown_value_is_told_as_that(monkeypatch):
    """And not as a server that does not answer."""
    text = (
        f"[08001] {BY_DRIVER}Invalid value specified for connection string attribute 'Encrypt' (0) "
        "(SQLDriverConnect)"
    )
    assert said(monkeypatch, "08001", text) == (
        ConfigurationError,
        (
            "The driver does not understand the url (Invalid value specified for connection string "
            "attribute 'Encrypt' (0) (SQLDriverConnect)); correct it."
        ),
    )


def test_a_later_refusal_is_a_lost_connection(monkeypatch):
    """A database that was reached before and refuses logins is failing over."""
    assert said(monkeypatch, "28000", NO_LOGIN, again=True, user="spark", password="wrong") == (
        ConnectionLost,
        (
            "The database at sql.example.com,1433/shop refused the login of user 'spark'; "
            "check user and password."
        ),
    )


def execute(statement, *_, **__):
    """As a server answers whose only database is shop."""
    if "DB_NAME" in str(statement):
        return [("shop", False, None)]
    raise QueueError("The table is not there (Invalid object name 'stock.sys.tables')")


def test_a_missing_database_is_no_missing_queue():
    """One that an address names."""
    connection = mock.Mock(Connection, dialect=SQLSERVER, execute=execute)
    with pytest.raises(ConfigurationError) as caught:
        queue_table.find(connection, Table(table="orders", schema="dbo", catalog="stock"))
    assert str(caught.value) == (
        "The queue orders@[dbo]@[stock] lies in database 'stock', which is not there (The table is not there "
        "(Invalid object name 'stock.sys.tables')); correct the address."
    )
    with pytest.raises(QueueError):
        queue_table.find(connection, Table(table="orders", schema="dbo"))


def test_a_closed_connection_ends_its_session():
    """What the session holds would outlive it where the driver manager keeps it for the next one."""
    importlib.import_module("sqlqueue_spark.engines.sqlserver.connection")
    assert pyodbc.pooling is False
