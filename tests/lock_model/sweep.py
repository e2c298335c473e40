"""Many threesomes at once: our stream with every two of those who may use the table beside it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from tests.lock_model.actors import (
    Claim,
    Reading,
    counter,
    peek,
    purge,
    receiver,
    sender,
    stream,
    worker,
)
from tests.lock_model.explorer import Report, explore
from tests.lock_model.state import Actor
from tests.lock_model.table import Shape


def sweep(shape: Shape, claim: Claim, reading: Reading, peeking: Reading) -> Report:
    """What all threesomes show on a table of two rows, with a third on its way.

    Where there is Index_Expires, only those with a purge:
    who else comes to its keys has locked their row before.
    """
    union = Report(())
    for actors in _threesomes(shape, claim, reading, peeking):
        if shape.index_expires and all(actor.name != "purge" for actor in actors):
            continue
        report = explore(*actors)
        union.states += report.states
        for finding, story in report.findings.items():
            union.findings.setdefault(finding, story)
    return union


def _threesomes(
    shape: Shape, claim: Claim, reading: Reading, peeking: Reading
) -> Iterator[tuple[Actor, ...]]:
    """The stream and two others; the stream, its worker and one other,
    which may also be the counter.
    """
    others = [receiver(shape), peek(shape, peeking), sender(shape, busy=True)]
    if shape.heap:
        others.append(receiver(shape, scans=True))
    if shape.index_expires:
        others.append(purge(shape))
    for two in combinations(others, 2):
        yield (stream(shape, claim), *two)
    for one in (*others, counter(shape)):
        yield (stream(shape, replace(claim, workers=True)), worker(shape, reading), one)
