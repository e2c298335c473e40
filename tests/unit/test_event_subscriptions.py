"""Which subscriptions of an endpoint are a queue's, where the server decides which names are the same."""

from contextlib import nullcontext

import pytest

from sqlqueue_spark.administration import event_subscriptions
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables.subscriptions import Subscription, SubscriptionTable
from tests.support.answers import databases


@pytest.mark.parametrize("spelled,ended", [("Shop", ["Shop.Placed"]), ("SHOP", [])])
def test_a_queue_is_known_in_any_spelling_of_its_database(monkeypatch, spelled, ended):
    connection = databases("Shop", {"Shop": "Shop", "SHOP": spelled})
    connection.transaction = nullcontext
    removed: list[str] = []
    monkeypatch.setattr(event_subscriptions, "connect", lambda _: nullcontext(connection))
    monkeypatch.setattr(SubscriptionTable, "check", lambda _: None)
    monkeypatch.setattr(
        SubscriptionTable, "all", lambda _: [Subscription("orders", "Shop.Placed", "orders@[dbo]@[SHOP]")]
    )
    monkeypatch.setattr(SubscriptionTable, "remove", lambda _, __, topics: removed.extend(topics))
    options = ConnectionOptions.parse({"url": "Server=here;Database=Shop"})
    changed = event_subscriptions.unsubscribe(options, "orders", ["Shop.Placed"])
    assert (removed, [each.changed for each in changed]) == (ended, [bool(ended)])
