"""The explorer sees what is wrong, and says by which steps it came."""

from dataclasses import replace

from tests.send_model.configuration import Configuration, Inherent, row
from tests.send_model.explorer import STANDS_STILL, explore
from tests.send_model.rules import without

AWAY = Configuration(rows=(row("pass", "billing"),), faults={"lost answer": 1})


def test_the_shortest_way_to_a_broken_promise_is_told() -> None:
    found = explore(AWAY, without("send_key"))
    assert found.wrong == {
        "delivered twice": (
            "X at billing: 2",
            [
                "a batch of a is claimed and logged",
                "a task begins at a (pass)",
                "the try at a looks, and sees nothing",
                "the try at a at other:billing: sent, the answer gets lost",
                "the try at a looks, and sees nothing",
                "the try at a at other:billing: sent",
                "a is done",
                "Spark logs the batch as done",
                "settling deletes a",
            ],
        )
    }


def test_a_fault_that_must_be_there_is_asked_for() -> None:
    """What is inherent after one fault is wrong without it."""
    inherent: Inherent = {"delivered twice": (frozenset({"lost answer"}),)}
    found = explore(replace(AWAY, inherent=inherent), without("send_key"))
    assert (found.wrong, list(found.inherent)) == ({}, ["delivered twice"])
    inherent = {"delivered twice": (frozenset({"crash"}),)}
    found = explore(replace(AWAY, inherent=inherent), without("send_key"))
    assert (list(found.wrong), found.inherent) == (["delivered twice"], {})


def test_a_world_that_no_step_settles_stands_still() -> None:
    missing = Configuration(
        rows=(row("handle"),), faults={}, answers=(None,), retries=0, urls={"error": "other"}, tables=()
    )
    found = explore(missing)
    assert list(found.wrong) == [STANDS_STILL]
    assert found.wrong[STANDS_STILL][1] == []
