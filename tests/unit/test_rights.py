"""Which rights a login has, and the script that gives it those of a role: the whole text,
for both engines and for odd names.
"""

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import QueueError
from sqlqueue_spark.tables.rights import Rights, held
from tests.support.answers import TABLE, answering, rights_of

QUEUE, USER = 'o"r]d{0}ers\n@sales', 'SHOP\\s"a]{x}'
SCRIPTS = {
    ("postgresql", "receiver", "--stream", "Forward"): """\
GRANT USAGE ON SCHEMA "sales" TO {user};
GRANT SELECT ON {queue} TO {user};
GRANT UPDATE (id) ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};
GRANT USAGE ON SCHEMA "shop" TO {user};
GRANT SELECT ON "shop"."Forward.Outgoing" TO {user};
GRANT INSERT ON "shop"."Forward.Outgoing" TO {user};
GRANT UPDATE (mark) ON "shop"."Forward.Outgoing" TO {user};
GRANT TRUNCATE ON "shop"."Forward.Outgoing" TO {user};
GRANT USAGE ON SEQUENCE "shop"."Forward.Outgoing_seq_seq" TO {user};
""",
    ("postgresql", "sender", "--endpoint", "Sales.Spark"): """\
GRANT USAGE ON SCHEMA "sales" TO {user};
GRANT INSERT ON {queue} TO {user};
GRANT USAGE ON SEQUENCE {sequence} TO {user};
GRANT USAGE ON SCHEMA "shop" TO {user};
GRANT SELECT ON "shop"."Sales_Spark_OutboxData" TO {user};
GRANT INSERT ON "shop"."Sales_Spark_OutboxData" TO {user};
GRANT UPDATE ("PersistenceVersion") ON "shop"."Sales_Spark_OutboxData" TO {user};
GRANT DELETE ON "shop"."Sales_Spark_OutboxData" TO {user};
""",
    ("postgresql", "installer"): """\
GRANT USAGE ON SCHEMA "sales" TO {user};
GRANT CREATE ON SCHEMA "sales" TO {user};
""",
    ("sqlserver", "receiver", "--stream", "Forward"): """\
GRANT SELECT ON {queue} TO {user};
GRANT DELETE ON {queue} TO {user};
GRANT SELECT ON [shop].[Forward.Outgoing] TO {user};
GRANT INSERT ON [shop].[Forward.Outgoing] TO {user};
GRANT UPDATE (Headers) ON [shop].[Forward.Outgoing] TO {user};
GRANT ALTER ON [shop].[Forward.Outgoing] TO {user};
""",
    ("sqlserver", "sender", "--endpoint", "Sales.Spark"): """\
GRANT INSERT ON {queue} TO {user};
GRANT SELECT ON [shop].[Sales_Spark_OutboxData] TO {user};
GRANT INSERT ON [shop].[Sales_Spark_OutboxData] TO {user};
GRANT DELETE ON [shop].[Sales_Spark_OutboxData] TO {user};
""",
    ("sqlserver", "installer"): """\
GRANT CREATE TABLE TO {user};
GRANT ALTER ON SCHEMA::[sales] TO {user};
""",
}
NAMES = {
    "postgresql": {
        "queue": '"sales"."o""r]d{0}ers\n"',
        "sequence": '"sales"."o""r]d{0}ers\n_seq_seq"',
        "user": '"SHOP\\s""a]{x}"',
    },
    "sqlserver": {"queue": '[sales].[o"r]]d{0}ers\n]', "user": '[SHOP\\s"a]]{x}]'},
}


def run(*arguments):
    return CliRunner().invoke(main, ["script", *arguments])


@pytest.mark.parametrize("asked,script", SCRIPTS.items(), ids=lambda each: "-".join(each[:2]))
def test_a_role_gets_exactly_its_rights(asked, script):
    engine, role, *more = asked
    arguments = ("--engine", engine, "--grants", USER, "--role", role, "--default-schema", "shop", *more)
    result = run(QUEUE, *arguments)
    assert (result.exit_code, result.stdout) == (0, script.format(**NAMES[engine]))


def test_a_right_is_given_once_for_each_table():
    result = run(
        "Sales",
        "--instance",
        "A",
        "--with",
        "error",
        "--engine",
        "postgresql",
        "--grants",
        "shop",
        "--role",
        "sender",
    )
    assert result.stdout.splitlines() == [
        'GRANT USAGE ON SCHEMA "public" TO "shop";',
        *(
            line
            for name in ("Sales", "Sales.A", "error")
            for line in (
                f'GRANT INSERT ON "public"."{name}" TO "shop";',
                f'GRANT USAGE ON SEQUENCE "public"."{name}_seq_seq" TO "shop";',
            )
        ),
    ]


def test_sql_server_gets_rights_in_each_database():
    queues = ("a@dbo@[Ship]]ping]", "b", "c@dbo@[Ship]]ping]", "d@x@Billing")
    result = run(*queues, "--engine", "sqlserver", "--grants", "shop", "--role", "installer")
    assert result.stdout == (
        "GRANT CREATE TABLE TO [shop];\n"
        "GRANT ALTER ON SCHEMA::[dbo] TO [shop];\n"
        "USE [Billing];\n"
        "GRANT CREATE TABLE TO [shop];\n"
        "GRANT ALTER ON SCHEMA::[x] TO [shop];\n"
        "USE [Ship]]ping];\n"
        "GRANT CREATE TABLE TO [shop];\n"
        "GRANT ALTER ON SCHEMA::[dbo] TO [shop];\n"
    )


def test_a_catalog_stays_in_grants_of_postgresql():
    """The server itself refuses rights in another database."""
    result = run("a@public@shop", "--engine", "postgresql", "--grants", "shop", "--role", "receiver")
    assert 'GRANT DELETE ON "shop"."public"."a" TO "shop";\n' in result.stdout


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        (["--grants", "shop"], "--grants and --role belong together"),
        (["--role", "sender"], "--grants and --role belong together"),
        (["--grants", "shop", "--role", "owner"], "'owner' is not one of 'receiver', 'sender', 'installer'."),
        (["--endpoint", "Sales"], "--endpoint belongs to --grants USER --role sender."),
        (["--grants", "shop", "--role", "receiver", "--endpoint", "Sales"], "--endpoint belongs to"),
        (
            ["--grants", "shop", "--role", "sender", "--stream", "S"],
            "--stream belongs to --role receiver, or to no role.",
        ),
    ],
)
def test_rights_that_no_person_can_mean_are_wrong_usage(arguments, complaint):
    result = run("orders", "--engine", "sqlserver", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        (
            ["x" * 56, "--role", "receiver"],
            "is 56 bytes long, but a queue table on PostgreSQL has at most 55",
        ),
        (["orders", "--role", "sender", "--endpoint", "x" * 20], "it has at most 20; choose a shorter name"),
        (["orders", "--role", "receiver", "--stream", "x" * 41], "which is longer than the 40 bytes"),
    ],
)
def test_a_name_that_would_be_cut_is_refused(arguments, complaint):
    result = run(*arguments, "--engine", "postgresql", "--grants", "shop")
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_a_right_that_is_not_told_counts_as_held():
    given = answering(rights=rights_of(True, None, False))
    assert held(given, TABLE) == Rights(user="shop", receiver_lacks=(), sender_lacks=("INSERT",))
    assert given.asked == {"rights": {"database": "Shop]s", "object_id": 42}}


def test_a_table_that_was_just_dropped_is_an_error_with_its_remedy():
    with pytest.raises(QueueError, match=r"^orders@\[dbo\]@\[Shop\]\]s\] was just dropped; create it with: "):
        held(answering(rights=[]), TABLE)
