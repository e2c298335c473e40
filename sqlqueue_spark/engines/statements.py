"""An engine's statements by their names, read from its SQL files.

A file has the statements of one task, in the same order on each engine. ``-- name: claim`` begins a
statement, and ``:after`` is a value that is bound to it (the format of aiosql,
https://nackjicholson.github.io/aiosql/defining-sql-queries/). The comments below the name say what the
statement does, what goes in and comes out, where names do not say it, and why each hint is there. Names
that many have: ``after`` and ``up_to`` are RowVersions, ``firsts`` and ``lasts`` the ends of runs of them,
``object_id`` and ``database`` those of the table, ``zone`` is that of ``delayed_zone``, and ``name`` of a
claim or a lock a table's full name, quoted. What holds on every engine is said with the statement of
PostgreSQL: its ``seq`` is RowVersion elsewhere, and its arrays are JSON. ``{name}`` is always a quoted
identifier, or NULL for a column that a table lacks; ``{in_transit}`` is a list of numbers, or NULL.
What several statements of an engine say alike stands below ``-- shared: message``, and in them ``{message}``.
A statement that an engine has no use for is one line with the reason: ``-- none: announce · no statement …``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, Self

_HEAD = re.compile(r"^-- (name|shared|none): (\w+)", re.MULTILINE)
#: A parameter; ``::`` is a cast.
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
#: The values of a statement's parameters, by their names; other names are ignored.
Parameters = Mapping[str, object]
NOTHING: Parameters = MappingProxyType({})
#: How a driver writes a parameter, by its ``paramstyle`` (https://peps.python.org/pep-0249/#paramstyle).
_PLACEHOLDERS = {
    "qmark": "?",
    "format": "%s",
    "numeric": ":{number}",
    "pyformat": "%({name})s",
    "named": ":{name}",
}


@dataclass(frozen=True)
class Statement:
    """A statement. Without a text it is false: there is nothing to do on this engine.

    ``parts`` are pieces of text and the names of parameters in turn. So no parameter is looked for in a text
    that has identifiers already: they may hold any character.
    """

    parts: tuple[str, ...]
    name: str = ""
    #: The queue that it reads in a worker, for errors; empty for the statements of a connection.
    queue: str = ""

    @classmethod
    def parse(cls, text: str, name: str = "") -> Self:
        """Read a text with ``:name`` for parameters and ``{name}`` for identifiers."""
        return cls(tuple(_PARAMETER.split(text)), name)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters in their order; one may stand there more than once."""
        return self.parts[1::2]

    def __bool__(self) -> bool:
        return self.parts != ("",)

    def __str__(self) -> str:
        return self._woven(f":{name}" for name in self.parameters)

    def render(self, **identifiers: str) -> Self:
        """The statement with its identifiers filled in; each must be quoted already."""
        parts = list(self.parts)
        parts[::2] = [text.format(**identifiers) for text in parts[::2]]
        return replace(self, parts=tuple(parts))

    def bound(self, paramstyle: str, values: Parameters) -> tuple[str, Parameters | tuple[Any, ...]]:
        """Text and parameters as a driver takes them.

        :param paramstyle: the driver's, as in PEP 249.
        """
        names, form = self.parameters, _PLACEHOLDERS[paramstyle]
        written = (form.format(name=name, number=number) for number, name in enumerate(names, 1))
        text = self._woven(written, doubled="%" if paramstyle in ("format", "pyformat") else "")
        if paramstyle in ("pyformat", "named"):
            return text, {name: values[name] for name in names}
        return text, tuple(values[name] for name in names)

    def written_out(self, literals: Mapping[str, str]) -> str:
        """The text with literals for its parameters, for people, or where nothing can be bound."""
        return self._woven(literals[name] for name in self.parameters)

    def with_numbers(self, numbers: Mapping[str, int]) -> str:
        """The text with whole numbers in the place of its parameters."""
        return self.written_out({name: str(int(number)) for name, number in numbers.items()})

    def _woven(self, written: Iterator[str], doubled: str = "") -> str:
        """The text with these words for its parameters; the character ``doubled`` is doubled in the rest."""
        texts = (text.replace(doubled, 2 * doubled) if doubled else text for text in self.parts[::2])
        first = next(texts)
        return first + "".join(each for pair in zip(written, texts, strict=True) for each in pair)


#: A plain text runs as it stands, without parameters.
Sql = Statement | str


def read(folder: Traversable) -> dict[str, Statement]:
    """The statements of all files of a folder.

    :raises ValueError: two statements have the same name.
    """
    texts: dict[str, str] = {}
    shared: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".sql"):
            for kind, name, sql in _parsed(file.read_text(encoding="utf-8")):
                found = shared if kind == "shared" else texts
                if name in found:
                    raise ValueError(f"The statement {name} stands twice in {folder}; take one out.")
                found[name] = sql
    for part, text in shared.items():
        texts = {name: sql.replace(f"{{{part}}}", text) for name, sql in texts.items()}
    return {name: Statement.parse(sql, name) for name, sql in texts.items()}


def _parsed(text: str) -> Iterator[tuple[str, str, str]]:
    _, *parts = _HEAD.split(text)
    for kind, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        _, *lines = body.split("\n")  # the first one is the rest of the head
        sql = [line for line in lines if not line.lstrip().startswith("--")]
        yield kind, name, "\n".join(sql).strip()
