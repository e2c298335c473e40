"""Which kind an error of a driver is: what may be tried again, and what may not."""

import pytest

from sqlqueue_spark.engines.driver_errors import Doing, DriverError, Kind, fail
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.errors import QueueError, SqlQueueError


@pytest.mark.parametrize(
    "sqlstate, number, kind",
    [
        ("IMC06", None, Kind.CONNECTION_LOST),
        ("IMC01", 0, Kind.CONNECTION_LOST),
        ("IM002", None, Kind.OTHER),
        ("08S01", 10054, Kind.CONNECTION_LOST),
        ("HY000", 596, Kind.CONNECTION_LOST),
        *[("42000", number, Kind.NOT_REACHED) for number in (942, 954, 976, 978, 983, 17197)],
        *[("42000", number, Kind.NOT_READY) for number in (927, 955, 956)],
        ("42000", 1204, Kind.TOO_LARGE),
        ("25000", 3906, Kind.READ_ONLY),
        *[("42000", number, Kind.TAKES_NOTHING) for number in (1101, 1105, 9001, 9002, 5149, 40544, 1132)],
        *[("42000", number, Kind.TOO_LARGE) for number in (802, 3958, 3966)],
        ("42000", 7105, Kind.CONNECTION_LOST),
        ("08004", 916, Kind.NO_RIGHT),
        ("42000", 921, Kind.NOT_READY),
        ("42000", 40549, Kind.CONNECTION_LOST),
        *[("42000", number, Kind.SESSION_TOO_LARGE) for number in (40550, 40551, 40552, 40553)],
        *[("42000", number, Kind.GAVE_WAY) for number in (617, 845, 8628, 8651, 10922, 40501, 49919, 49920)],
        ("42000", 4014, Kind.CONNECTION_LOST),
        ("42000", 42108, Kind.NOT_READY),
        ("42000", 42109, Kind.NOT_READY),
        ("42000", 40613, Kind.NOT_READY),
        ("HY000", 1222, Kind.LOCK_TIMEOUT),
        ("42000", 40515, Kind.OTHER_DATABASE),
        ("42000", 102, Kind.NOT_UNDERSTOOD),
        ("42000", 156, Kind.NOT_UNDERSTOOD),
        ("42000", 195, Kind.NOT_UNDERSTOOD),
        ("42000", 319, Kind.NOT_UNDERSTOOD),
        ("HY000", 6005, Kind.NOT_READY),
        ("42000", 8645, Kind.TOO_LARGE),
        ("42000", 49918, Kind.GAVE_WAY),
        ("42000", 40540, Kind.CONNECTION_LOST),
        ("42000", 4221, Kind.NOT_READY),
        ("42000", 922, Kind.NOT_READY),
        ("28000", 18401, Kind.NOT_READY),
        ("42000", 10936, Kind.GAVE_WAY),
        ("42000", 701, Kind.TOO_LARGE),
        (None, None, Kind.OTHER),
        ("42000", 8114, Kind.OTHER),
    ],
)
def test_errors_of_sql_server_have_their_kind(sqlstate, number, kind):
    """What it says of a fail-over may be tried again."""
    assert SQLSERVER.kind(DriverError(sqlstate, number, "")) is kind


@pytest.mark.parametrize(
    "state, kind",
    [
        ("25006", Kind.READ_ONLY),
        *[(state, Kind.TAKES_NOTHING) for state in ("53100", "53400", "58000", "58030", "XX001", "XX002")],
        ("53200", Kind.TOO_LARGE),
        ("53300", Kind.TOO_MANY),
        ("55006", Kind.GAVE_WAY),
        ("40P01", Kind.DEADLOCK),
        *[(state, Kind.TABLE_TAKES_NOTHING) for state in ("0A000", "2200H", "55000")],
        ("42501", Kind.NO_RIGHT),
        ("23502", Kind.OTHER),
    ],
)
def test_errors_of_postgresql_have_their_kind(state, kind):
    """What refuses every row is told from what refuses one."""
    assert POSTGRESQL.kind(DriverError(state, None, "")) is kind


def test_a_policy_that_refuses_a_row_is_no_missing_right():
    said = 'new row violates row-level security policy for table "orders"'
    assert POSTGRESQL.kind(DriverError("42501", None, said)) is Kind.OTHER


def test_a_statement_that_was_prepared_for_another_type_is_tried_again():
    said = "cached plan must not change result type"
    assert POSTGRESQL.kind(DriverError("0A000", None, said)) is Kind.GAVE_WAY


def test_a_table_of_sql_server_without_another_number_takes_no_rows():
    said = "Arithmetic overflow error converting {} to data type bigint."
    kinds = [
        SQLSERVER.kind(DriverError("22003", 8115, said.format(what))) for what in ("IDENTITY", "expression")
    ]
    assert kinds == [Kind.TABLE_TAKES_NOTHING, Kind.OTHER]


def test_a_missing_openjson_is_no_missing_table():
    """A database with an old compatibility level says so of the function."""
    said = "[42S02] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]Invalid object name '{}'. (208)"
    kinds = [SQLSERVER.kind(DriverError("42S02", 208, said.format(name))) for name in ("OPENJSON", "orders")]
    assert kinds == [Kind.NOT_UNDERSTOOD, Kind.NO_TABLE]


@pytest.mark.parametrize(
    "said, kind",
    [
        ("FATAL:  the database system is starting up", Kind.NOT_READY),
        (
            "[libpq] Failed to update autocommit: ERROR:  no such order\nCONTEXT:  PL/pgSQL function no()",
            Kind.OTHER,
        ),
        ("[libpq] Failed to update autocommit: ERROR:  could not serialize access", Kind.GAVE_WAY),
        ("[libpq] Failed to update autocommit: ERROR:  deadlock detected", Kind.GAVE_WAY),
        ("server closed the connection unexpectedly", Kind.CONNECTION_LOST),
        ("SSL error: certificate verify failed", Kind.NOT_TRUSTED),
    ],
)
def test_errors_of_postgresql_without_a_state_have_a_kind(said, kind):
    """They are told by their words."""
    assert POSTGRESQL.kind(DriverError(None, None, said)) is kind


SAID = (
    'a database of role "postgres" failed; its password is a word, 1433 '
    "(PWD=%s;Server=a) postgresql://me:%s@a/pass"
)


def said(text, *secrets):
    with pytest.raises(SqlQueueError) as caught:
        fail(RuntimeError(text), Kind.OTHER, text, where="a", user="a", secrets=secrets)
    masked = str(caught.value.__cause__).removeprefix("RuntimeError: ")
    assert str(caught.value) == f"The database at a refused: {masked}."
    return masked


@pytest.mark.parametrize("secret", ["a", "pass", "password", "postgres", "word", "1433", "p4ss"])
def test_a_secret_that_is_an_ordinary_word_is_struck_out_only_where_a_connection_has_it(secret):
    """The gaps in other words would tell it."""
    assert said(SAID % (secret, secret), secret) == SAID % ("***", "***")


def test_any_other_secret_is_struck_out_wherever_it_stands():
    assert said("xhunter2x, 'hunter2', hunter2", "hunter2") == "x***x, '***', ***"


def test_a_secret_that_begins_another_one_leaves_nothing_of_it():
    assert (
        said("the tokens hunter2 and hunter2-and-more", "hunter2", "hunter2-and-more")
        == "the tokens *** and ***"
    )


@pytest.mark.parametrize(
    "doing, remedy",
    [
        (Doing("sending to", "orders@[public]@[shop]"), "with: sqlqueue create 'orders@[public]@[shop]'."),
        (
            Doing("sending to", "Sales.Delayed@[public]@[shop]"),
            "with: sqlqueue delayed create 'Sales@[public]@[shop]'.",
        ),
        ("staging in Shop.Outgoing@[public]", "again."),
    ],
)
def test_what_creates_a_missing_table_is_told_of_each_kind(doing, remedy):
    with pytest.raises(QueueError) as caught:
        fail(None, Kind.NO_TABLE, "it is gone", doing, where="a", user="a", secrets=())
    assert str(caught.value) == f"The table is not there while {doing} at a (it is gone); create it {remedy}"


def test_of_a_long_error_the_beginning_is_told():
    with pytest.raises(SqlQueueError) as caught:
        fail(RuntimeError(), Kind.OTHER, "x" * 100_000, where="a", user="a", secrets=())
    assert str(caught.value) == f"The database at a refused: {'x' * 10_000}."
