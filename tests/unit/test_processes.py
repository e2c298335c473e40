"""``SQLQUEUE_LOG`` makes a process that receives or sends write its log,
and changes no logging that is configured already.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
if sys.argv[1:]:
    logging.basicConfig(format="mine: %(message)s")
from sqlqueue_spark.spark.processes import log_to_stderr
log_to_stderr()
log_to_stderr()
logging.getLogger("sqlqueue_spark.send.sent").info("sent batch=7 sent=90 repeated=10")
logging.getLogger("py4j").info("not ours")
"""


def said(level, *arguments):
    environment = {} if level is None else {"SQLQUEUE_LOG": level}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stderr


@pytest.mark.parametrize("level", ["INFO", "info", "debug"])
def test_a_level_is_followed_and_each_line_comes_once(level):
    (line,) = said(level).splitlines()
    assert line.endswith(" INFO sqlqueue_spark.send.sent: sent batch=7 sent=90 repeated=10")


@pytest.mark.parametrize("level", [None, "", "warning"])
def test_without_it_only_warnings_are_shown(level):
    assert said(level) == ""


def test_what_is_no_level_is_said_once():
    assert (
        said("loud")
        == "SQLQUEUE_LOG is 'loud', which is no level; set it to DEBUG, INFO, WARNING or ERROR.\n"
    )


def test_the_handlers_of_a_program_stay_its_own():
    assert said("info", "configured") == "mine: sent batch=7 sent=90 repeated=10\n"
