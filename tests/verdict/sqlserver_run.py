"""Carries all experiments out on SQL Server."""

from collections.abc import Callable

from tests.verdict.report import Report


def on_sqlserver(url: str, say: Callable[[str], None]) -> Report:
    raise NotImplementedError
