"""Which messages a table refuses, and what is no refusal: an error of the server, a lost transaction."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from sqlqueue_spark import errors
from sqlqueue_spark.errors import TryAgain
from sqlqueue_spark.tables import refused_messages
from sqlqueue_spark.tables.refused_messages import refused

HURRIED: Any = SimpleNamespace(is_hurried=True, attempt=contextlib.nullcontext)


def failing(error):
    def insert(messages):
        if 2 in messages:
            raise error

    return insert


@pytest.mark.parametrize("error", [errors.ConnectionLost("x"), TryAgain("x"), errors.Duplicate("x")])
def test_a_transaction_that_is_lost_is_no_refusal_however_long_it_took(monkeypatch, error):
    """Else its messages would go to the error queue, and what was written before them would be gone."""
    monkeypatch.setattr(refused_messages, "_LONG_SECONDS", 0.0)
    with pytest.raises(TryAgain):
        refused(HURRIED, failing(error), [1, 2, 3], own_ids=True)


@pytest.mark.parametrize("error", [errors.LockTimeout("x"), errors.StatementTimeout("x")])
def test_only_a_table_that_a_message_names_fails_for_taking_long(monkeypatch, error):
    monkeypatch.setattr(refused_messages, "_LONG_SECONDS", 0.0)
    assert refused(HURRIED, failing(error), [1, 2, 3]) == [([1, 2, 3], error)]
    with pytest.raises(type(error)):
        refused(HURRIED, failing(error), [1, 2, 3], chosen=True)


def test_many_short_attempts_end_together(monkeypatch):
    error = errors.SqlQueueError("x")
    assert refused(HURRIED, failing(error), [1, 2, 3]) == [([2], error)]
    monkeypatch.setattr(refused_messages, "_LONG_TOGETHER", 0.0)
    assert refused(HURRIED, failing(error), [1, 2, 3]) == [([1, 2, 3], error)]
    assert refused(HURRIED, failing(error), [1, 2, 3], chosen=True) == [([2], error)]
