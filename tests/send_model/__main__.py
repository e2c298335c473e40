"""``python -m tests.send_model [NAME] [RULE…]``: what exploring finds, also without rules."""

import sys
import time

from tests.send_model.configurations import CONFIGURATIONS
from tests.send_model.explorer import explore
from tests.send_model.rules import without


def main(name: str = "", *rules: str) -> None:
    for each, configuration in CONFIGURATIONS.items():
        if not each.startswith(name):
            continue
        began = time.monotonic()
        found = explore(configuration, without(*rules))
        seconds = time.monotonic() - began
        wrong, inherent = ", ".join(sorted(found.wrong)) or "holds", ", ".join(sorted(found.inherent))
        text = f"{wrong}; inherent: {inherent}" if inherent else wrong
        sys.stdout.write(f"{each:60} {found.worlds:7} worlds {seconds:5.1f} s  {text}\n")
        if name:
            sys.stdout.write(f"{found.story()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
