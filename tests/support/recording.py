"""SQL Server's driver without SQL Server: an ODBC driver that we compile writes down what is
bound to each statement.
"""

import ctypes.util
import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "recording_odbc" / "driver.c"

# https://learn.microsoft.com/sql/odbc/reference/appendixes/sql-data-types
_C_TYPES = {
    1: "SQL_C_CHAR",
    4: "SQL_C_LONG",
    -25: "SQL_C_SBIGINT",
    -8: "SQL_C_WCHAR",
    -7: "SQL_C_BIT",
    -2: "SQL_C_BINARY",
}
_INTEGERS = {4: "i", -25: "q"}
_SQL_TYPES = {4: "int", -5: "bigint", -7: "bit", -10: "ntext", -2: "binary", -3: "varbinary"}
_WVARCHAR, _AT_EXECUTION, _NULL = -9, -2, -1


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One parameter as it stood when its statement was executed."""

    c_type: str
    #: As Microsoft's driver declares the parameter to the server.
    sql_type: str
    value: int | str | bytes | None
    #: Whether it came in pieces while the statement was executed.
    in_pieces: bool

    def __str__(self) -> str:
        pieces = ", in pieces" if self.in_pieces else ""
        return f"{self.sql_type} from {self.c_type}{pieces} = {self.value!r}"


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One statement that was executed; ``described`` counts the round trips that asked
    for a parameter's type.
    """

    text: str
    prepared: bool
    bound: tuple[Bound, ...]
    described: int


@dataclass(frozen=True)
class Refused:
    """An error that the server answers with."""

    state: str
    number: int
    text: str


@dataclass(frozen=True)
class Answer:
    """The answer to each statement whose text contains ``part``.

    ``types`` has a letter for each column: i bigint, w nvarchar(max), b bit, t datetime, x varbinary(max). An
    error may stand in the place of a row; where there are no types, the statement itself fails with it.

    :param changed: how many rows the statement changes.
    :param triggered: how many rows each statement of a trigger on its table changes.
    """

    part: str
    types: str = ""
    rows: Sequence[Sequence[object] | Refused] = ()
    changed: int = -1
    names: Sequence[str] = ()
    triggered: Sequence[int] = ()

    def lines(self) -> list[str]:
        rows = [
            f"!\t{row.state}\t{row.number}\t{row.text}"
            if isinstance(row, Refused)
            else "\t".join(map(_field, row))
            for row in self.rows
        ]
        columns = "\t".join([":", self.types, *([",".join(self.names)] if self.names else [])])
        triggered = [f"#\t{each}" for each in self.triggered]
        return [f"=\t{self.part}\t{self.changed}", *triggered, *([columns] if self.types else []), *rows]


def _field(value: object) -> str:
    return "" if value is None else str(value) or "''"


def missing() -> str | None:
    """Why nothing can be recorded here, with the remedy."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        return "there is no C compiler; install one (Debian: apt-get install gcc libc6-dev)"
    return pyodbc_missing()


def pyodbc_missing() -> str | None:
    """Why pyodbc cannot be loaded here, with the remedy."""
    try:
        import pyodbc  # noqa: F401 -- its wheel may bring unixODBC's library or not
    except ImportError as error:
        found = ctypes.util.find_library("odbc")
        return (
            f"pyodbc cannot be loaded ({error}; libodbc is {found}); install unixODBC (Debian: apt-get "
            "install unixodbc)"
        )
    return None


def compiled(folder: Path) -> Path:
    """Compile the driver into a folder; returns its file."""
    library = folder / "librecording.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE],
        check=True,
    )
    return library


class Recorder:
    """A place to connect to; it records what was said there."""

    def __init__(self, library: Path, folder: Path, answers: Iterable[Answer] = ()) -> None:
        self._log = folder / "log"
        self._log.touch()
        file = folder / "answers"
        lines = "".join(f"{line}\n" for answer in answers for line in answer.lines())
        file.write_bytes(lines.encode("utf-8", "surrogatepass"))
        self.url = f"Driver={library};Server=nowhere;Database=shop;Log={self._log};Answers={file}"

    def executions(self) -> list[Execution]:
        """The statements in the order in which they were executed."""
        found: list[Execution] = []
        text, prepared, described = "", False, 0
        bound: dict[int, Bound] = {}
        for event, *rest in (line.split(" ") for line in self._log.read_text().splitlines()):
            if event in ("prepare", "direct"):
                text, prepared, described = bytes.fromhex(rest[0]).decode(), event == "prepare", 0
            elif event == "describe":
                described += 1
            elif event == "bind":
                number, *kinds = (int(each) for each in rest[:6])
                bound[number] = _bound(kinds, bytes.fromhex(rest[6]))
            elif event == "execute":
                parameters = tuple(bound[number] for number in sorted(bound))
                found.append(Execution(text=text, prepared=prepared, bound=parameters, described=described))
                bound = {}
        return found

    def preparations(self) -> list[str]:
        """The statements that were prepared, each as often as the server was sent its text."""
        lines = (line.split(" ") for line in self._log.read_text().splitlines())
        return [bytes.fromhex(rest[0]).decode() for event, *rest in lines if event == "prepare"]

    def endings(self) -> list[str]:
        """The commits and rollbacks."""
        return [line for line in self._log.read_text().splitlines() if line in ("commit", "rollback")]

    def disconnections(self) -> int:
        """How many connections ended."""
        return self._log.read_text().splitlines().count("disconnect")


def _bound(kinds: Sequence[int], raw: bytes) -> Bound:
    c_type, sql_type, size, digits, indicator = kinds
    assert digits == 0, "nothing that we bind has decimal places"
    value: int | str | bytes | None = raw
    if indicator == _NULL:
        value = None
    elif c_type in _INTEGERS:
        value = int(struct.unpack(_INTEGERS[c_type], raw)[0])
    elif _C_TYPES.get(c_type) == "SQL_C_WCHAR":
        value = raw.decode("utf-16-le")
    declared = _SQL_TYPES.get(sql_type, f"type {sql_type}")
    if sql_type == _WVARCHAR:
        declared = f"nvarchar({size or 'max'})"
    return Bound(
        c_type=_C_TYPES.get(c_type, f"C type {c_type}"),
        sql_type=declared,
        value=value,
        in_pieces=indicator == _AT_EXECUTION,
    )
