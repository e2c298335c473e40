"""Spark's daemon of Python workers, for a job on one machine: the working folder is last on their path.

``python -m`` puts it first, where a file in it takes the place of another module. ``PYTHONSAFEPATH`` forbids
that, and the modules of a user's functions are to be found there.
"""

import os
import sys

from pyspark.daemon import manager

if __name__ == "__main__":
    sys.path.append(os.getcwd())  # noqa: PTH109 -- a path is a text here
    manager()
