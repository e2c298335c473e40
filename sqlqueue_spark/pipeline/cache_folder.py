"""Where this package keeps what it can make anew: ``XDG_CACHE_HOME``, else ~/.cache. All of it may be deleted."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder; it need not be there.

    :raises RuntimeError: nobody knows where the user's home is.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return cache / "sqlqueue"
