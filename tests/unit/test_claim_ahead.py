"""A claim that another thread makes: it is told that a caller waits for it, and is taken or given back."""

from types import SimpleNamespace

import pytest

from sqlqueue_spark.receive.claiming.claim_ahead import ClaimAhead
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    "end, released",
    [
        (lambda ahead: (ahead.ask(100), ahead.take()), 0),
        (lambda ahead: (ahead.ask(100), ahead.made()), 0),
        (lambda ahead: ahead.give_up(), 1),
        (lambda ahead: ahead.give_back("neighbours are seen"), 1),
    ],
    ids=["taken", "looked at", "given up", "given back"],
)
def test_a_claim_is_told_that_a_thread_waits_for_it(end, released):
    """It would not end before."""
    begun, given_back, ended = [], [], []

    def claim(enough):
        begun.append(enough(100))
        eventually(lambda: enough(100))
        ended.append(True)
        return SimpleNamespace(session=None, release=lambda: given_back.append(True))

    ahead = ClaimAhead(claim, "orders@[public]@[shop]")
    eventually(lambda: begun)
    end(ahead)
    eventually(lambda: ended and len(given_back) == released)
    assert begun == [False]
    ahead.give_up()  # which ends its timer
