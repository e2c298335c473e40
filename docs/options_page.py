"""Writes the tables of options.md from the declarations of the options: ``make docs``.

The page is written by hand, but for what stands between ``<!-- options NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sqlqueue_spark.cli.output import options_markdown
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.options.fields import Described, Options
from sqlqueue_spark.pipeline import ArchiveOptions, DeltaOptions, ForwardOptions
from sqlqueue_spark.pipeline.declared.handle import HandleOptions
from sqlqueue_spark.pipeline.declared.store_and_forward import StoreAndForwardOptions

PAGE = Path(__file__).with_name("options.md")
_TABLE = re.compile(r"(?<=<!-- options )([\w-]+)( -->\n).*?(?=^<!-- end -->$)", re.DOTALL | re.MULTILINE)


def _own(options: type[Options], but: type[Options]) -> Iterator[Described]:
    others = {each.name for each in but.described()}
    return (each for each in options.described() if each.name not in others)


#: The tables by their names on the page.
TABLES = {
    "connection": tuple(ConnectionOptions.described()),
    "source": tuple(_own(SourceOptions, ConnectionOptions)),
    "sink": tuple(_own(SinkOptions, ConnectionOptions)),
    "delta": tuple(DeltaOptions.described()),
    "archive": tuple(ArchiveOptions.described()),
    "forward": tuple(ForwardOptions.described()),
    "handle": tuple(HandleOptions.described()),
    "store-and-forward": tuple(StoreAndForwardOptions.described()),
}


def rendered(page: str) -> str:
    """The page with its tables as the options are declared now."""

    def table(found: re.Match[str]) -> str:
        lines = "\n".join(options_markdown(TABLES[found[1]]))
        return f"{found[1]}{found[2]}\n{lines}\n\n"

    return _TABLE.sub(table, page)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
