"""A sink that needs no Spark: each batch takes a fixed time and a time a row, with noise and pauses."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from sqlqueue_spark.receive.claiming.batch_size import BatchSize

TARGET, LONGEST, MOST = 2.0, 20.0, 1_000_000


@dataclass
class SimulatedSink:
    """A sink, and the size of the batches into it.

    :param fixed: seconds of a batch whatever is in it.
    :param each: seconds a row.
    """

    fixed: float
    each: float
    seed: int
    first: int = 100_000
    #: How much the time of a batch differs from what is expected: the deviation of its logarithm.
    noise: float = 0.2
    #: How many batches have a pause of two to four seconds.
    pauses: float = 0.05
    batches: list[int] = field(default_factory=list)
    #: How long they are expected to last: without noise, pauses and the cold start.
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 -- a simulation that can be repeated
        self.size = BatchSize(self.first, TARGET, LONGEST, MOST)

    def run(self, batches: int) -> SimulatedSink:
        """Run batches from a backlog that does not end."""
        for _ in range(batches):
            self._batch(self.size.rows)
        return self

    def pause(self, seconds: float) -> SimulatedSink:
        """Run one batch with a pause of this length in it."""
        self._batch(self.size.rows, seconds)
        return self

    def drain(self, rows: int) -> float:
        """Drain a backlog, and return how long that is expected to take from a start of seven seconds."""
        while rows > 0:
            rows -= self._batch(min(rows, self.size.rows))
        return 7.0 + sum(self.seconds)

    @property
    def best(self) -> float:
        """The most rows a second that batches of one size reach which last at most 20 s."""
        rows = min(MOST, (LONGEST - self.fixed) / self.each)
        return rows / (self.fixed + rows * self.each)

    def _batch(self, rows: int, pause: float = 0.0) -> int:
        cold = not self.batches
        expected = self.fixed + rows * self.each
        seconds = expected * self._random.lognormvariate(0, self.noise)
        seconds += self._random.uniform(2, 4) if self._random.random() < self.pauses else 0
        seconds += pause + (self._random.uniform(4, 10) if cold else 0)
        self.size.begins(rows)
        self.size.done(seconds, cold=cold)
        self.batches.append(rows)
        self.seconds.append(expected)
        return rows
