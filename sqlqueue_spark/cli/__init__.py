"""The command ``sqlqueue``: a command line for :mod:`sqlqueue_spark.administration`. It decides nothing.

Exit codes: 0 fine, 1 a finding or a refused request, 2 wrong usage.
"""

from sqlqueue_spark.cli.commands import main

__all__ = ["main"]
