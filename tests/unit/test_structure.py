"""The size of the package and the plainness of its texts: numbers that may only fall.

``python -m tests.unit.test_structure`` prints the numbers of today. Where one has fallen,
lower its constant here.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from tests.support.lookalikes import Abilities

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sqlqueue_spark"

#: Folders of code and single modules that a newcomer sees first.
ROOMS = 26
#: Modules directly in sqlqueue_spark/.
MODULES_AT_THE_TOP = 8
#: Modules side by side in one folder, and the folders that have more.
MODULES_IN_A_FOLDER = 20
LARGE_FOLDERS: dict[str, int] = {}
#: Lines of Python and SQL in the package.
LINES = 37_265

#: Ruff (E501) looks at the lines of Python.
LONGEST_LINE = 110
#: Habit words, by where they stand; none elsewhere.
HABIT_WORDS: dict[str, int] = {
    "benchmarks": 1,  # the user of a url that leads nowhere
    "notebooks": 1,  # likewise
    "sqlqueue_spark/embedded": 1,  # a server of an earlier version has this line in its pg_hba.conf
    "tests/command_line": 3,  # names of headers and types
    "tests/conformance": 4,  # names of types, and a login
    "tests/harness": 1,  # what the proof of a soak says
    "tests/machine": 2,  # what the proof of a soak says
    "tests/streaming": 4,  # names of endpoints and their tables, and a login
    "tests/support": 5,  # the system's user
    "tests/unit": 8,  # the system's user, a login, and the pattern below
    "tests/verdict": 2,  # rules as docs/verdicts has them
}

#: "There is no such queue" is plain.
WORDS = re.compile(
    r"(?<![a-z])(nobody|somebody|whoever|whichever|so[ _]many|(?<!no[\s_/])such)(?![a-z])", re.IGNORECASE
)
#: Code beside the package.
BESIDE = ("jobs", "notebooks", "benchmarks")
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


@cache
def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def code(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.suffix in {".py", ".sql"})


def modules(folder: Path) -> list[Path]:
    """The modules of a folder, but for what a package must have."""
    return sorted(each for each in folder.glob("*.py") if each.name != "__init__.py")


def rooms() -> list[str]:
    """A room is a folder of code or a module, in the package or beside it."""
    inside = [each for each in PACKAGE.iterdir() if each.is_dir() and any(each.glob("*.py"))]
    beside = [ROOT / each for each in (*BESIDE, "pyspark_sqlqueue.py")]
    return sorted(str(each.relative_to(ROOT)) for each in [*inside, *PACKAGE.glob("*.py"), *beside])


def place(file: Path) -> str:
    """Where a text is counted: its room of the package, its folder of the tests, or its folder outside."""
    path = file.relative_to(ROOT)
    if path.parts[0] in {"sqlqueue_spark", "tests"}:
        return "/".join(path.parts[:2])
    return str(path.parent) if file.suffix == ".md" else path.parts[0]


def pages() -> list[Path]:
    patterns = ("*.md", "docs/*.md", "docs/decisions/*.md", "benchmarks/*.md")
    return [each for pattern in patterns for each in sorted(ROOT.glob(pattern))]


def programs() -> list[Path]:
    """What is written for users: the package, and the programs beside it."""
    return [
        *code(PACKAGE),
        *(file for each in BESIDE for file in code(ROOT / each)),
        ROOT / "pyspark_sqlqueue.py",
    ]


def suites() -> list[Path]:
    folder = ROOT / "tests"
    return [*code(folder), *sorted(folder.rglob("*.md"))]


def long_lines() -> Counter[str]:
    """In SQL and in pages, but for tables and blocks of code."""
    found: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.sql"):
        found[place(file)] += sum(map(too_long, text(file).splitlines()))
    for file in pages():
        prose = _BLOCK.sub("", text(file)).splitlines()
        found[place(file)] += sum(too_long(each) for each in prose if not each.startswith("|"))
    return +found


def too_long(line: str) -> bool:
    """An address does not count, because it cannot be cut."""
    return len(re.sub(r"\S*://\S*", "", line)) > LONGEST_LINE


def habit_words() -> Counter[str]:
    found: Counter[str] = Counter()
    for file in [*programs(), *pages(), *suites()]:
        found[place(file)] += len(WORDS.findall(text(file)))
    return +found


def large_folders() -> dict[str, int]:
    folders = {each.parent for each in code(PACKAGE)} - {PACKAGE}
    sizes = {str(each.relative_to(PACKAGE)): len(modules(each)) for each in folders}
    return {name: size for name, size in sorted(sizes.items()) if size > MODULES_IN_A_FOLDER}


def lines() -> int:
    return sum(text(file).count("\n") for file in code(PACKAGE))


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(nodes: Iterable[ast.AST], known: Mapping[str, object]) -> Iterator[str]:
    """The modules of ours that these statements import, also within functions, but not for types only."""
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and (module := node.module or "") in known:
            names = (f"{module}.{each.name}" for each in node.names)
            yield from (each if each in known else module for each in names)
        yield from imported(ast.iter_child_nodes(node), known)


@cache
def graph() -> dict[str, frozenset[str]]:
    files = {name_of(file): file for file in code(PACKAGE) if file.suffix == ".py"}
    return {
        name: frozenset(imported([ast.parse(text(file))], files)) - {name} for name, file in files.items()
    }


def rooms_of(arrows: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The same arrows, between rooms."""

    def room(name: str) -> str:
        return ".".join(name.split(".")[:2])

    found: dict[str, set[str]] = {room(name): set() for name in arrows}
    for name, others in arrows.items():
        found[room(name)] |= {room(each) for each in others} - {room(name)}
    return {name: frozenset(others) for name, others in found.items()}


def circles(arrows: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The sets of nodes that reach one another."""

    @cache
    def reached(start: str) -> frozenset[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = arrows[waiting.pop()] - found
            found |= new
            waiting += new
        return frozenset(found)

    sets = {
        tuple(sorted(each for each in reached(name) if name in reached(each)))
        for name in arrows
        if name in reached(name)
    }
    return sorted(map(list, sets))


def above(found: Mapping[str, int], allowed: Mapping[str, int]) -> dict[str, str]:
    return {
        name: f"{count}, allowed {allowed.get(name, 0)}"
        for name, count in sorted(found.items())
        if count > allowed.get(name, 0)
    }


def test_the_rooms_are_few():
    assert len(rooms()) <= ROOMS, f"put a new room into one of these, or merge two: {rooms()}"


def test_few_modules_stand_outside_of_rooms():
    there = [each.name for each in PACKAGE.glob("*.py")]
    assert len(there) <= MODULES_AT_THE_TOP, f"move one into a room: {there}"


def test_a_folder_has_few_modules():
    wrong = above(large_folders(), LARGE_FOLDERS)
    assert wrong == {}, "merge modules that are one thing, or make a folder of those that belong together"


def test_a_name_of_a_class_has_one_meaning():
    found = Counter(
        node.name
        for file in PACKAGE.rglob("*.py")
        for node in ast.parse(text(file)).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = [name for name, count in found.items() if count > 1]
    assert twice == [], "give one of them a name that says what it is"


def test_no_modules_import_one_another_in_a_circle():
    found = circles(graph())
    assert found == [], "move what they share into a module below both"


def test_no_rooms_import_one_another_in_a_circle():
    found = circles(rooms_of(graph()))
    assert found == [], "move what they share into a room below both"


@pytest.mark.parametrize(
    "found,allowed,remedy",
    [
        (long_lines, {}, f"write shorter sentences, or break lines at {LONGEST_LINE} characters"),
        (
            habit_words,
            HABIT_WORDS,
            "say who does it, or how many: no session, the user, a caller, at most N rows",
        ),
    ],
)
def test_texts_are_plain(found: Callable[[], Counter[str]], allowed, remedy):
    assert above(found(), allowed) == {}, remedy


def test_the_package_does_not_grow():
    assert lines() <= LINES, (
        "a second way of doing a thing is a debt: change the first one so that it serves both"
    )


def test_what_a_test_needs_of_a_server_is_known():
    """A name that is unknown shows only where a test runs on a SQL Server."""
    marks = (
        mark
        for file in (ROOT / "tests").rglob("*.py")
        for mark in re.findall(r"mark\.needs\(([^)]*)\)", file.read_text())
    )
    needed = {name for mark in marks for name in re.findall(r'"(\w+)"', mark)}
    assert needed - {each.name for each in fields(Abilities)} == set()


def test_a_circle_is_found():
    arrows = {
        name: frozenset(others) for name, others in {"a": "b", "b": "c", "c": "b", "d": "d", "e": ""}.items()
    }
    assert circles(arrows) == [["b", "c"], ["d"]]


def main() -> None:
    for name, value in {
        "ROOMS": len(rooms()),
        "MODULES_AT_THE_TOP": len(list(PACKAGE.glob("*.py"))),
        "LARGE_FOLDERS": large_folders(),
        "circles": circles(graph()),
        "LINES": lines(),
        "HABIT_WORDS": dict(sorted(habit_words().items())),
    }.items():
        print(f"{name} = {value}")  # noqa: T201 -- a program prints


if __name__ == "__main__":
    main()
