"""The command ``sqlqueue``: translates between people and :mod:`sqlqueue_spark.administration`; decides nothing.

Exit codes: 0 fine, 1 a finding or a refused request, 2 wrong usage.
"""

from sqlqueue_spark.cli.commands import main

__all__ = ["main"]
