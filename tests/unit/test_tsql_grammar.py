"""Every T-SQL text that is ever sent or printed is read by a grammar of T-SQL: a slip shows without a server.

The grammar is that of github.com/antlr/grammars-v4, compiled in pytsql. Of those that can be had from Python it is the
strictest: sqlglot takes any word for a hint, and sqlfluff reads ``LIMIT 5`` and ``TRUNCATE orders`` as statements.
"""

import re
from typing import NamedTuple

import pytest

from tests.support.tsql import BROKEN, TEXTS, named

grammar = pytest.importorskip(
    "pytsql.grammar",
    reason="pytsql, the grammar of T-SQL, is not here; make setup installs it where it has a wheel",
)
antlr4 = pytest.importorskip("antlr4")


class Unknown(NamedTuple):
    """Legal T-SQL that the grammar does not know, what it does know in its place, and the page that says it is legal."""

    text: str
    known: str
    page: str


UNKNOWN = (
    Unknown(
        " REBUILD",
        " REBUILD WITH (FILLFACTOR = 100)",
        "https://learn.microsoft.com/sql/t-sql/statements/alter-table-transact-sql#rebuild",
    ),
    Unknown(
        "MAX_GRANT_PERCENT = 10",
        "MAXDOP 1",
        "https://learn.microsoft.com/sql/t-sql/queries/hints-transact-sql-query#max_grant_percent--numeric_value",
    ),
)

#: A hint beside the target itself that may stand in a FROM clause only (errors 10724, 10745, 1069):
#: https://learn.microsoft.com/previous-versions/sql/sql-server-2008/bb510478(v=sql.100)
PATH_BESIDE_TARGET = re.compile(
    r"\b(?:DELETE(?:\s+FROM)?|UPDATE|INTO)\s+(?:\[(?:[^\]]|\]\])*\]|[\w.])+\s+WITH\s*\([^)]*\b(?:FORCESEEK|FORCESCAN|INDEX)\b"
)
HINTS = re.compile(r"\bWITH\s*\(((?:\s*[A-Z]+\s*,?)+)\)")


class RefusedError(Exception):
    pass


def refuse(_, *where_and_what):
    raise RefusedError(*where_and_what[-3:])


LISTENER = type("Listener", (grammar.SA_ErrorListener,), {"syntaxError": refuse})


def complaint(text):
    """What the grammar has against a text, as the driver sends it: with names in the place of question marks."""
    try:
        grammar.parse(antlr4.InputStream(data=named(text)), "tsql_file", LISTENER())
    except RefusedError as error:
        return str(error)
    return None


def test_the_grammar_is_the_compiled_one():
    assert grammar.USE_CPP_IMPLEMENTATION, "in Python it takes minutes"


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_what_the_grammar_calls_tsql(name):
    assert complaint(as_known(TEXTS[name])) is None


def as_known(text):
    """The text with what the grammar does not know replaced."""
    for each in UNKNOWN:
        text = text.replace(each.text, each.known)
    return text


@pytest.mark.parametrize("unknown", UNKNOWN, ids=lambda each: each.text.strip())
def test_what_the_grammar_has_learned_is_no_longer_replaced(unknown):
    found = [text for text in TEXTS.values() if unknown.text in text]
    assert found
    assert all(complaint(text) for text in found)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_keeps_rules_that_no_grammar_tells(name):
    assert broken_rules(TEXTS[name]) == []


def broken_rules(text):
    broken = (
        ["a way to the rows is prescribed beside the target of a change"]
        if PATH_BESIDE_TARGET.search(text)
        else []
    )
    for hints in ({each.strip() for each in found[1].split(",")} for found in HINTS.finditer(text)):
        # https://learn.microsoft.com/sql/t-sql/queries/hints-transact-sql-table#readpast
        if "READPAST" in hints and not hints & {"UPDLOCK", "READCOMMITTEDLOCK"}:
            broken.append("READPAST without a lock is error 650 where READ_COMMITTED_SNAPSHOT is on")
        if len(hints & {"READPAST", "READUNCOMMITTED", "HOLDLOCK"}) > 1:
            broken.append("READPAST goes with no other isolation")
    return broken


@pytest.mark.parametrize("what", BROKEN)
def test_a_slip_is_noticed(what):
    assert complaint(BROKEN[what])


@pytest.mark.parametrize(
    "text,broken",
    [
        ("DELETE FROM t WITH (FORCESEEK) WHERE a = ?", 1),
        ("UPDATE [dbo].[my queue] WITH (ROWLOCK, FORCESEEK) SET a = 1 WHERE b = ?", 1),
        ("UPDATE t WITH (ROWLOCK, INDEX (i)) SET a = 1 WHERE b = ?", 1),
        ("UPDATE t SET a = 1 FROM [my queue] AS t WITH (ROWLOCK, INDEX (i)) WHERE b = ?", 0),
        ("SELECT a FROM t WITH (READPAST, ROWLOCK) WHERE a = ?", 1),
        ("SELECT a FROM t WITH (READPAST, READUNCOMMITTED) WHERE a = ?", 2),
        ("DELETE q FROM t AS q WITH (READPAST, READCOMMITTEDLOCK, FORCESEEK) WHERE a = ?", 0),
    ],
)
def test_a_broken_rule_is_noticed_in_valid_tsql(text, broken):
    assert (complaint(text), len(broken_rules(text))) == (None, broken)


@pytest.mark.parametrize("name", ["claim", "delete", "take, full", "outbox_add_new", "script of queues"])
def test_each_missing_bracket_of_a_text_is_noticed(name):
    text = as_known(TEXTS[name])
    places = [at for at in range(len(text)) if text[at] == ")" and "--" not in text[:at].rpartition("\n")[2]]
    assert [at for at in places if not complaint(text[:at] + text[at + 1 :])] == []
