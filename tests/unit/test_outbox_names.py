"""What outbox tables are called, and what creates them, on each of the four engines."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.engines.engine_of_url import OUTBOX_DATABASES
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.tables.outbox import Outbox

APPROVED = Path(__file__).parent.parent / "approved" / "outbox_scripts"


def name(engine, endpoint, schema=None):
    database = OUTBOX_DATABASES[engine]
    return database.outbox_names(database.outbox_table(endpoint, schema))["outbox"]


@pytest.mark.parametrize(
    "dialect,expected",
    [
        ("sqlserver", "[dbo].[My_Endpoint_OutboxData]"),
        ("postgresql", '"public"."My_Endpoint_OutboxData"'),
        ("mysql", "`My_Endpoint_OutboxData`"),
        ("oracle", '"MY_ENDPOINT_OD"'),
    ],
)
def test_a_table_is_called_as_in_net_persistence(dialect, expected):
    assert name(dialect, "My.Endpoint") == expected


@pytest.mark.parametrize(
    "dialect,expected",
    [
        ("sqlserver", "[a]]b].[o'r]]d_`er\"?_OutboxData]"),
        ("postgresql", '"a]b"."o\'r]d_`er""?_OutboxData"'),
        ("mysql", "`a]b`.`o'r]d_``er\"?_OutboxData`"),
    ],
)
def test_a_hostile_endpoint_is_just_an_odd_name(dialect, expected):
    assert name(dialect, "o'r]d.`er\"?", "a]b") == expected


@pytest.mark.parametrize(
    "dialect,longest", [("sqlserver", 117), ("postgresql", 19), ("mysql", 53), ("oracle", 24)]
)
def test_an_endpoint_that_is_too_long_is_refused(dialect, longest):
    """The longest that fits has a table."""
    assert name(dialect, "x" * longest)
    with pytest.raises(ConfigurationError, match="choose a shorter name for the endpoint"):
        name(dialect, "x" * (longest + 1))


@pytest.mark.parametrize(
    "dialect,endpoint,message",
    [
        (
            "postgresql",
            "Shop.Sales.Ordering.Web",
            (
                "The endpoint 'Shop.Sales.Ordering.Web' gives its outbox table the prefix "
                "'Shop_Sales_Ordering_Web_', 24 characters long, but on PostgreSQL it has at most 20; choose "
                "a shorter name for the endpoint."
            ),
        ),
        (
            "postgresql",
            "注文注文注文注文注文注文注文注文",
            (
                "The endpoint '注文注文注文注文注文注文注文注文' calls its outbox table "
                "'注文注文注文注文注文注文注文注文_OutboxData', "
                "59 bytes long, but on PostgreSQL it has at most 50; choose a shorter name for the endpoint."
            ),
        ),
        (
            "oracle",
            "Größe",
            (
                "The endpoint 'Größe' is not all ASCII, but names of outbox tables on Oracle are; choose "
                "another name for the endpoint."
            ),
        ),
        ("mysql", "", "An outbox needs the name of an endpoint, which names its table; give one."),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_to_do(dialect, endpoint, message):
    with pytest.raises(ConfigurationError) as caught:
        name(dialect, endpoint)
    assert str(caught.value) == message


@pytest.mark.parametrize("mark", ["'", '"'])
def test_oracle_refuses_quotation_marks(mark):
    with pytest.raises(ConfigurationError, match="holds a quotation mark, which no name may on Oracle"):
        name("oracle", f"a{mark}b")


def test_postgresql_cuts_no_index_name():
    """Two of one table could become the same."""
    database = OUTBOX_DATABASES["postgresql"]
    names = database.outbox_names(database.outbox_table("ö" * 19))
    indexes = {names["dispatched"], names["dispatched_at"]}
    assert (len(indexes), max(len(each.strip('"').encode()) for each in indexes)) == (2, 62)


@pytest.mark.parametrize("dialect", OUTBOX_DATABASES)
def test_the_script_is_the_approved_one(dialect):
    result = CliRunner().invoke(main, ["outbox", "script", "Shop.Sales", "--engine", dialect])
    assert (result.exit_code, result.stderr) == (0, "")
    file = APPROVED / f"{dialect}.sql"
    if os.environ.get("SQLQUEUE_APPROVE"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(result.stdout, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == result.stdout


@pytest.mark.parametrize(
    "dialect,expected",
    [
        ("sqlserver", "CREATE TABLE [a]]b].[Sales_OutboxData] ("),
        ("postgresql", 'CREATE TABLE IF NOT EXISTS "a]b"."Sales_OutboxData" ('),
        ("mysql", "CREATE TABLE IF NOT EXISTS `a]b`.`Sales_OutboxData` ("),
        ("oracle", """EXECUTE IMMEDIATE 'CREATE TABLE "a]b"."SALES_OD" ("""),
    ],
)
def test_the_script_takes_a_schema(dialect, expected):
    assert expected in outbox_tables.script(dialect, "Sales", default_schema="a]b")


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        (["outbox", "script", "Sales"], "Missing option '--engine'."),
        (["outbox", "script", "Sales", "--engine", "db2"], "'db2' is not one of 'mysql', 'oracle',"),
        (["outbox", "create"], "Missing argument 'ENDPOINT'."),
        (["outbox", "create", "Sales"], "Missing option '--url'"),
        (["outbox", "cleanup", "Sales", "--keep", "week"], "'week' is not a duration above 0 like 500ms"),
        (
            ["outbox", "report", "postgresql://me:hunter2@x/y"],
            "a url stands where an endpoint's name is expected",
        ),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, complaint):
    result = CliRunner(env={"SQLQUEUE_URL": None}).invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert "hunter2" not in result.stderr


def test_an_unknown_engine_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        Outbox("Sales", engine="db2")
    assert str(caught.value) == (
        "There is no engine 'db2'; the engines are postgresql, sqlserver, mysql, oracle."
    )
