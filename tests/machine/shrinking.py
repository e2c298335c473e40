"""Makes the story of a broken promise as short as it can be told."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from tests.machine.query import Broken, Options, Setup, Way
from tests.machine.rules import Nothing, Send, Step, Trigger
from tests.machine.scenario import Scenario, run
from tests.machine.world import World

#: At most this number of simpler scenarios is played.
_MOST = 400


def shortened(world: World, scenario: Scenario, story: str) -> tuple[Scenario, str]:
    """A shorter scenario that still breaks a promise, and its story; as far as was tried,
    nothing more can be left out.
    """
    left = _MOST
    scenario = replace(scenario, steps=tuple(each for each in scenario.steps if each != Nothing()))
    going_on = True
    while going_on:
        going_on = False
        for simpler in _simpler(scenario):
            left -= 1
            if left < 0:
                return scenario, story
            try:
                run(world, simpler)
            except Broken as error:
                scenario, story, going_on = simpler, str(error), True
                break
    return scenario, story


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    steps = scenario.steps
    for size in (4, 2, 1):
        for at in reversed(range(len(steps) - size + 1)):
            yield replace(scenario, steps=steps[:at] + steps[at + size :])
    for at, step in enumerate(steps):
        for each in _simpler_steps(step):
            yield replace(scenario, steps=(*steps[:at], each, *steps[at + 1 :]))
    setup = scenario.setup
    # What a query is stays: a sink elsewhere without a function, say, is nothing that the machine can play.
    names = ["stores", "forwards", "handles", "elsewhere"]
    names += ["sources", "joined", "pattern"] if setup.pattern else []
    kind = {name: getattr(setup, name) for name in names}
    for each in (*_nearer(setup, Setup(errors=setup.handles, **kind)), *_simpler_options(setup)):
        yield replace(scenario, setup=each)


def _simpler_options(setup: Setup) -> Iterator[Setup]:
    usual = Options(mode=setup.options.mode, ahead=False)
    for options in _nearer(setup.options, usual):
        yield replace(setup, options=options)


def _simpler_steps(step: Step) -> Iterator[Step]:
    if isinstance(step, Send):
        yield from _nearer(step, Send())
    if isinstance(step, Trigger) and step != Trigger():
        yield Trigger()
        for way in _nearer(step.way, Way()):
            yield Trigger(way)


def _nearer(value: Any, usual: Any) -> Iterator[Any]:
    """Copies of the value; in each, one field that differs is as it usually is."""
    for field in fields(value):
        if field.name != "options" and getattr(value, field.name) != getattr(usual, field.name):
            yield replace(value, **{field.name: getattr(usual, field.name)})
