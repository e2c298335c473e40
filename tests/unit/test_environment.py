"""``SQLQUEUE_PASSWORD``: taken for the database of ``SQLQUEUE_URL``, handed on to the workers,
and sent to no other server.
"""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

import sqlqueue_spark
from sqlqueue_spark import SqlQueueSink
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.options.environment import with_password
from sqlqueue_spark.pipeline.declared import jobs
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.spark.datasource import SqlQueueDataSource
from sqlqueue_spark.spark.readers import SCHEMA
from tests.support.asking_server import asking

URL = "postgresql://me@db.shop:5432/shop"
SECRET = "hunter2"
#: With a wrong password, and without one.
REFUSED = re.compile("refused the login of user 'me'|refused the login of user 'me', for whom no password")


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """A machine that keeps no other password."""
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "SQLQUEUE_SINK_URL", "SQLQUEUE_SINK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SQLQUEUE_URL", URL)
    monkeypatch.setenv("SQLQUEUE_PASSWORD", SECRET)


@pytest.fixture
def given_for(monkeypatch):
    """A server for whose database the environment has the password, and another one."""
    with asking() as own, asking() as other:
        monkeypatch.setenv("SQLQUEUE_URL", own.url())
        yield own, other


def test_the_password_of_the_environment_is_taken():
    assert with_password({"url": URL, "queue": "orders"}) == {
        "url": URL,
        "queue": "orders",
        "password": SECRET,
    }
    assert with_password({"URL": URL, "user": "spark"}) == {"URL": URL, "user": "spark", "password": SECRET}


@pytest.mark.parametrize(
    "login", [{"PASSWORD": "mine"}, {"accessToken": "t"}, {"accesstokenprovider": "azure-identity"}]
)
def test_a_login_that_is_given_wins(login):
    assert with_password({"url": URL, **login}) == {"url": URL, **login}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@elsewhere:5432/shop",
        "postgresql://me@db.shop:5433/shop",
        "postgresql://other@db.shop:5432/shop",
        f"{URL}?hostaddr=10.0.0.1",
        f"{URL}?sslmode=disable",
        "mssql://me@db.shop:5432/shop",
        "",
    ],
)
def test_the_url_must_be_that_of_the_environment_letter_for_letter(url, caplog):
    """A user who may only write SQL can give any."""
    with caplog.at_level("INFO"):
        assert with_password({"url": url}) == {"url": url}
    assert caplog.messages == [
        (
            "password_not_taken: SQLQUEUE_PASSWORD is for the database of SQLQUEUE_URL, "
            "and the option url is another one"
        )
    ]


@pytest.mark.parametrize("missing", ["SQLQUEUE_URL", "SQLQUEUE_PASSWORD"])
def test_a_password_without_a_url_is_for_no_database(monkeypatch, missing):
    monkeypatch.delenv(missing)
    assert with_password({"url": URL}) == {"url": URL}
    monkeypatch.setenv(missing, "")
    assert with_password({"url": URL}) == {"url": URL}


def test_a_program_that_reads_the_variable_of_the_url_names_it(monkeypatch, tmp_path):
    monkeypatch.delenv("SQLQUEUE_URL")
    sentence = (
        "The option url is required; set it, or SQLQUEUE_URL in the environment, to: `postgresql://…`; "
        "for SQL Server `mssql://…` or an ODBC connection string."
    )
    with pytest.raises(ConfigurationError) as caught:
        sqlqueue_spark.send("orders", "x")
    assert str(caught.value) == sentence
    job = CliRunner().invoke(jobs.drain, ["orders", "--into", str(tmp_path)])
    assert (job.exit_code, job.stderr) == (2, f"Error: {sentence}\n")


def test_without_a_url_the_error_is_that_of_the_url():
    with pytest.raises(ConfigurationError, match="The option url is required"):
        SqlQueueSink(queue="orders", outbox="none")


def peek(url):
    return SqlQueueDataSource({"url": url, "queue": "orders"}).reader(SCHEMA)._options


def receive(url):
    return SqlQueueDataSource({"url": url, "queue": "orders"}).streamReader(SCHEMA)._options


def send(url):
    return SqlQueueSink(url=url, queue="orders", outbox="none").places.home


@pytest.mark.parametrize("way", [peek, receive, send])
def test_it_goes_to_its_own_server_alone(given_for, way):
    own, other = given_for
    for server in (own, other):
        with pytest.raises(ConfigurationError, match=REFUSED):
            connect(Target.of(way(server.url())))
    assert (SECRET.encode() in own.heard, SECRET.encode() in other.heard) == (True, False)
    assert b"\0me\0" in other.heard


@pytest.mark.parametrize("write", ["writer", "streamWriter"])
def test_a_format_that_writes_sends_it_to_its_own_server_alone(given_for, write):
    schema = StructType([StructField("Body", BinaryType())])
    own, other = given_for
    for server in (own, other):
        source = SqlQueueDataSource({"url": server.url(), "queue": "orders", "outbox": "none"})
        with pytest.raises(ConfigurationError, match=REFUSED):
            getattr(source, write)(schema, False)
    assert (SECRET.encode() in own.heard, SECRET.encode() in other.heard) == (True, False)


def test_another_database_of_a_destination_does_not_get_it(given_for):
    """Its url holds a login of its own."""
    own, other = given_for
    options = {
        "endpoint.Billing.url": other.url(),
        "endpoint.Shipping*.url": f"{own.url()}&application_name=x",
    }
    named = {"url": own.url(), "queue": "orders", "outbox": "none", **options}
    with pytest.raises(ConfigurationError, match=REFUSED):
        SqlQueueSink(options=named)  # it looks at its queue
    sink = SinkOptions.parse(with_password(named))
    targets = Places(sink, sink).everywhere()
    assert [target.password for target in targets] == [SECRET, None, None]
    for target in targets:
        with pytest.raises(ConfigurationError, match=REFUSED):
            connect(target)
    assert own.heard.count(SECRET.encode()) == 2
    assert SECRET.encode() not in other.heard


def test_it_is_handed_on_to_workers_that_have_another_environment():
    """As a password that was given as an option; and it shows nowhere."""
    reader = SqlQueueDataSource({"url": URL, "queue": "orders"}).reader(SCHEMA)
    stream = SqlQueueDataSource({"url": URL, "queue": "orders"}).streamReader(SCHEMA)
    sink = SqlQueueSink(url=URL, queue="orders", outbox="none")
    assert [SECRET in repr(each) for each in (stream.__reduce__(), sink.__getstate__())] == [False, False]
    program = """
import pickle, sys
reader, stream, sink = pickle.load(sys.stdin.buffer)
print(reader._options.password, stream._options.password, sink.places.home.password)
"""
    elsewhere = {
        name: value for name, value in os.environ.items() if name not in ("SQLQUEUE_URL", "SQLQUEUE_PASSWORD")
    }
    said = subprocess.run(
        [sys.executable, "-c", program],
        input=cloudpickle.dumps((reader, stream, sink)),
        env=elsewhere,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert said.split() == [SECRET.encode()] * 3


def test_the_sink_of_a_job_has_what_the_job_has_read():
    """A sink with a login of its own on the same server is given no password of another login."""
    options = SinkOptions.parse({"url": URL, "user": "other", "queue": "orders", "outbox": "none"})
    assert SqlQueueSink.of(options).places.home == options


def test_a_command_sends_it_to_no_other_server(given_for):
    own, other = given_for
    for server in (own, other):
        for url in (server.url(), server.url().replace("/shop", "/billing")):
            result = CliRunner().invoke(main, ["length", "orders", "--url", url])
            assert (result.exit_code, REFUSED.search(result.stderr) is None) == (1, False)
    assert own.heard.count(SECRET.encode()) == 2
    assert SECRET.encode() not in other.heard


def test_a_command_takes_it_for_the_url_that_is_typed_where_the_environment_has_none(given_for, monkeypatch):
    _, other = given_for
    monkeypatch.delenv("SQLQUEUE_URL")
    assert CliRunner().invoke(main, ["length", "orders", "--url", other.url()]).exit_code == 1
    assert SECRET.encode() in other.heard


@pytest.mark.parametrize(
    "typed, passwords",
    [
        ((), (SECRET, "sink")),
        (("--url", "postgresql://me@db.shop/billing"), (SECRET, "sink")),
        (("--url", "postgresql://me@elsewhere/shop"), (None, "sink")),
        (("--sink-url", "postgresql://me@elsewhere/shop"), (SECRET, None)),
        (("--sink-url", URL), (SECRET, None)),
    ],
)
def test_a_job_sends_each_of_its_two_passwords_to_its_own_server_alone(monkeypatch, typed, passwords):
    monkeypatch.setenv("SQLQUEUE_SINK_URL", "postgresql://me@other.shop/billing")
    monkeypatch.setenv("SQLQUEUE_SINK_PASSWORD", "sink")
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(jobs.forward.make_context("forward", [*typed]))
    assert (context.params["password"], context.params["sink_password"]) == passwords
