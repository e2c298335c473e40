"""Arrow as ``pa`` and ``pc``, imported when something of it is first used.

To import it takes a quarter of a second, which nobody should wait for who asks for help, or lets a shell complete a line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["pa", "pc"]


class _Late:
    """Stands for a module. What was asked for once is an attribute of its own, and costs no more than that of a module."""

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
