"""A url with a password is known by its looks, wherever it stands, and is not repeated."""

import pytest

from sqlqueue_spark.engines.engine_of_url import dialect_of
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Address
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.plain_text import holds_password, is_url

SECRET = "hunter2"
WITH = [
    f"postgresql://me:{SECRET}@host/shop",
    f"postgres://me:{SECRET}/@x@host/shop",
    f" POSTGRESQL://host/shop?sslmode=require&password={SECRET}",
    f"mssql://me:{SECRET}@host:1433/shop?encrypt=yes",
    f"Server=host;UID=me;PWD={SECRET}",
    f"Driver={{ODBC Driver 18 for SQL Server}};Password = {SECRET};Server=host",
    f"jdbc:sqlserver://host;user=me;password={SECRET}",
    f"mysql+pymysql://me:{SECRET}@host/shop",
    f"postgresql://me@host/shop?passwor%64={SECRET}",
    f"postgresql://me@host/shop?scram_client_key={SECRET}",
    f"postgresql://me@host/shop?oauth_client_secret={SECRET}",
    f"Server=host;ClientKeyPassword={SECRET}",
    f"Server=host;KeystoreSecret={SECRET}",
    f"Host=host;Database=shop;Username=me;Password={SECRET}",
    f"Data Source=host;Initial Catalog=shop;User Id=me;Password={SECRET}",
]
WITHOUT = [
    "postgresql://me@host:5432/shop",
    "postgresql:///shop?host=/tmp",
    "mssql://host/shop?encrypt=yes",
    "Server=host;Database=shop;Trusted_Connection=yes",
    "jdbc:sqlserver://host",
    "postgresql://me@host/shop?sslkey=/home/me/key.pem&passfile=/home/me/.pgpass",
]
#: What people bring from elsewhere, and what they are told.
ELSEWHERE = {
    f"jdbc:postgresql://host/shop?user=me&password={SECRET}": (
        "The option url has the form of JDBC; write postgresql://user@host:port/database or mssql://user@host:port/database."
    ),
    f"Host=host;Database=shop;Username=me;Password={SECRET}": (
        "The option url has the form of Npgsql or libpq; write postgresql://user@host:port/database."
    ),
    f"Data Source=host;Initial Catalog=shop;User Id=me;Password={SECRET}": (
        "The option url has the form of a .NET driver; write it for ODBC (Server=host;Database=name, "
        "and UID=name or Trusted_Connection=yes), or as mssql://user@host:port/database."
    ),
}
NEITHER = [
    "orders",
    "orders@[sales]@[shop]",
    "orders@machine",
    "a:b@c",
    '"s"."t"',
    "it's; DROP",
    "x'$(y)",
    "pass=word",
]


@pytest.mark.parametrize(
    "text,url,password",
    [
        *((t, True, True) for t in WITH),
        *((t, True, False) for t in WITHOUT),
        *((t, False, False) for t in NEITHER),
    ],
)
def test_a_url_and_its_password_are_known(text, url, password):
    assert (is_url(text), holds_password(text)) == (url, password)


@pytest.mark.parametrize("url", WITH)
def test_a_url_as_an_address_is_not_repeated(url):
    """Nor is it where it stands in a message's column or header."""
    with pytest.raises(
        ConfigurationError, match=r"^A url with a password stands where a queue's address"
    ) as error:
        Address.parse(url)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("url", WITH)
@pytest.mark.parametrize(
    "options,name",
    [
        (SourceOptions, "queue"),
        (SourceOptions, "stream"),
        (SinkOptions, "queue"),
        (SinkOptions, "endpoint"),
        (SinkOptions, "outbox"),
        (ConnectionOptions, "defaultSchema"),
        (ConnectionOptions, "queue.orders.schema"),
        (ConnectionOptions, "lockTimeout"),
    ],
)
def test_a_url_as_another_option_is_not_repeated(options, name, url):
    with pytest.raises(ConfigurationError) as error:
        options.parse({"url": "postgresql://x", name: url})
    assert str(error.value) == (
        f"The option {name} is shown in logs and plans, and a url with a password stands there; "
        "give it as the option url."
    )


@pytest.mark.parametrize("url", WITHOUT)
def test_a_url_is_no_queue(url):
    for options in (SourceOptions, SinkOptions):
        with pytest.raises(
            ConfigurationError, match=r"must be the address of a queue, and a url is given as the option url"
        ):
            options.parse(
                {"url": "postgresql://x", "queue": url, "outbox": "none"}
                if options is SinkOptions
                else {"url": "postgresql://x", "queue": url}
            )


def test_another_databases_url_may_hold_its_login():
    url = f"postgresql://me:{SECRET}@host/shop"
    parsed = SinkOptions.parse({"url": url, "endpoint.Billing.url": url, "outbox": "none"})
    assert (parsed.url, parsed.endpoint_urls) == (url, {"billing": url})
    assert SECRET not in repr(parsed)


@pytest.mark.parametrize("url", ELSEWHERE)
def test_who_brings_a_url_from_elsewhere_is_told_what_to_write(url):
    with pytest.raises(ConfigurationError) as caught:
        dialect_of(url)
    assert str(caught.value) == ELSEWHERE[url]


@pytest.mark.parametrize(
    "url",
    [SECRET, f"mysql://me:{SECRET}@host", f"me:{SECRET}", f"me@{SECRET}", f"key={SECRET}", f"a {SECRET}"],
)
def test_what_is_no_url_is_not_repeated(url):
    """It may be a password or a token in the wrong option."""
    with pytest.raises(ConfigurationError, match=r"^The option url ") as caught:
        dialect_of(url)
    assert SECRET not in str(caught.value)
