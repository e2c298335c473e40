"""Runs one scenario (a query, and the steps of its story) against the real core and the real server."""

from dataclasses import dataclass

from sqlqueue_spark.errors import SqlQueueError
from tests.machine.forwarding import ForwardingQuery
from tests.machine.forwarding_invariants import finish
from tests.machine.invariants import check, drain
from tests.machine.query import Broken, Query, Setup, protocol
from tests.machine.rules import Nothing, Step
from tests.machine.world import World


@dataclass(frozen=True)
class Scenario:
    setup: Setup
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = "".join(f"    {step!r},\n" for step in self.steps if not isinstance(step, Nothing))
        return f"Scenario(\n  {self.setup!r},\n  (\n{steps}  ),\n)"


def run(world: World, scenario: Scenario) -> Query:
    """Play the scenario's steps, let everybody else come to an end, drain the stream, and check the promises.

    :raises Broken: a promise is broken; the text is the story.
    """
    world.reset()
    world.tell(str(scenario.setup))
    query = (ForwardingQuery if scenario.setup.forwards else Query)(world, scenario.setup)
    try:
        for step in scenario.steps:
            said = step.happen(world, query)
            if said is not None:
                world.tell(said)
        world.heal()
        if isinstance(query, ForwardingQuery):
            finish(world, query)
        else:
            query.read_all()
            drain(world, query)
            while world.move_back():
                drain(world, query)
        if query.runs:
            query.stop()
        if not isinstance(query, ForwardingQuery):
            check(world, query)
    except Broken:
        raise
    except SqlQueueError as error:
        raise query.broken(f"an error where none may be: {type(error).__name__}: {error}") from error
    except Exception as error:
        raise query.broken(f"{type(error).__name__}: {error}") from error
    finally:
        query.vanish()
        world.heal()
    return query


__all__ = ["Scenario", "protocol", "run"]
