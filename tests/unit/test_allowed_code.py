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
]


def refusal(act):
    with pytest.raises(ConfigurationError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("given,what,name", CODE)
def test_code_that_nobody_has_allowed_is_refused(monkeypatch, given, what, name):
    monkeypatch.setenv(VARIABLE, "something:else, /other.so")
    expected = (
        f"The {what} {name!r} is code, which whoever may write SQL could name, so it must be allowed first: by "
        f"sqlqueue_spark.register(spark, allowed=[{name!r}]), or for all sessions in the environment of Spark's driver "
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
    "url", ["postgresql://h/d", "mssql://h/d", "Driver=ODBC Driver 18 for SQL Server;Server=h"]
)
def test_what_names_no_file_needs_no_leave(url):
    check(SourceOptions.parse({"url": url, "queue": "orders"}), [])


def test_what_a_session_allows_goes_with_its_data_source():
    """Spark plans in another process."""
    made = cloudpickle.loads(cloudpickle.dumps(allowing(["vault:get"])))
    assert (made.name(), made.allowed, SqlQueueDataSource.allowed) == ("sqlqueue", ("vault:get",), ())
    made({"url": "postgresql://h/d", "queue": "orders", "accessTokenProvider": "vault:get"}).reader(SCHEMA)
