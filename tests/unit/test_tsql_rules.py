"""Every T-SQL text keeps rules that no parser of T-SQL tells;
the parser itself is asked in test_tsql_scriptdom.py.
"""

import re

import pytest

from tests.support.tsql import TEXTS

#: A hint beside the target itself that may stand in a FROM clause only (errors 10724, 10745, 1069):
#: https://learn.microsoft.com/previous-versions/sql/sql-server-2008/bb510478(v=sql.100)
PATH_BESIDE_TARGET = re.compile(
    r"\b(?:DELETE(?:\s+FROM)?|UPDATE|INTO)\s+(?:\[(?:[^\]]|\]\])*\]|[\w.])+\s+"
    r"WITH\s*\([^)]*\b(?:FORCESEEK|FORCESCAN|INDEX)\b"
)
HINTS = re.compile(r"\bWITH\s*\(((?:\s*[A-Z]+\s*,?)+)\)")


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
def test_a_broken_rule_is_noticed(text, broken):
    assert len(broken_rules(text)) == broken
