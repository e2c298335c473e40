"""The pages that people read: their headings, links, programs and command lines."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
#: A block, with the mark in front of it that a reader does not see: ``<!-- page skip: why -->``.
_MARKED = re.compile(
    r"(?:^<!-- page (?P<kind>[\w-]+): (?P<text>.+?) -->\n)?"
    r"^```(?P<language>(?!mermaid)\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
#: What a mark may say of a block. It is not run; it must fail; it runs until Ctrl-C, which is pressed when
#: this is shown; each of its questions is answered so; it is a file of this name; its numbers are others
#: each time.
MARKS = ("skip", "fails", "Ctrl-C", "answers", "file", "numbers")
#: A page that does not work as printed yet ends with this. Take it away, and the page joins.
_NOT_YET = "<!-- not yet as printed -->"
#: Blocks that are typed; those in other languages show what the one before has printed.
TYPED = ("shell", "python", "sql")
_LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)")


class Block(NamedTuple):
    """A block of a page.

    :param mark: what it is marked as, or "".
    :param text: what its mark says: a reason, a name, what is shown.
    :param line: its first line on the page.
    :param before: what the page says between the block before and this one.
    """

    language: str
    code: str
    mark: str
    text: str
    line: int
    before: str


class Page(NamedTuple):
    """A page by its path below the root of the repository."""

    path: str

    @property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """The text without its blocks of code."""
        return _BLOCK.sub("", self.text)

    @property
    def is_not_run(self) -> bool:
        """Whether no block of it is run yet."""
        return _NOT_YET in self.text

    def blocks(self, language: str) -> list[str]:
        return [code for _, name, code in _BLOCK.findall(self.text) if name == language]

    def steps(self) -> list[Block]:
        """Its blocks as a reader meets them; those without a language, or in mermaid, are pictures."""
        found, end = [], 0
        for each in _MARKED.finditer(self.text):
            line, before = self.text.count("\n", 0, each.start("code")) + 1, self.text[end : each.start()]
            mark, text = each["kind"] or "", each["text"] or ""
            found.append(Block(each["language"], each["code"], mark, text, line, before))
            end = each.end()
        return found

    def shell_lines(self, *, not_run: bool = False) -> list[list[str]]:
        """The words of each line of its shell blocks, or of those that no test runs, from the program on.

        Comments are taken off, and so are lines without a word, and variables that are set for the program.
        """
        steps = [each for each in self.steps() if each.language == "shell"]
        shown = [each.code for each in steps if not not_run or self.is_not_run or each.mark == "skip"]
        text = "".join(shown).replace("\\\n", "")
        lines = (shlex.split(line, comments=True) for line in text.splitlines())
        programs = (itertools.dropwhile(re.compile(r"[A-Z_]+=").match, line) for line in lines)
        return [line for line in map(list, programs) if line]

    def sqlqueue_lines(self, *, not_run: bool = False) -> list[list[str]]:
        """What calls ``sqlqueue``, also within a line: ``$(sqlqueue server url)``, and beside a pipe."""
        lines = self.shell_lines(not_run=not_run)
        within = [
            found for line in lines for word in line for found in re.findall(r"\$\((sqlqueue [^)]*)\)", word)
        ]
        commands = [each for line in [*lines, *map(shlex.split, within)] for each in _parts(line)]
        return [each for each in commands if each[0] == "sqlqueue"]

    def inline(self) -> list[str]:
        """What stands between single backticks."""
        return re.findall(r"`([^`\n]+)`", self.prose)

    def links(self) -> list[str]:
        """Where its relative links lead: a path from the root, ``#`` and an anchor."""
        found = (link for link in _LINK.findall(self.prose) if "://" not in link)
        return [self._from_root(link) for link in found]

    def _from_root(self, link: str) -> str:
        path, hash_, anchor = link.partition("#")
        there = (ROOT / self.path).parent / path if path else ROOT / self.path
        return f"{there.resolve().relative_to(ROOT)}{hash_}{anchor}"

    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub makes them."""
        return set(_anchors(re.findall(r"^#+ +(.*?) *$", self.prose, re.MULTILINE)))


def _parts(line: list[str]) -> list[list[str]]:
    """The commands of a line."""
    begun: list[list[str]] = [[]]
    for word in line:
        if word in {"|", "||", ">"}:
            begun.append([])
        else:
            begun[-1].append(word)
    return [each for each in begun if each]


def _anchors(headings: list[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for heading in headings:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = seen[anchor] = seen.get(anchor, -1) + 1
        yield f"{anchor}-{number}" if number else anchor


def page(path: str) -> Page:
    return Page(path)


def pages(*patterns: str) -> list[Page]:
    """The pages whose paths match these patterns, in order."""
    return [
        Page(str(found.relative_to(ROOT)))
        for pattern in patterns
        for found in sorted(ROOT.glob(pattern))
        if ".venv" not in found.parts
    ]


README = page("README.md")
#: The list of all pages.
LIST = page("docs/README.md")
#: Programs to begin with.
EXAMPLES = page("examples/README.md")
DOCS = pages("docs/*.md", "docs/decisions/*.md")
#: What a user or an operator reads and types.
TO_TYPE = [README, *pages("docs/*.md")]
