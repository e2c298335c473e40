"""Every T-SQL text that is ever sent or printed is read by Microsoft's own parser,
as SQL Server 2016 and later do.
"""

import pytest

from tests.support import scriptdom
from tests.support.tsql import BROKEN, TEXTS, named

if (_why := scriptdom.missing()) is not None:
    pytest.skip(f"Microsoft's parser of T-SQL cannot run: {_why}", allow_module_level=True)


@pytest.fixture(scope="module")
def complaints():
    texts = {**TEXTS, **{f"broken: {what}": text for what, text in BROKEN.items()}}
    return scriptdom.complaints({name: named(text) for name, text in texts.items()})


def test_the_parsers_begin_with_sql_server_2016(complaints):
    assert list(complaints)[:3] == [130, 140, 150]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_what_sql_server_calls_tsql(name, complaints):
    assert {level: found[name] for level, found in complaints.items() if name in found} == {}


@pytest.mark.parametrize("what", BROKEN)
def test_a_slip_is_noticed_by_each_parser(what, complaints):
    assert [level for level, found in complaints.items() if f"broken: {what}" not in found] == []
