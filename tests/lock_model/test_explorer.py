"""The explorer sees what is wrong with programs that are wrong on purpose."""

from collections.abc import Callable

from tests.lock_model import statements
from tests.lock_model.actors import Claim, receiver, stream
from tests.lock_model.explorer import Finding, explore
from tests.lock_model.operations import End, Hear, LockTimeout, Part, Processed, Program, Take, Tell, Work
from tests.lock_model.state import Actor
from tests.lock_model.table import Shape

SHAPE = Shape(heap=False, index_expires=False)


def actor(name: str, part: Callable[[], Part], *, patience: int | None = None, priority: int = 0) -> Actor:
    def program() -> Program:
        yield from part()
        yield End("commit")
        return "done"

    return Actor(name=name, start=program, patience=patience, priority=priority)


def locking(*rows: int) -> Callable[[], Part]:
    def part() -> Part:
        for row in rows:
            yield Take(SHAPE.key(row), "X")

    return part


def test_opposite_orders_end_in_a_deadlock() -> None:
    report = explore(actor("up", locking(1, 2)), actor("down", locking(2, 1), priority=-5))
    finding = Finding("deadlock", ("up", "down"))
    assert report.of("deadlock", "circle", "stands still") == [finding]
    assert set(report.outcomes) == {("done", "done"), ("done", "Deadlocked")}
    assert str(report.findings[finding]) == (
        "|  | up | down |\n"
        "| --- | --- | --- |\n"
        "| 1 | X key 1 |  |\n"
        "| 2 |  | X key 2 |\n"
        "| 3 | waits for X key 2 |  |\n"
        "| 4 |  | waits for X key 1 |\n"
        "| now | waits for down (X key 2) | waits for up (X key 1) |"
    )


def test_the_same_order_only_makes_one_wait() -> None:
    report = explore(actor("first", locking(1, 2)), actor("second", locking(1, 2)))
    assert (report.findings, set(report.outcomes)) == ({}, {("done", "done")})


def test_a_circle_through_a_client_stands_still() -> None:
    def asks() -> Part:
        yield Take(SHAPE.key(1), "X")
        yield Hear("answer", "answers")

    def answers() -> Part:
        yield Take(SHAPE.key(1), "X")
        yield Tell("answer")

    report = explore(actor("asks", asks), actor("answers", answers))
    assert report.of("deadlock", "circle", "stands still") == [
        ("circle", ("asks", "answers"), ""),
        ("stands still", ("asks", "answers"), ""),
    ]


def test_a_lock_timeout_breaks_a_circle_if_its_victim_speaks() -> None:
    def asks() -> Part:
        yield Take(SHAPE.key(1), "X")
        yield Hear("answer", "answers")

    def answers() -> Part:
        try:
            yield Take(SHAPE.key(1), "X")
        except LockTimeout:
            yield Tell("answer", "no")
        else:
            yield Tell("answer", "yes")

    report = explore(actor("asks", asks), actor("answers", answers, patience=1))
    assert report.of("deadlock", "circle", "stands still") == [("circle", ("asks", "answers"), "")]
    assert set(report.outcomes) == {("done", "done")}


def test_the_shorter_patience_ends_first() -> None:
    def busy() -> Part:
        yield Take(SHAPE.key(1), "X")
        yield Work("is busy")

    report = explore(
        actor("busy", busy), actor("short", locking(1), patience=1), actor("long", locking(1), patience=2)
    )
    assert ("done", "LockTimeout", "LockTimeout") in report.outcomes
    assert ("done", "LockTimeout", "done") in report.outcomes
    assert ("waits for a client", ("short", "busy"), "is busy") in report.findings


def test_a_row_that_goes_before_it_is_handled_is_lost() -> None:
    def hasty() -> Program:
        row = yield from statements.one_row(SHAPE, (1, 2))
        yield End("commit")
        yield Work("its handler works")
        yield Processed((row,))
        return "received"

    report = explore(Actor(name="hasty", start=hasty), receiver(SHAPE))
    assert [finding.kind for finding in report.of("lost")] == ["lost", "lost"]


def test_a_row_that_is_not_deleted_once_it_is_handled_is_left() -> None:
    def forgetful() -> Program:
        row = yield from statements.one_row(SHAPE, (1,))
        yield Processed((row,))
        yield End("rollback")
        return "received"

    report = explore(Actor(name="forgetful", start=forgetful))
    assert set(report.findings) == {Finding("left", ("forgetful",), "row 1")}


def test_a_row_that_two_have_handled_is_seen() -> None:
    """After a lost connection another consumer may take the row: at least once is what is promised."""
    report = explore(stream(SHAPE, Claim(loses_connection=True)), receiver(SHAPE))
    assert report.of("twice", "lost", "deadlock", "circle", "stands still") == [
        ("twice", ("stream", "receiver"), "")
    ]
