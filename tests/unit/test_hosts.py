"""The hosts, ports and databases that a url leads to."""

import pytest

from sqlqueue_spark.engines.hosts import hosts, location
from sqlqueue_spark.errors import ConfigurationError

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url,found",
    [
        (f"postgresql://me:{SECRET}@db.shop/sales", [("db.shop", 5432)]),
        ("postgres://db:6000", [("db", 6000)]),
        ("postgresql://a:1,b,[::1]:3/shop", [("a", 1), ("b", 5432), ("::1", 3)]),
        ("postgresql:///shop", []),
        ("postgresql://%2Frun%2Fpostgresql/shop", []),
        ("postgresql:///shop?host=/run/postgresql&port=6000", []),
        ("postgresql:///shop?host=a,b&port=6000", [("a", 6000), ("b", 6000)]),
        ("postgresql:///shop?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql://db/shop?hostaddr=10.0.0.1", [("10.0.0.1", 5432)]),
        ("postgresql://db:6000/shop?hostaddr=10.0.0.1", [("10.0.0.1", 6000)]),
        ("postgresql://db:6000/shop?port=7000", [("db", 7000)]),
        ("postgresql://db:6000/shop?port=7000&port=8000", [("db", 8000)]),
        ("postgresql://db:6000/shop?host=", []),
        ("postgresql://db:many/shop", []),
        ("mssql://me@db.shop/sales", [("db.shop", 1433)]),
        ("mssql://db:6000", [("db", 6000)]),
        (f"Server=db.shop;Database=sales;PWD={SECRET}", [("db.shop", 1433)]),
        ("Server=tcp:db.shop,6000;Database=sales", [("db.shop", 6000)]),
        ("Server=db;Port=6000", [("db", 6000)]),
        ("Server=db\\live,6000", [("db", 6000)]),
        ("Server=db\\live", []),
        ("Server=.;Database=shop", [("localhost", 1433)]),
        ("Server=(local)", [("localhost", 1433)]),
        ("Server=(localdb)\\MSSQLLocalDB", []),
        ("Server=np:\\\\db\\pipe\\sql\\query", []),
        ("Server=db,many", []),
        ("DSN=shop;UID=me", []),
    ],
)
def test_a_url_says_which_hosts_it_leads_to(url, found):
    """Or none, where something else decides that: a socket, a port by name, a DSN."""
    assert hosts(url) == found


@pytest.mark.parametrize(
    "url",
    [f"postgresql://me:1/{SECRET}@db/shop", f"Server=db;PWD=a}}{SECRET};Driver={{x", f"mysql://{SECRET}"],
)
def test_an_unreadable_url_is_not_repeated(url):
    with pytest.raises(ConfigurationError) as caught:
        hosts(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url,found",
    [
        (f"postgresql://me:{SECRET}@db.shop/sales?sslmode=require", "db.shop:5432/sales"),
        ("postgresql://a:1,b/sh%20op", "a:1,b:5432/sh op"),
        ("postgresql:///shop?host=/run/postgresql&port=6000", "/run/postgresql:6000/shop"),
        ("postgresql://db/shop?dbname=other", "db:5432/other"),
        (f"mssql://me:{SECRET}@db.shop:6000/sales?encrypt=yes", "db.shop,6000/sales"),
        (f"Server=db\\live;Database=sales;UID=me;PWD={SECRET}", "db\\live/sales"),
        ("DSN=shop;UID=me", "shop"),
    ],
)
def test_a_url_says_where_its_database_is(url, found):
    """Without its login, so that it may be noted."""
    assert location(url) == found
