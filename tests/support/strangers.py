"""A stranger's tables: of a queue's shape, and each runs code of his when a row goes in. PostgreSQL only.

The stranger is the login ``attacker``. He may create tables in the schema ``lair`` and lets every login
insert into them. His code counts each time that it runs in a session of the login ``job``: by a sequence,
which keeps its number when the transaction is rolled back.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.embedded.programs import version
from tests.support.every_way import JOB, OWNER, EveryWay, furnished
from tests.support.kept_connections import connection_to
from tests.support.logins import logins
from tests.support.postgresql import PostgresEngine

ATTACKER, GANG, TEAM, LAIR = "attacker", "gang", "team", "lair"
#: The columns of a queue.
_COLUMNS = {
    "id": "uuid PRIMARY KEY",
    "expires": "timestamp",
    "headers": "text NOT NULL",
    "body": "bytea",
    "seq": "bigserial UNIQUE",
}


@dataclass(frozen=True)
class Arm:
    """A table that is no destination, and why.

    :param making: statements of the attacker; ``{t}`` is the table. Behind ``SET ROLE`` they are another's.
    :param reason: what the failure of a message says of the table.
    """

    making: Sequence[str]
    reason: str = "computes would run as this login"
    schema: str = LAIR


def queue(*more: str, **columns: str) -> str:
    """The statement that creates a queue, but for these columns; one without a type is left out."""
    parts = [f"{name} {type_}" for name, type_ in {**_COLUMNS, **columns}.items() if type_]
    return f"CREATE TABLE {{t}} ({', '.join([*parts, *more])})"


def trigger(when: str = "BEFORE INSERT", each: str = "ROW", *, more: str = "", runs: str = "fire()") -> str:
    kind = "CONSTRAINT TRIGGER" if "DEFERRABLE" in more else "TRIGGER"
    return f"CREATE {kind} evil {when} ON {{t}} {more} FOR EACH {each} EXECUTE FUNCTION {LAIR}.{runs}"


def _default(expression: str) -> Arm:
    """Nothing that we insert has the column ``extra``."""
    return Arm([queue(extra=f"text DEFAULT ({expression})::text")])


def _seq(default: str, kind: str = "bigint") -> Arm:
    return Arm([queue(seq=f"{kind} NOT NULL DEFAULT {default} UNIQUE")])


_OTHERS = "GRANT INSERT ON {t} TO PUBLIC"
_OF_OWNER = [
    "SET ROLE owner",
    queue(seq="bigint GENERATED ALWAYS AS IDENTITY"),
    _OTHERS,
    "GRANT TRIGGER ON {t} TO attacker",
    "SET ROLE attacker",
]

ARMS = {
    # -- what runs beside an insert
    "trigger before each row": Arm([queue(), trigger()], "trigger"),
    "trigger after each row": Arm([queue(), trigger("AFTER INSERT")], "trigger"),
    "trigger before the statement": Arm([queue(), trigger(each="STATEMENT")], "trigger"),
    "trigger after the statement": Arm([queue(), trigger("AFTER INSERT", "STATEMENT")], "trigger"),
    "trigger with its owner's rights": Arm([queue(), trigger(runs="fire_as_owner()")], "trigger"),
    "trigger in any case": Arm([queue(), trigger(), "ALTER TABLE {t} ENABLE ALWAYS TRIGGER evil"], "trigger"),
    "constraint trigger": Arm(
        [queue(), trigger("AFTER INSERT", more="DEFERRABLE INITIALLY DEFERRED")], "trigger"
    ),
    "rule also": Arm([queue(), "CREATE RULE evil AS ON INSERT TO {t} DO ALSO SELECT lair.ran()"], "rule"),
    "rule instead": Arm(
        [queue(), "CREATE RULE evil AS ON INSERT TO {t} DO INSTEAD SELECT lair.ran()"], "rule"
    ),
    "policy": Arm(
        [
            queue(),
            "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY evil ON {t} WITH CHECK (lair.one(headers) = 1)",
        ],
        "row-security polic",
    ),
    "forced policy": Arm(
        [
            queue(),
            "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE {t} FORCE ROW LEVEL SECURITY",
            "CREATE POLICY evil ON {t} FOR INSERT WITH CHECK (lair.one(headers) = 1)",
        ],
        "row-security polic",
    ),
    # -- defaults
    "default of seq": Arm([queue(seq="bigint NOT NULL DEFAULT lair.ran() UNIQUE")]),
    "default of seq by a nextval of his": _seq("lair.nextval('lair.runs'::regclass)"),
    "default of seq by what is done with its number": _seq("lair.passed(nextval('lair.kept_seq_seq'))"),
    "default of seq that finds its sequence": _seq("nextval(lair.named())"),
    "default of seq that adds": _seq("nextval('lair.kept_seq_seq') + lair.ran()"),
    "default of seq that is made an integer": _seq("lair.nextval('lair.runs'::regclass)", "integer"),
    "default of seq that takes another's number": _seq("nextval('public.billing_seq_seq')"),
    "default of seq that takes it as an integer": _seq("nextval('public.billing_seq_seq')", "integer"),
    "default of expires": Arm([queue(extra="timestamp DEFAULT now() + lair.ran() * interval '1 day'")]),
    "default of another column": _default("lair.ran()"),
    "default by an operator": _default("'a'::text OPERATOR(lair.@@@) 'b'::text"),
    "default by a domain": _default("'a'::text::lair.word"),
    "default by a cast to json": _default("to_json('red'::lair.colour)"),
    "default that rewrites a query": _default(
        "ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, lair.ran()::text::tsquery')"
    ),
    "default that queries": _default("query_to_xml('SELECT lair.ran()', false, false, '')"),
    "default that shows a view": _default("table_to_xml(('lair.' || 'looks')::regclass, false, false, '')"),
    "default that reads a word": _default("pg_input_is_valid('a', 'lair.word')"),
    "default that sets the path": _default("set_config('search_path', 'lair, pg_catalog', false)"),
    "default that takes another's number": _default("nextval('public.billing_seq_seq')"),
    "default that takes it from an array": _default("nextval(('{public.billing_seq_seq}'::regclass[])[1])"),
    "default that finds it by a text": _default("nextval(('{public.billing_seq_seq}'::text::regclass[])[1])"),
    "default that takes a lock": _default("pg_try_advisory_lock(4711)"),
    "default that ends sessions": _default("pg_terminate_backend(0)"),
    "default that waits": _default("pg_sleep(0.001)"),
    # -- constraints, generated columns, indexes
    "foreign key": Arm(
        [
            queue("k int DEFAULT 1 REFERENCES lair.computed"),
        ],
        "foreign key",
    ),
    "deferred foreign key": Arm(
        [queue("k int DEFAULT 1 REFERENCES lair.computed DEFERRABLE INITIALLY DEFERRED")], "foreign key"
    ),
    "check of a partition": Arm(
        [
            queue(),
            "CREATE TABLE lair.parts (n bigint) PARTITION BY HASH ((n + lair.one('')))",
            (
                "DO $$ BEGIN EXECUTE format('ALTER TABLE %s ADD CHECK "
                "(satisfies_hash_partition(%s::oid, 1, 0, seq) IS NOT NULL)', "
                "'{t}', 'lair.parts'::regclass::oid); END $$"
            ),
        ]
    ),
    "check": Arm([queue("CHECK (lair.one(headers) = 1)")]),
    "check of later rows": Arm(
        [queue(), "ALTER TABLE {t} ADD CONSTRAINT evil CHECK (lair.one(headers) = 1) NOT VALID"]
    ),
    "check that rewrites a query": Arm(
        [
            queue(
                "CHECK (ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, lair.ran()::text::tsquery') "
                "IS NOT NULL)"
            )
        ]
    ),
    "check that reads a word": Arm([queue("CHECK (pg_input_is_valid(headers, 'lair.word'))")]),
    "generated column": Arm([queue(extra="int GENERATED ALWAYS AS (lair.one(headers)) STORED")]),
    "index on an expression": Arm([queue(), "CREATE INDEX ON {t} (lair.one(headers))"]),
    "index on some rows": Arm([queue(), "CREATE INDEX ON {t} (seq) WHERE lair.one(headers) = 1"]),
    "index by a class of operators": Arm([queue(), "CREATE INDEX ON {t} (headers public.letters)"]),
    "exclusion": Arm([queue("EXCLUDE USING btree ((lair.one(headers) + seq) WITH =)")]),
    # -- types
    "domain": Arm([queue(headers="lair.word NOT NULL")], "column 'headers'"),
    "domain of a domain": Arm([queue(headers="lair.longer_word NOT NULL")], "column 'headers'"),
    "array of a domain": Arm(
        [queue(extra="lair.word[] DEFAULT ARRAY['a'::text]::lair.word[]")], "converts its column"
    ),
    "enum": Arm([queue(extra="lair.colour DEFAULT 'red'")], "converts its column"),
    "composite": Arm([queue(extra="lair.pair")], "converts its column"),
    # -- what is no table
    "view": Arm(
        [
            "CREATE VIEW {t} AS SELECT id, expires, headers, body, seq FROM lair.kept",
            trigger("INSTEAD OF INSERT"),
        ],
        "view",
    ),
    "view that checks": Arm(
        [
            (
                "CREATE VIEW {t} AS SELECT id, expires, headers, body, seq FROM lair.kept "
                "WHERE lair.one(headers) = 1 WITH CHECK OPTION"
            )
        ],
        "view",
    ),
    "foreign table": Arm(
        [
            (
                "CREATE FOREIGN TABLE {t} (id uuid, expires timestamp, headers text, body bytea, seq bigint) "
                "SERVER nowhere"
            )
        ],
        "foreign table",
    ),
    "partition": Arm(
        [
            (
                "CREATE TABLE lair.whole "
                "(id uuid, expires timestamp, headers text, body bytea, seq bigserial) PARTITION BY LIST "
                "(lair.one(headers))"
            ),
            "CREATE TABLE {t} PARTITION OF lair.whole FOR VALUES IN (1)",
        ],
        "partition",
    ),
    "partitioned table": Arm(
        [
            (
                "CREATE TABLE {t} (id uuid, expires timestamp, headers text, body bytea, seq bigserial) "
                "PARTITION BY LIST (lair.one(headers))"
            ),
            "CREATE TABLE lair.part PARTITION OF {t} FOR VALUES IN (1)",
        ],
        "partition",
    ),
    "child": Arm(
        [
            "CREATE TABLE lair.parent (headers text NOT NULL, CHECK (lair.one(headers) = 1))",
            f"{queue(headers='')} INHERITS (lair.parent)",
        ],
        "check",
    ),
    # -- tables of others
    "trigger on the owner's table": Arm(
        [*_OF_OWNER, trigger()],
        "trigger",
        "public",
    ),
    "condition of a trigger on the owner's table": Arm(
        [
            *_OF_OWNER,
            (
                "CREATE TRIGGER evil BEFORE INSERT ON {t} FOR EACH ROW "
                "WHEN (lair.one(NEW.headers) = 0) EXECUTE FUNCTION public.by_owner()"
            ),
        ],
        "trigger",
        "public",
    ),
    "condition that rewrites a query": Arm(
        [
            *_OF_OWNER,
            (
                "CREATE TRIGGER evil BEFORE INSERT ON {t} FOR EACH ROW WHEN (ts_rewrite('a'::tsquery, "
                "'SELECT ''a''::tsquery, lair.ran()::text::tsquery') IS NULL) "
                "EXECUTE FUNCTION public.by_owner()"
            ),
        ],
        "trigger",
        "public",
    ),
    "a group's table": Arm(["SET ROLE gang", queue(), _OTHERS, trigger()], "trigger"),
    # -- other tables, into which rows would fit
    "no seq": Arm(["SET ROLE owner", queue(seq=""), _OTHERS], "seq", "public"),
    "a seq of text": Arm(["SET ROLE owner", queue(seq="text DEFAULT ''"), _OTHERS], "seq", "public"),
}
if version() < 16:  # which has no function that reads a word
    ARMS = {name: each for name, each in ARMS.items() if "reads a word" not in name}
#: What the ways other than a sink's are tried with.
FEW = ("trigger before each row", "constraint trigger", "view")

_FUNCTION = "CREATE FUNCTION lair.{} LANGUAGE plpgsql AS $$ BEGIN {} END $$"
#: What there is beside the tables.
_OF_ADMINISTRATOR = (
    "CREATE SCHEMA lair",
    "GRANT USAGE, CREATE ON SCHEMA lair TO attacker, gang",
    "GRANT USAGE ON SCHEMA lair TO PUBLIC",
    "GRANT USAGE, CREATE ON SCHEMA public TO owner",
    "CREATE FOREIGN DATA WRAPPER none",
    "CREATE SERVER nowhere FOREIGN DATA WRAPPER none",
    "GRANT USAGE ON FOREIGN SERVER nowhere TO attacker",
    "SET ROLE owner",
    "CREATE FUNCTION public.by_owner() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
)
_OF_ATTACKER = (
    "CREATE TABLE lair.kept (id uuid, expires timestamp, headers text, body bytea, seq bigserial)",
    "CREATE SEQUENCE lair.runs",
    "GRANT USAGE ON SEQUENCE lair.runs TO PUBLIC",
    _FUNCTION.format(
        "ran() RETURNS int",
        "IF session_user <> 'job' THEN RETURN 0; END IF; RETURN nextval('lair.runs');",
    ),
    _FUNCTION.format("one(text) RETURNS int IMMUTABLE", "PERFORM lair.ran(); RETURN 1;"),
    _FUNCTION.format("nextval(regclass) RETURNS bigint", "RETURN lair.ran();"),
    _FUNCTION.format("passed(bigint) RETURNS bigint", "PERFORM lair.ran(); RETURN $1;"),
    _FUNCTION.format("named() RETURNS regclass", "PERFORM lair.ran(); RETURN 'lair.kept_seq_seq';"),
    _FUNCTION.format(
        "compared(text, text) RETURNS int IMMUTABLE", "PERFORM lair.ran(); RETURN bttextcmp($1, $2);"
    ),
    _FUNCTION.format("both(text, text) RETURNS int IMMUTABLE", "RETURN lair.one($1);"),
    _FUNCTION.format("fire() RETURNS trigger", "PERFORM lair.ran(); RETURN NEW;"),
    _FUNCTION.format("fire_as_owner() RETURNS trigger SECURITY DEFINER", "PERFORM lair.ran(); RETURN NEW;"),
    "CREATE TABLE lair.computed (k int PRIMARY KEY)",
    "INSERT INTO lair.computed VALUES (1)",
    "CREATE INDEX ON lair.computed (k) WHERE lair.one('') = 1",
    "CREATE VIEW lair.looks AS SELECT lair.ran()",
    "GRANT SELECT ON lair.looks TO PUBLIC",
    "CREATE OPERATOR lair.@@@ (LEFTARG = text, RIGHTARG = text, FUNCTION = lair.both)",
    "CREATE DOMAIN lair.word AS text CHECK (lair.one(VALUE) = 1)",
    "CREATE DOMAIN lair.longer_word AS lair.word",
    "CREATE TYPE lair.colour AS ENUM ('red')",
    "CREATE TYPE lair.pair AS (a text)",
    _FUNCTION.format("shown(lair.colour) RETURNS json", "PERFORM lair.ran(); RETURN '{}';"),
    "CREATE CAST (lair.colour AS json) WITH FUNCTION lair.shown(lair.colour)",
)
#: Only an administrator can make a class of operators. This one has a function of the attacker.
_LETTERS = """
CREATE OPERATOR CLASS public.letters FOR TYPE text USING btree AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 lair.compared(text, text)
"""
#: A table, an index that brings the names of ``lair`` before the server's, in each session that looks into
#: it, and what has these names.
TURN = "CREATE INDEX IF NOT EXISTS turning ON lair.keys (k) WHERE lair.turned(1) = 1"
NAMES = (
    "CREATE SEQUENCE lair.looked",
    _FUNCTION.format(
        "turned(int) RETURNS int IMMUTABLE",
        "PERFORM nextval('lair.looked'), set_config('search_path', 'lair, pg_catalog', false); RETURN 1;",
    ),
    "CREATE TABLE lair.keys (k int PRIMARY KEY)",
    "INSERT INTO lair.keys VALUES (1)",
    _FUNCTION.format(
        "as_job() RETURNS int",
        "IF current_user = 'job' THEN PERFORM pg_catalog.nextval('lair.runs'); END IF; RETURN 1;",
    ),
    _FUNCTION.format(
        "set_config(text, text, boolean) RETURNS text",
        "PERFORM lair.as_job(); RETURN pg_catalog.set_config($1, $2, $3);",
    ),
    _FUNCTION.format(
        "same(text, text) RETURNS boolean", "PERFORM lair.as_job(); RETURN $1 OPERATOR(pg_catalog.=) $2;"
    ),
    "CREATE OPERATOR lair.= (LEFTARG = text, RIGHTARG = text, FUNCTION = lair.same)",
    _FUNCTION.format(
        "unnest(text[]) RETURNS SETOF text",
        "PERFORM lair.as_job(); RETURN QUERY SELECT pg_catalog.unnest($1);",
    ),
)
#: Two schemas of his own: into ``shop`` leads an address, and ``trap`` takes its name when he likes.
SHOP, TRAP = "shop", "trap"
_OPEN = (
    "GRANT INSERT ON ALL TABLES IN SCHEMA lair TO PUBLIC",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA lair TO PUBLIC",
)


class Stranger:
    """The attacker in one database, over an administrator's connection.

    The roles ``attacker``, ``owner`` and ``gang`` must be there.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._run("postgres", *_OF_ADMINISTRATOR)
        self._run(ATTACKER, *_OF_ATTACKER)
        self._run("postgres", _LETTERS)

    def make(self, *names: str) -> None:
        """Create these tables."""
        for name in names:
            statements = [each.replace("{t}", self.address(name)) for each in ARMS[name].making]
            self._run(ATTACKER, *statements)
        self._run(ATTACKER, *_OPEN)
        self.ran()

    def make_schemas(self, owner: str = ATTACKER) -> None:
        """Create :data:`SHOP` with a plain table ``t``, and :data:`TRAP` with one that has a trigger.

        :param owner: the stranger, or a group of his.
        """
        ((database,),) = self._asked("SELECT current_database()")
        made = [f'GRANT CREATE ON DATABASE "{database}" TO attacker']
        for schema in (SHOP, TRAP):
            made += [
                f"DROP SCHEMA IF EXISTS {schema} CASCADE",
                f"CREATE SCHEMA {schema} AUTHORIZATION {owner}",
                f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC",
                f"SET ROLE {owner}",
                queue().replace("{t}", f"{schema}.t"),
                f"GRANT INSERT ON {schema}.t TO PUBLIC",
                f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO PUBLIC",
                "RESET ROLE",
            ]
        self._run("postgres", *made, f"SET ROLE {ATTACKER}", trigger().replace("{t}", f"{TRAP}.t"))

    def swap_schemas(self) -> None:
        """Let each of the two schemas have the name of the other. That waits for no lock on a table."""
        names = ((SHOP, "between"), (TRAP, SHOP), ("between", TRAP))
        self._run(ATTACKER, "; ".join(f"ALTER SCHEMA {old} RENAME TO {new}" for old, new in names))

    def make_plain(self, name: str) -> None:
        """Create a table that is a destination like others, until it is armed."""
        self._run(ATTACKER, queue().replace("{t}", self.address(name)), *_OPEN)

    def arm(self, name: str, *statements: str, most_ms: int = 0) -> bool:
        """Put a trigger, or what statements say, on a table, in one transaction.

        :param most_ms: how long it may wait for a lock; 0 is as long as it takes.
        :returns: whether it got the lock.
        """
        try:
            with self.arming(name, *statements, most_ms=most_ms):
                return True
        except psycopg.errors.LockNotAvailable:
            return False

    @contextlib.contextmanager
    def arming(self, name: str, *statements: str, most_ms: int = 0) -> Iterator[None]:
        """In this block the table is armed by a transaction, which commits at its end."""
        with psycopg.connect(self._url) as connection:
            connection.execute(f"SET lock_timeout = {int(most_ms)}".encode())
            connection.execute(f"SET ROLE {ATTACKER}".encode())
            for statement in statements or (trigger(),):
                connection.execute(statement.replace("{t}", self.address(name)).encode())
            yield

    def blocked(self) -> bool:
        """Whether a session waits for a lock."""
        return self._asked("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)") == [(True,)]

    def run(self, *statements: str) -> None:
        """Run and commit statements of the attacker."""
        self._run(ATTACKER, *statements)

    def drop(self, name: str) -> None:
        self._run(ATTACKER, f"DROP TABLE IF EXISTS {self.address(name)}")

    def address(self, name: str) -> str:
        """The address of a table as the transport writes it."""
        return f'"{ARMS[name].schema if name in ARMS else LAIR}"."{name}"'

    def ran(self) -> bool:
        """Whether code of the attacker has run in a session of the job since this was last asked."""
        found = self._asked("SELECT is_called FROM lair.runs")
        self._asked("SELECT setval('lair.runs', 1, false)")
        return found != [(False,)]

    def took(self, name: str) -> int:
        """How many rows have gone into a table since this was last asked."""
        table = {"foreign table": "", "view": "lair.kept", "view that checks": "lair.kept"}
        with connection_to(self._url) as connection:
            found = table.get(name, self.address(name))
            return connection.execute(f"DELETE FROM {found}".encode()).rowcount if found else 0

    def _asked(self, query: str) -> list[tuple[Any, ...]]:
        with connection_to(self._url) as connection:
            return connection.execute(query.encode()).fetchall()

    def _run(self, role: str, *statements: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            for statement in statements:
                connection.execute(statement.encode())


@dataclass(frozen=True)
class Scene(EveryWay):
    """One database, with the stranger's tables in it."""

    stranger: Stranger

    def clear(self) -> None:
        super().clear()
        self.stranger.ran()


@contextlib.contextmanager
def cast(server: EmbeddedServer) -> Iterator[None]:
    """Within the block all logins are there. ``gang`` is of stranger and job, ``team`` the stranger's own."""
    with logins(server, ATTACKER, GANG, TEAM, "monitor", OWNER, JOB):
        PostgresEngine(server.url()).execute(f"GRANT {GANG} TO {ATTACKER}, {JOB}; GRANT {TEAM} TO {ATTACKER}")
        yield


@contextlib.contextmanager
def inhabited(server: EmbeddedServer, name: str, *arms: str) -> Iterator[Scene]:
    """A new database for a module, with these tables of the stranger."""
    with furnished(server, name) as ways:
        stranger = Stranger(ways.admin.url)
        stranger.make(*arms)
        yield Scene(ways.admin, ways.job, stranger)
