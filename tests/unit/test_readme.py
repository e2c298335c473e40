"""What the README names is there: options, commands, files, make targets; and the commands of docs/operations.md."""

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def command_lines(page):
    """The lines of a page's shell blocks, from which shell's own comments are taken off."""
    blocks = re.findall(r"^```shell\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


LINES = command_lines(README)
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE))
COMMANDS = [line for line in LINES if line[:1] == ["sqlqueue"]]


@pytest.mark.parametrize("which", [(), ("--sink",)], ids=["source", "sink"])
def test_the_command_prints_the_option_tables(which):
    table = CliRunner().invoke(main, ["options", *which, "--markdown"]).stdout
    assert f"\n\n{table}\n" in README


@pytest.mark.parametrize("line", [*COMMANDS, *command_lines(OPERATIONS)], ids=shlex.join)
def test_every_command_line_can_be_typed(line, monkeypatch):
    monkeypatch.setenv("SQLQUEUE_URL", "postgresql://nobody@127.0.0.1:1/shop")
    command: click.Command = main
    name, arguments = "sqlqueue", line[1:]
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    with click.Context(main, info_name="sqlqueue") as group, command.make_context(name, arguments, parent=group) as context:  # fmt: skip
        assert context.args == []


def test_every_command_is_shown_but_those_of_make():
    assert {line[1] for line in COMMANDS} == main.commands.keys() - {"demo"}


def test_every_make_target_is_there():
    makefile = (ROOT / "Makefile").read_text()
    named = [line[1] for line in LINES if line[:1] == ["make"]]
    named += [each.split()[-1] for each in INLINE if re.search(r"(^|\s)make \S+$", each)]
    assert {"demo", "test", "clean"} <= set(named)
    assert [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_every_file_is_there():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    words = [word for line in [*LINES, *map(str.split, INLINE)] for word in line]
    named = [word for word in words if re.fullmatch(r"(jobs|conf|docs|benchmarks|notebooks|tests|sqlqueue_spark)/[\w./-]+", word)]  # fmt: skip
    assert {
        "jobs/drain_to_delta.py",
        "jobs/forward.py",
        "conf/forward.toml",
        "notebooks/01_drain_to_delta.py",
    } <= set(named)
    assert [name for name in [*links, *named] if not (ROOT / name).exists()] == []


def test_the_extras_it_installs_exist():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name.strip() for each in re.findall(r"'\.\[([^\]]+)\]'", README) for name in each.split(",")}
    assert named == {"postgresql", "sqlserver", "spark", "demo", "notebooks"}
    assert named <= extras.keys()


def test_the_demo_says_what_was_measured():
    from sqlqueue_spark.demo import drain

    measured = (ROOT / "benchmarks" / "README.md").read_text()
    table = measured[measured.index("## Into Delta") : measured.index("## Latency")]
    figures = re.findall(r"\d+,\d{3}", drain._BESIDE)
    assert len(figures) == 3
    assert [each for each in figures if f"| {each} |" not in table] == []
