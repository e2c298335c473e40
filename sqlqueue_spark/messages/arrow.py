"""Arrow as ``pa`` and ``pc``, imported when something of it is first used.

Its import takes a quarter of a second. Help and the completion of a shell's line do without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["pa", "pc"]


class _Late:
    """Stands for a module. What was asked for once is an attribute here, as quick as one of a module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = _Late("pyarrow"), _Late("pyarrow.compute")
