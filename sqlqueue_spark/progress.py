"""How long work tells how far it has come: each portion that is done is told with its number of rows."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int], object]


def untold(more: int) -> None:
    """Nobody asked to be told."""
