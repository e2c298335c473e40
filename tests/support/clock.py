"""A time of a test's own."""


class Clock:
    """A clock that only sleeping moves, and the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
