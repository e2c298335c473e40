"""Each rule is needed: without it a configuration breaks a promise."""

import pytest

from tests.send_model.configurations import CONFIGURATIONS
from tests.send_model.explorer import STANDS_STILL, explore
from tests.send_model.rules import NAMES, Rules, without

ONE_ROW_WAITS = "its time is over when its database is up again"
PUT_BACK = "home forgets that a row was put back, and sent"
AT_HOME = "within home: destination created or dropped"
#: Rules, the configuration that notices that they are not there, and what it finds.
NOTICED = [
    ("origin_key", "poison", "in error twice"),
    ("id_key", "a function: two rows with one id, one answer", "handled twice"),
    ("known_id_acknowledges", "a function: two rows with one id, one answer", "not acknowledged"),
    ("one_transaction", "central error queue", "not acknowledged"),
    ("results_write_origin", "two rows with one id within home", "acknowledged too often"),
    ("count_outcomes", "home forgets: within home", "lost"),
    ("settling_asks_again", "atomic: two rows with one id", "delivered twice"),
    ("stored_owes_nothing", "a function: its message refused, put back", "audited too often"),
    ("send_key", ONE_ROW_WAITS, "delivered twice"),
    ("key_names_place", "two rows with one id to two places at home", "lost"),
    ("ask_home", PUT_BACK, "delivered and in error"),
    ("ask_before_failed", "an event for both databases", "delivered and in error"),
    ("store_answers", "a function: its message refused, put back", "delivered twice"),
    ("error_key", "a plain message, another database", "in error twice"),
    ("origin_header", "home forgets: a function fails or not, another database", "in error twice"),
    ("count_moves", "waits too long", "lost"),
    ("header_names_row", "a stranger copies the header of a moved row", "no outcome"),
    ("header_names_row header_ends", "a function: to its own queue with all headers", "lost"),
    ("ids_without_moves", "home forgets: a function fails first, another database", "delivered twice"),
    ("failed_by_origin", "central error queue", "failed, and not in error"),
    ("overdue_only_while_down", ONE_ROW_WAITS, "delivered and in error"),
    ("results_wait", "central error queue, down for too long", "no outcome"),
    ("missing_ack_is_dropped", "the acknowledgement queue is missing", STANDS_STILL),
    ("recovery_asks_outbox", "home forgets: within home", "lost"),
    ("same_urls", "home forgets, then urls change", "delivered twice"),
    ("urls_wait_for_given_back", "urls change", "delivered twice"),
    ("cleanup_waits", "outboxes cleaned", "delivered twice"),
    ("cleanup_waits_for_given_back", "outboxes cleaned", "delivered twice"),
]


@pytest.mark.parametrize("rules, name, finding", NOTICED, ids=[each[0] for each in NOTICED])
def test_a_rule_that_is_taken_out_is_missed(rules: str, name: str, finding: str) -> None:
    assert finding in explore(CONFIGURATIONS[name], without(*rules.split()), until=finding).wrong


def test_a_marked_message_is_asked_for_again() -> None:
    """Shown beside the lock that is not taken: without the lock, that configuration breaks in any case."""
    found = explore(CONFIGURATIONS[AT_HOME], Rules(failed_alone=True, ask_marked=False))
    assert list(found.inherent) == ["delivered and in error"]


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    "name", [each for each in CONFIGURATIONS if "put back" in each or "own queue" in each]
)
def test_error_rows_and_messages_of_ours_need_one_of_two_guards(name: str) -> None:
    """They lose the header of a move, and it counts only in the row that it names."""
    found = explore(CONFIGURATIONS[name], without("header_ends"))
    assert found.wrong == {}, found.story()


def test_each_rule_is_taken_out() -> None:
    assert {rule for rules, _, _ in NOTICED for rule in rules.split()} | {"ask_marked"} == set(NAMES)
