"""A row that cannot be sent as it is, told apart by its position among the rows that it stands with."""

from __future__ import annotations

from sqlqueue_spark.errors import ConfigurationError


class Unsendable(ConfigurationError):
    """What is wrong with a row, and the remedy. Whoever has the frame's columns adds which row it is."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(text)
        self.position = position
