"""A server that answers and lets no user in: each refusal is said as what it is, with its own remedy."""

import contextlib
import re
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.engines.open_connection import Target, connect, open_reader
from sqlqueue_spark.engines.statements import Statement
from sqlqueue_spark.errors import ConfigurationError, ConnectionLost
from sqlqueue_spark.receive.reading.slices import SCHEMA
from sqlqueue_spark.row_set import RowSet
from tests.support.asking_server import asking

PASSWORD = "hunter2"
RULES = """
host all postgres 127.0.0.1/32 scram-sha-256
host all barred 127.0.0.1/32 reject
host all ghost,group_,limited,stopped 127.0.0.1/32 trust
local all all peer
"""
SETTING_UP = (
    "CREATE ROLE group_ NOLOGIN",
    "CREATE ROLE limited LOGIN CONNECTION LIMIT 0",
    "CREATE ROLE stopped LOGIN",
    "CREATE DATABASE closed ALLOW_CONNECTIONS false",
    "CREATE DATABASE private",
    "REVOKE CONNECT ON DATABASE private FROM PUBLIC",
    "SELECT pg_reload_conf()",
)


@pytest.fixture(scope="module")
def strict():
    """A server of its own, which is not as ours are."""
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-strict-"))
    data = folder / "data"
    try:
        with EmbeddedServer(data, settings={"fsync": "off", "unix_socket_directories": str(data)}) as server:
            (data / "pg_hba.conf").write_text(RULES)
            with psycopg.connect(server.url(), autocommit=True) as connection:
                for statement in SETTING_UP:
                    connection.execute(statement)
            yield server
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def url(strict):
    """How to get there: by a user, to a database, with more words of the url."""

    def of(user, database="postgres", more=""):
        if more == "socket":
            return f"postgresql://{user}:{PASSWORD}@:{strict.port}/{database}?host={strict.data_directory}"
        return f"postgresql://{user}:{PASSWORD}@127.0.0.1:{strict.port}/{database}{more}"

    return of


REFUSALS = {
    "no rule": (
        ("stranger",),
        (
            r"The server at {where}/postgres does not let user 'stranger' in from this machine \(.*FATAL:  "
            r"no pg_hba\.conf entry for host .*\); have an administrator add a line to its pg_hba\.conf, or, "
            r"where it asks for encryption or a certificate, say so in the url \(sslmode=require, sslcert\)\."
        ),
    ),
    "rejected": (
        ("barred",),
        (
            r"The server at {where}/postgres does not let user 'barred' in from this machine \(.*FATAL:  "
            r"pg_hba\.conf rejects .*"
        ),
    ),
    "no role": (
        ("ghost",),
        (
            r"There is no user 'ghost' at {where}/postgres \(.*FATAL:  role \"ghost\" does not exist\); "
            r"correct the user, or have an administrator create it\."
        ),
    ),
    "no login": (
        ("group_",),
        (
            r"User 'group_' may not log in at {where}/postgres \(.*role \"group_\" is not permitted to log "
            r"in\); have an administrator allow it \(ALTER ROLE … LOGIN\), or take another user\."
        ),
    ),
    "peer": (
        ("postgres", "postgres", "socket"),
        (
            r"The server at .*/postgres takes the operating system's user for the login, and 'postgres' is "
            r"another one \(.*FATAL:  Peer authentication failed for user \"postgres\"\); name a host in the "
            r"url and give a password, or log in as the user that runs this\."
        ),
    ),
    "closed": (
        ("stopped", "closed"),
        (
            r"There is no such database at {where}/closed \(.*is not currently accepting connections\); "
            r"correct the url\."
        ),
    ),
    "no right": (
        ("stopped", "private"),
        (
            r"User 'stopped' may not connect to the database at {where}/private \(.*permission denied for "
            r"database \"private\"\); have an administrator grant CONNECT on the database\."
        ),
    ),
    "no SSL": (
        ("postgres", "postgres", "?sslmode=require"),
        (
            r"The url asks for encryption, which the server at {where}/postgres does not offer \(.*server "
            r"does not support SSL, but SSL was required\); have it turned on there, or say sslmode=prefer "
            r"if messages and password may cross the network in the clear\."
        ),
    ),
    "password": (
        ("postgres",),
        (r"The database at {where}/postgres refused the login of user 'postgres'; check user and password\."),
    ),
}


def read(target):
    reader = open_reader(target)
    try:
        list(reader.batches(Statement.parse("COPY (SELECT 1) TO STDOUT"), RowSet([(1, 1)]), SCHEMA))
    finally:
        reader.close()


@pytest.mark.parametrize("way", [connect, read])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_said_as_what_it_is(strict, url, way, refusal):
    place, sentence = REFUSALS[refusal]
    with pytest.raises(
        ConfigurationError, match=rf"^{sentence.format(where=f'127.0.0.1:{strict.port}')}$"
    ) as error:
        way(Target(url=url(*place)))
    assert PASSWORD not in str(error.value)
    # While a database fails over it may say the same for a while.
    with pytest.raises(ConnectionLost):
        connect(Target(url=url(*place)), again=True)


#: What servers say in other languages: the severity, the state, the words, and what we say of it.
FOREIGN = {
    "German password": (
        ("FATAL", "28P01", "Passwort-Authentifizierung für Benutzer »me« fehlgeschlagen"),
        (
        "The database at {where} refused the login of user 'me'; check user and password."
        ),
    ),
    "Russian password": (
        ("ВАЖНО", "28P01", "пользователь \"me\" не прошёл проверку подлинности (по паролю)"),
        (
        "The database at {where} refused the login of user 'me'; check user and password."
        ),
    ),
    "German database": (
        ("FATAL", "3D000", "Datenbank »shop« existiert nicht"),
        (
        "There is no such database at {where} (connection to server at \"127.0.0.1\", port {port} failed: "
        "FATAL:  Datenbank »shop« existiert nicht); correct the url."
        ),
    ),
    "German right": (
        ("FATAL", "42501", "keine Berechtigung für Datenbank »shop«"),
        (
        "User 'me' may not connect to the database at {where} (connection to server at \"127.0.0.1\", port "
        "{port} failed: FATAL:  keine Berechtigung für Datenbank »shop«); have an administrator grant "
        "CONNECT on the database."
        ),
    ),
    "German closed database": (
        ("FATAL", "55000", "Datenbank »shop« akzeptiert gegenwärtig keine Verbindungen"),
        (
        "There is no such database at {where} (connection to server at \"127.0.0.1\", port {port} failed: "
        "FATAL:  Datenbank »shop« akzeptiert gegenwärtig keine Verbindungen); correct the url."
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", [connect, read])
@pytest.mark.parametrize("refusal", FOREIGN)
def test_a_refusal_in_another_language_is_said_as_what_it_is(way, refusal):
    (severity, state, words), sentence = FOREIGN[refusal]
    with asking(f"S{severity}\0VFATAL\0C{state}\0M{words}\0\0") as server:
        with pytest.raises(ConfigurationError) as error:
            way(Target(url=server.url(), password=PASSWORD))
        said = re.sub("[^(]*(?=connection to server)", "", str(error.value))
        assert said == sentence.format(where=f"127.0.0.1:{server.port}/shop", port=server.port)


def test_too_many_connections_in_another_language_may_be_tried_again():
    with asking("SFATAL\0C53300\0Mtut mir leid, schon zu viele Verbindungen\0\0") as server:
        with pytest.raises(ConnectionLost) as error:
            connect(Target(url=server.url(), password=PASSWORD))
        assert str(error.value).startswith(
            f"The server at 127.0.0.1:{server.port}/shop has no connection left for user 'me' ("
        )


def test_too_many_connections_are_said_as_that(strict, url):
    """They may be tried again."""
    with pytest.raises(ConnectionLost) as error:
        connect(Target(url=url("limited")))
    assert str(error.value).startswith(
        f"The server at 127.0.0.1:{strict.port}/postgres has no connection left for user 'limited' ("
    )
    assert 'too many connections for role "limited"' in str(error.value)
    assert str(error.value).endswith(
        "); end some, lower maxConcurrency, or have max_connections or the user's limit raised."
    )


def test_the_doctor_says_why_where_the_network_is_well(url):
    result = CliRunner().invoke(main, ["doctor", "orders", "--url", url("stranger")])
    network, login = (
        line for line in result.stdout.splitlines() if line[2:10].strip() in ("network", "login")
    )
    assert (network[0], login[0]) == ("✓", "✗")
    assert "does not let user 'stranger' in from this machine" in login


@contextlib.contextmanager
def answering(words):
    """A server of another kind."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(1000)
                        client.sendall(words)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_server_of_another_kind_is_said_as_that():
    with (
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
        pytest.raises(
            ConfigurationError,
            match=rf"^What answers at 127\.0\.0\.1:{port}/shop is no PostgreSQL server \(.*\); ",
        ),
    ):
        connect(Target(url=f"postgresql://me@127.0.0.1:{port}/shop"))


def test_of_several_hosts_the_one_that_refused_is_said(strict, url):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    both = url("ghost").replace("@127.0.0.1:", f"@127.0.0.1:{port},127.0.0.1:")
    with pytest.raises(ConfigurationError, match=r"role \"ghost\" does not exist"):
        connect(Target(url=both))
