"""The programs of the model are those of the statements' texts."""

import re

from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from tests.lock_model.statements import ASSUMED, STANDS_FOR, Assumed

#: The hints of a table; column lists of OPENJSON are written small.
_HINTS = re.compile(r"\bWITH \(([A-Z, ]+)\)")
_OPTIONS = re.compile(r"\bOPTION \(([^)]*)\)")
_PRIORITY = re.compile(r"^SET DEADLOCK_PRIORITY LOW;", re.MULTILINE)


def assumed(text: str) -> Assumed:
    """What a program has to know of a statement."""
    hints, options = (
        tuple(word for found in pattern.findall(text) for word in found.split(", "))
        for pattern in (_HINTS, _OPTIONS)
    )
    return Assumed(hints=hints, options=options, loses_deadlocks=_PRIORITY.search(text) is not None)


def test_each_statement_has_the_hints_that_its_program_assumes() -> None:
    texts = {name: str(SQLSERVER.statement(name)) for name in ASSUMED}
    assert {name: assumed(text) for name, text in texts.items()} == ASSUMED


def test_each_statement_on_a_queue_table_has_a_program_that_stands_for_it() -> None:
    on_queues = {name for name in SQLSERVER.statements() if "{queue}" in str(SQLSERVER.statement(name))}
    assert on_queues == ASSUMED.keys() | STANDS_FOR.keys()
    assert ASSUMED.keys() & STANDS_FOR.keys() == set()
