"""The layers of the package: arrows point down, drivers and SQL have one home each."""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqlqueue_spark

ROOT = Path(sqlqueue_spark.__file__).parent
# A module imports modules of its own room and of rooms of lower rank.
RANKS = {
    **dict.fromkeys(("errors", "row_set", "fail_points", "plain_text", "version"), 0),
    "messages": 1,
    "options": 2,
    **dict.fromkeys(("engines", "embedded"), 3),
    **dict.fromkeys(("tables", "functions"), 4),
    **dict.fromkeys(("receive", "send", "inspection"), 5),
    **dict.fromkeys(("administration", "spark"), 6),
    "handling": 7,
    "pipeline": 8,
    **dict.fromkeys(("demo", "__init__"), 9),
    "cli": 10,
    "__main__": 11,
}
# The rooms of the pipeline, from the ground up.
PIPELINE = ("running", "delta", "declared")
# The rooms of receive/ and of send/ and the modules beside them, likewise.
ROOMS_WITHIN = {
    "receive": {"offset": 0, "claiming": 1, "reading": 2, "holding": 3},
    "send": {"sent": 0, "compose": 1, "deliver": 2, "waiting": 3},
}
DRIVERS = {"psycopg", "pyodbc", "adbc_driver_postgresql", "adbc_driver_manager", "mssql_python"}
SQL = re.compile(r"\s*(SELECT|INSERT|DELETE|UPDATE|CREATE|WITH|MERGE|TRUNCATE|DROP|ALTER)\s+\S")
FILES = sorted(ROOT.rglob("*.py"))


def component(file: Path) -> str:
    return file.relative_to(ROOT).with_suffix("").parts[0]


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(file):
    own = component(file)
    names = {name.split(".")[1] for name in imports(file) if name.startswith("sqlqueue_spark.")}
    below = {name if name in RANKS else "__init__" for name in names} - {own}
    assert own in RANKS, f"give {own} a rank"
    assert [name for name in sorted(below) if RANKS[name] >= max(RANKS[own], 1)] == []


@pytest.mark.parametrize("room", PIPELINE)
def test_a_room_of_the_pipeline_imports_no_higher_one(room):
    files = list((ROOT / "pipeline" / room).glob("*.py"))
    higher = {f"sqlqueue_spark.pipeline.{each}" for each in PIPELINE[PIPELINE.index(room) + 1 :]}
    named = {".".join(name.split(".")[:3]) for file in files for name in imports(file)}
    assert len(files) > 1
    assert higher & named == set()


@pytest.mark.parametrize(
    "file",
    [file for room in ROOMS_WITHIN for file in sorted((ROOT / room).rglob("*.py"))],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_a_room_within_a_room_imports_only_what_lies_below_it(file):
    """The sources of streams stand above the rooms of receiving."""
    room, own = file.relative_to(ROOT).with_suffix("").parts[:2]
    ranks = ROOMS_WITHIN[room]
    names = (name.split(".") for name in imports(file) if name.startswith(f"sqlqueue_spark.{room}."))
    others = {parts[2] for parts in names} - {own}
    doors = len(ranks)
    assert [name for name in sorted(others) if own in ranks and ranks.get(name, doors) >= ranks[own]] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_engines_import_database_drivers(file):
    drivers = DRIVERS & {name.split(".")[0] for name in imports(file)}
    assert component(file) == "engines" or drivers == set()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_engines_hold_sql(file):
    constants = (
        node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)
    )
    sql = [value for value in constants if isinstance(value, str) and SQL.match(value)]
    assert component(file) == "engines" or sql == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_what_speaks_to_spark_imports_it(file):
    public = {"functions", "handling", "pipeline", "__init__", "demo"}
    spark = {"pyspark", "delta", "py4j"} & {name.split(".")[0] for name in imports(file)}
    assert component(file) in {"spark", *public} or spark == set()


@pytest.mark.parametrize("room", ["messages", "handling"])
def test_the_modules_of_a_room_import_each_other_in_no_circle(room):
    """Imports within functions count, too."""
    names = {f"sqlqueue_spark.{room}.{file.stem}": file for file in (ROOT / room).glob("*.py")}
    found = {
        name: {part for each in imports(file) for part in (each, each.rpartition(".")[0])}
        for name, file in names.items()
    }
    order = graphlib.TopologicalSorter({name: below & names.keys() - {name} for name, below in found.items()})
    assert set(order.static_order()) == names.keys()


#: Calls that touch files. Those of these modules are in folders of ours, or in the package.
_TOUCHES = {
    *(
        "open",
        "fdopen",
        "opened",
        "replace",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "touch",
        "unlink",
    ),
    *(
        "exists",
        "is_file",
        "is_dir",
        "is_symlink",
        "stat",
        "lstat",
        "iterdir",
        "chmod",
        "chown",
        "rename",
        "mkdir",
    ),
    *("rmdir", "rmtree", "fwalk", "walk", "listdir", "OwnFile"),
}
_TOUCHED = {
    "__init__": [],
    "kept_server": [
        *(
            "OwnFile",
            "exists",
            "fwalk",
            "is_dir",
            "is_file",
            "is_symlink",
            "iterdir",
            "rmdir",
            "rmtree",
            "stat",
        ),
        *("unlink", "write_text"),
    ],
    "programs": ["exists", "fdopen", "open", "opened", "stat"],
    "server": ["OwnFile", "read_text"],
    "server_processes": [],
}


def test_one_module_alone_touches_the_files_that_the_servers_user_may_make_a_link_of():
    """``rmtree`` and ``fwalk`` follow no link, and ``server`` reads a file of the package."""
    found = {
        file.stem: {
            name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call)
            and (name := getattr(node.func, "attr", getattr(node.func, "id", ""))) in _TOUCHES
        }
        for file in (ROOT / "embedded").glob("*.py")
    }
    assert {name: sorted(calls) for name, calls in found.items() if name != "data_folder"} == _TOUCHED


def test_no_two_files_have_the_same_name():
    """But for the twins of the engines."""
    twins = {"postgresql", "sqlserver"}
    names = [file.stem for file in FILES if not twins & set(file.parts) and file.stem != "__init__"]
    assert [name for name in names if names.count(name) > 1] == []
