"""What docs/running.md says can be typed, and the files that it leads to are there."""

import itertools
import re
import shlex
import tomllib
from pathlib import Path

import click

from sqlqueue_spark.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```shell\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
LINES = [
    shlex.split(line, comments=True) for block in BLOCKS for line in block.replace("\\\n", "").splitlines()
]
#: Without the variables in front.
COMMANDS = [line[line.index("sqlqueue") :] for line in LINES if "sqlqueue" in line[:2]]


def test_every_job_and_every_command_of_the_server_is_shown():
    shown = {" ".join(line[1:3]) if line[1] == "server" else line[1] for line in COMMANDS}
    server = main.commands["server"]
    assert isinstance(server, click.Group)
    assert {"drain", "forward", "handle", "archive", "store-and-forward", "demo"} <= shown
    assert {f"server {name}" for name in server.commands} - shown == set()
    assert 'export SQLQUEUE_URL="$(sqlqueue server url)"' in PAGE


def test_the_extras_and_files_that_it_names_are_there():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name for each in re.findall(r"(?:'\.|\.whl|or )\[([\w,]+)\]", PAGE) for name in each.split(",")}
    assert {"postgresql", "sqlserver", "spark", "demo"} <= named <= extras.keys()
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", PAGE)
    assert [each for each in links if not (ROOT / "docs" / each).is_file()] == []


def test_what_it_starts_spark_submit_with_is_what_conf_says():
    submit = next(line for line in LINES if line[0] == "spark-submit")
    said = dict(each.split("=", 1) for flag, each in itertools.pairwise(submit) if flag == "--conf")
    said["spark.jars.packages"] = submit[submit.index("--packages") + 1]
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    conf = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    assert said == {name: conf[name] for name in said}
    assert said.keys() >= {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}
