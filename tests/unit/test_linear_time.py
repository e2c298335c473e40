"""What strangers write is read in linear time, wherever they put a million odd characters."""

import ast
import contextlib
import functools
import importlib
import itertools
import re
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sqlqueue_spark.engines.driver_errors import DriverError
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.engines.sqlserver.connection_string import OdbcString
from sqlqueue_spark.errors import ConfigurationError, QueueError, why
from sqlqueue_spark.handling.received_message import received
from sqlqueue_spark.messages import message
from sqlqueue_spark.messages.addresses import Address, Naming, Table
from sqlqueue_spark.messages.audit import audit_headers
from sqlqueue_spark.messages.error_row import ErrorRow
from sqlqueue_spark.messages.failure_headers import Failure, failed_headers, put_back_headers
from sqlqueue_spark.messages.header_json import ascii_json, changed_headers, parse_headers, without_headers
from sqlqueue_spark.messages.message import FORWARD_DESTINATION, ONE_HOP, parse_time, type_names
from sqlqueue_spark.messages.message_selection import MessageSelection
from sqlqueue_spark.messages.origin import Origin
from sqlqueue_spark.messages.outgoing import parse_time_span
from sqlqueue_spark.messages.transit import goes_elsewhere, in_transit_to
from sqlqueue_spark.messages.waiting_headers import retry_headers, waiting_headers, waits_for
from sqlqueue_spark.plain_text import for_shell, holds_password, is_url, plain, plain_json, splits_login
from sqlqueue_spark.receive.reading.slices import JOINT_SCHEMA
from sqlqueue_spark.send.compose.header_shapes import alike
from sqlqueue_spark.send.compose.received import _RESULT
from sqlqueue_spark.send.waiting import delayed_mover
from sqlqueue_spark.tables.delayed import Due
from sqlqueue_spark.tables.outbox_keys import keys, may_stand_as_it_is
from tests.unit.test_structure import PACKAGE, name_of, text

STACK = "Return Message: Traceback (most recent call last):\n"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: What is put there again and again.
FILLERS = [*' \t\\",:{}[]1a@/;=\0', "\r\n", "\\\\", '\\"', '"a":"b",', "\u200b", "\ufeff", "\xa0"]
#: Headers, cut at each place where something may stand, and other texts.
HEADERS = (
    f'{{|"|NServiceBus.MessageId|"|:|"|7|"|,|"{FORWARD_DESTINATION}"|:|"|billing|"|,|"NServiceBus.FailedQ"|'
    ':|"orders"|}'
).split("|")
TEXTS = 'a|://|u|:|p|@|h|[|dbo|]|@|"s"|.|"t"|;|password|=|x'.split("|")
#: A few characters at first: what takes quadratic time fails there, and does not hang at the long ones.
FEW, MANY = 10_000, 1_000_000
#: The seconds of a processor that each may take. What is linear takes a tenth of it.
MOST_OF_FEW, MOST_OF_MANY = 0.1, 2.0


def mended(given):
    """Headers as a message is changed on its way: what is poison stays as it is."""
    headers = parse_headers(given)
    if headers is not None and "{" in given:
        without_headers(given, ONE_HOP)
        in_transit_to(headers)
        goes_elsewhere(headers, "orders")
        changed_headers(given, ["a"], {"b": "c"}, row_id="7")
        retry_headers(given, queue="q", row_id="7", origin="o", now=NOW, due=NOW)
        waiting_headers(given, queue="q", row_id="7", origin="o", now=NOW, latest=NOW, database="d")
        audit_headers(given, endpoint="e", row_id="7", started=NOW, ended=NOW, acknowledged=True)
    return headers


def failing(given):
    failed = failed_headers(given, Failure(exception_type="X"), queue="q", endpoint="q", row_id="7")
    assert put_back_headers(failed) is not None
    put_back_headers(given)


def looked_at(given):
    ErrorRow.of(1, "7", expired=False, headers=given, size=0, unreadable_body=False)
    MessageSelection(ids=frozenset({"x"})).fits("7", given)
    MessageSelection(types=frozenset({"x"})).fits("7", given)


def handled(given):
    row = {"Queue": "orders", "Id": "7", "RowVersion": 1, "Headers": given, "Body": b""}
    return [*received(pa.RecordBatch.from_pylist([row], JOINT_SCHEMA))]


def composed(given):
    """Beside an ordinary message, whose shape is learned."""
    ordinary = f'{{"NServiceBus.MessageId":"8","{FORWARD_DESTINATION}":"billing"}}'
    alike(pa.array([ordinary, given, ordinary], pa.string()), received=True)


def due(given):
    """As the table of delayed messages gives them: whole, or from the comma before the header on."""
    delayed_mover._read(Due("(0,1)", 0, given))
    delayed_mover._read(Due("(0,1)", 5, given[max(0, given.find(f',"{FORWARD_DESTINATION}')) :]))
    waits_for(given)


READERS = [mended, failing, looked_at, handled, composed, due, ascii_json]


def addressed(given):
    naming = Naming(default_schema="dbo", quoted_addresses=True)
    for read in (naming.table, Address.parse, Table.from_text):
        with contextlib.suppress(ConfigurationError):
            read(given)
    naming.written(given)


def told(given):
    """An error of a server, of Spark or of a handler, with a stranger's text in it."""
    for each in (given, f"sqlqueue_spark.errors.QueueError: {given}", f"{STACK} {given}\n"):
        why(ValueError(each))
    for each in (given, f'database "{given}'):
        POSTGRESQL.kind(DriverError(None, None, each))
    SQLSERVER.kind(DriverError("42000", 102, given))
    Failure.of(QueueError(given))


def meant(given):
    """A text of a header, or of a column of a table."""
    parse_time(given)
    parse_time_span(given)
    type_names(given)
    Origin.of("7", 1, given)
    _RESULT.fullmatch(given)
    may_stand_as_it_is(given)
    keys(pa.array([given], pa.string()), given)


def connecting(given):
    """A url by which a user of SQL connects."""
    for each in (given, f"mssql:{given}", f"postgresql://{given}"):
        is_url(each)
        holds_password(each)
        splits_login(each)
        SQLSERVER.speaks(each)
    with contextlib.suppress(ConfigurationError):
        OdbcString.of(f"Server={given}")


#: Fewer, because these read no JSON.
FILLERS_OF_TEXTS = [*' \n\\":]1a@/;=\0']
READERS_OF_TEXTS = [addressed, told, meant, connecting]


def seconds(read, given, *, few=1):
    """How long a processor works for it, at best of a few times."""
    took = []
    for _ in range(few):
        began = time.process_time()
        read(given)
        took.append(time.process_time() - began)
    return min(took)


def grown(pieces, place, filler, count):
    return "".join([*pieces[:place], filler * (count // len(filler)), *pieces[place:]])


def slow(read, given, most):
    """Whether it takes longer, three times running: once may be chance."""
    return seconds(read, given) > most and seconds(read, given, few=2) > most


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    "read, pieces, fillers",
    [
        *((each, HEADERS, FILLERS) for each in READERS),
        *((each, TEXTS, FILLERS_OF_TEXTS) for each in READERS_OF_TEXTS),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_million_odd_characters_are_read_in_linear_time_wherever_they_stand(read, pieces, fillers):
    read("".join(pieces))  # what is compiled or imported once
    places = [(place, filler) for place in range(len(pieces) + 1) for filler in fillers]
    for places_, count, most in (places, FEW, MOST_OF_FEW), (places[::31], MANY, MOST_OF_MANY):
        assert [each for each in places_ if slow(read, grown(pieces, *each, count), most)] == []


@pytest.mark.parametrize("place", range(len(HEADERS) + 1))
def test_a_million_blanks_are_no_headers_and_change_none(place):
    text = grown(HEADERS, place, " ", MANY)
    if (headers := parse_headers(text)) is None:
        return
    left = without_headers(text, {FORWARD_DESTINATION})
    assert parse_headers(left) == {
        name: each for name, each in headers.items() if name != FORWARD_DESTINATION
    }


def test_headers_nested_beyond_reason_are_poison_to_all_who_read_them():
    for opened, closed in itertools.product(("[", '{"a":', '{"a":['), ("", "}", "]")):
        text = opened * 100_000 + closed * 100_000
        assert mended(text) is None
        for read in (*READERS[1:], *READERS_OF_TEXTS):
            read(text)


@pytest.mark.parametrize("read", READERS)
def test_ten_times_the_headers_take_ten_times_as_long(read):
    def headers(count):
        return "{" + ",".join(f'"h{number}" : "v{number}"' for number in range(count)) + "}"

    read(headers(10))
    few, many = (seconds(read, headers(count), few=3) for count in (2_000, 20_000))
    assert many < 40 * max(few, 0.001)


@pytest.mark.parametrize(
    "begin, again",
    [
        *(("", STACK), ("", f" {STACK}"), ("", 'database "'), ("", "(1)"), ("", "sqlqueue_spark.errors.")),
        *(("a://", ":"), ("a://", "/"), ("mssql:;", " "), ("mssql:;", "pass"), ("mssql:", "?password")),
    ],
)
def test_what_begins_again_and_again_is_read_once(begin, again):
    text = begin + again * (5 * FEW // len(again))
    assert [read.__name__ for read in READERS_OF_TEXTS if slow(read, text, 2 * MOST_OF_FEW)] == []


def test_a_million_characters_that_show_nothing_are_escaped():
    text = "\x9b" * MANY
    assert plain(text) == r"\x9b" * MANY
    assert plain_json(text) == r"\u009b" * MANY
    assert not slow(for_shell, text, MOST_OF_MANY)


def test_a_long_text_is_not_remembered():
    known = message._type_names.cache_info().currsize
    assert type_names("a" * MANY) == ("a" * MANY,)
    assert message._type_names.cache_info().currsize == known


#: What each expression of the package meets, two of them again and again.
ODD = [*' \na1"\\;=:/([,{-.', "pass", "\u200b"]
_MATCHING = {"match", "search", "fullmatch"}
_FINDING = {"finditer", "findall", "sub", "split"}


def expressions():
    """The regular expressions that stand in the package as they are, each with a way in which it is used."""
    for file in sorted(PACKAGE.rglob("*.py")):
        named, used = {}, []
        for node in ast.walk(ast.parse(text(file))):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                named[node.targets[0].id] = node.value
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.append((node.value.id, node.attr))
            elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                way, given = ast.unparse(node.func).removeprefix("re."), node.args[:1]
                if way in _MATCHING | _FINDING and given and isinstance(given[0], ast.Constant):
                    yield f"{file.stem} {node.lineno}", re.compile(str(given[0].value)), way
        used = [(name, way) for name, way in used if name in named and way in _MATCHING | _FINDING]
        module = importlib.import_module(name_of(file)) if used else None
        for name, way in used:
            if isinstance(found := getattr(module, name, None), re.Pattern):
                yield f"{file.stem} {name}", found, way


def _used(pattern, way, given):
    return [*pattern.finditer(given)] if way in _FINDING else getattr(pattern, way)(given)


@pytest.mark.tier("all")
def test_each_expression_of_the_package_is_linear_in_odd_characters():
    half = FEW // 2
    odds = [
        odd
        for one, other in itertools.product(ODD, ODD)
        for odd in ((one + other) * half, one + other * half + "\0", other * half + one)
    ]
    found = [*expressions()]
    wrong = {}
    for name, pattern, way in found:
        use = functools.partial(_used, pattern, way)
        given = odds if isinstance(pattern.pattern, str) else [odd.encode() for odd in odds]
        if (odd := next((each for each in given if slow(use, each, MOST_OF_FEW)), None)) is not None:
            wrong[name] = odd[:20]
    assert wrong == {}
    assert len(found) > 50
