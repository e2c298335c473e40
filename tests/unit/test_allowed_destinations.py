"""Which tables an address out of a message may lead to, where the server decides which names are the same."""

from dataclasses import replace

import pytest

from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.tables.allowed_destinations import AllowedDestinations
from tests.support.answers import TABLE, databases

SHOP = replace(TABLE, table=replace(TABLE.table, catalog="Shop"), database="Shop", foreign="Shop")


@pytest.mark.parametrize(
    "spelled,allowed", [({"SHOP": "Shop"}, True), ({"SHOP": "SHOP"}, False), ({"SHOP": None}, False)]
)
def test_the_server_decides_whether_two_names_are_one_database(spelled, allowed):
    """By a collation that tells capitals apart there may be a database of either name."""
    options = SourceOptions.parse(
        {
            "url": "Server=here;Database=Home",
            "queue": "orders",
            "allowedDestinations": "orders@[dbo]@[SHOP]",
        }
    )
    connection = databases("Home", {"Shop": "Shop", **spelled})
    with AllowedDestinations(options).entered(connection, [SHOP]) as barred:
        assert set(barred) == (set() if allowed else {SHOP.address})
