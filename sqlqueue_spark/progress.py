"""How work that takes long tells how far it has come: it reports the number of rows of each portion that is done."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int], object]


def untold(more: int) -> None:
    """Takes a report and does nothing: nobody asked to be told."""
