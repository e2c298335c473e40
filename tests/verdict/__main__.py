"""``make verdict``: proves or refutes on a server what the package takes for granted of it,
and writes a report.

Without a URL the server is the PostgreSQL that comes with the tests.
The exit code is 1 if anything is not as expected.
"""

import argparse
import os
import sys
from pathlib import Path

import click

from tests.verdict import run

FOLDER = Path(__file__).parents[2] / "docs" / "verdicts"
#: Where a password does not show.
URL_VARIABLE = "SQLQUEUE_VERDICT_URL"


def main(url: str | None, folder: Path, *, scratch: bool = False) -> int:
    given = url or os.environ.get(URL_VARIABLE) or None
    report = run.on(given, lambda what: click.echo(f"{what} ..."), scratch=scratch)
    files = report.write(folder)
    for line in (*report.summary(), *map(str, files)):
        click.echo(line)
    return 0 if report.holds else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.verdict", description=sys.modules[__name__].__doc__
    )
    parser.add_argument("--url", help=f"of the server; by default that of {URL_VARIABLE}")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the report goes")
    parser.add_argument(
        "--scratch", action="store_true", help="use the url's own database, which is empty, and make none"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(**vars(_arguments())))
