"""What to say to a misspelled name: the nearest name that is known."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The question whether the nearest known name is meant; ``otherwise`` where no known name is near."""
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[near[0]]}?" if near else otherwise
