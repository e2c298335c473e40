"""What the pages name is there: links, options, commands, files, make targets, extras."""

import re
import runpy
import shlex
import tomllib

import click
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from tests.support.pages import DOCS, LIST, README, ROOT, TO_TYPE, page, pages

LINES = [line for each in TO_TYPE for line in each.shell_lines()]
#: Those that tests/streaming/test_pages_as_printed.py does not type.
COMMANDS = [line for each in TO_TYPE for line in each.sqlqueue_lines(not_run=True)]
INLINE = [said for each in TO_TYPE for said in each.inline()]


def leaves(command, name=()):
    """The commands that do something, by their names."""
    if not isinstance(command, click.Group):
        return {name}
    return set().union(*(leaves(each, (*name, word)) for word, each in command.commands.items()))


def called(line):
    """The command that a line calls, its name, and what is left for it."""
    command: click.Command = main
    name: tuple[str, ...] = ()
    arguments = line[1:]
    while isinstance(command, click.Group):
        word, *arguments = arguments
        command, name = command.commands[word], (*name, word)
    return command, name, arguments


def test_the_readme_is_short():
    assert len(README.text.splitlines()) < 150


def test_the_readme_builds_the_wheel_as_the_page_of_running_does():
    command = "pip wheel --no-deps --wheel-dir dist ."
    assert f"`{command}`" in README.text
    assert f"\n{command}\n" in page("docs/running.md").text


@pytest.mark.parametrize(
    "each", pages("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.md"), ids=lambda each: each.path
)
def test_every_relative_link_leads_somewhere(each):
    def leads(link):
        path, _, anchor = link.partition("#")
        return (ROOT / path).exists() and (not anchor or anchor in page(path).anchors())

    assert [link for link in each.links() if not leads(link)] == []


def test_every_page_stands_in_the_list_once():
    """And the README leads to the list."""
    listed = [link for link in LIST.links() if page(link) in DOCS]
    assert sorted(listed) == sorted(each.path for each in DOCS if each != LIST)
    assert LIST.path in README.links()
    assert "examples/README.md" in LIST.links()


def test_the_tables_of_options_are_those_of_the_code():
    """`make docs` writes them."""
    program = runpy.run_path(str(ROOT / "docs" / "options_page.py"))
    text = program["PAGE"].read_text(encoding="utf-8")
    assert program["rendered"](text) == text
    assert [name for name in program["TABLES"] if f"\n<!-- options {name} -->\n" not in text] == []


@pytest.mark.parametrize("which", [(), ("--sink",)], ids=["source", "sink"])
def test_the_command_prints_the_rows_of_the_tables(which):
    head, line, *rows = CliRunner().invoke(main, ["options", *which, "--markdown"]).stdout.splitlines()
    shown = page("docs/options.md").text.splitlines()
    assert len(rows) > 20
    assert [row for row in (head, line, *rows) if row not in shown] == []


@pytest.mark.parametrize("line", COMMANDS, ids=shlex.join)
def test_every_command_line_can_be_typed(line, monkeypatch, tmp_path):
    monkeypatch.setenv("SQLQUEUE_URL", "postgresql://nobody@127.0.0.1:1/shop")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.json").write_text("{}")
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    command, name, arguments = called(line)
    with (
        click.Context(main, info_name="sqlqueue") as group,
        command.make_context(name[-1], arguments, parent=group) as context,
    ):
        assert context.args == []


@pytest.mark.parametrize("line", [each for each in LINES if "jobs/" in " ".join(each[1:2])], ids=shlex.join)
def test_every_job_can_be_submitted_so(line):
    submit, program, *arguments = line
    assert submit == "spark-submit"
    [main] = [
        each for each in runpy.run_path(str(ROOT / program)).values() if isinstance(each, click.Command)
    ]
    with main.make_context(program, arguments) as context:
        assert context.args == []


def test_every_command_is_shown():
    """On the page of commands, or on that of the jobs, the demos and the server."""
    both = (page("docs/command-line.md"), page("docs/running.md"))
    assert {called(line)[1] for each in both for line in each.sqlqueue_lines()} == leaves(main)


def test_every_make_target_is_there():
    makefile = (ROOT / "Makefile").read_text()
    named = [line[1] for line in LINES if line[:1] == ["make"]]
    named += [
        found[1] for each in INLINE if (found := re.search(r"(?:^|\s)make ([a-z][a-z-]*)(?:\s|$)", each))
    ]
    assert {"demo", "demo-store-and-forward", "test", "test-live", "docs"} <= set(named)
    assert [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_every_file_is_there():
    folders = "jobs|conf|docs|benchmarks|notebooks|tests|sqlqueue_spark"
    words = [word for line in [*LINES, *map(str.split, INLINE)] for word in line]
    named = {word for word in words if re.fullmatch(rf"({folders})/[\w./-]+", word)}
    assert {
        "jobs/drain_to_delta.py",
        "jobs/forward.py",
        "conf/forward.toml",
        "notebooks/01_drain_to_delta.py",
    } <= named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_extras_that_are_installed_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [each.text for each in TO_TYPE]
    found = [name for text in texts for name in re.findall(r"'(?:\.|[\w./-]+\.whl)\[([^\]]+)\]'", text)]
    named = {name.strip() for each in found for name in each.split(",")}
    assert {"postgresql", "sqlserver", "spark", "demo", "notebooks", "mssql"} <= named <= extras.keys()


@pytest.mark.parametrize("name", ["fault", "wish"])
def test_the_template_of_an_issue_asks_for_no_secret(name):
    """And the one of a fault for what finds it; each command and each page in it is there."""
    found = page(f".github/ISSUE_TEMPLATE/{name}.md")
    _, head, told = found.text.split("---\n", maxsplit=2)
    assert [line.split(": ")[0] for line in head.splitlines()] == ["name", "about"]
    assert re.search(r"Leave out passwords, urls with a login, .*headers and bodies of\s+messages", told)
    commands = [each.split() for each in found.inline() if each.startswith("sqlqueue ")]
    assert [called(line)[1] for line in commands if "--" not in line[1]] == {
        "fault": [("doctor",), ("inspect",)],
        "wish": [],
    }[name]
    named = re.findall(r"\b(?:docs/[\w./]+|[A-Z]+\.md)", told)
    assert named
    assert [each for each in named if not (ROOT / each).exists()] == []
