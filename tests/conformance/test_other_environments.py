"""A worker reaches the database that the driver reaches, whatever the environment of its machine says."""

import pickle
from contextlib import closing

import pytest
from psycopg.conninfo import conninfo_to_dict

from sqlqueue_spark.engines.open_connection import Target, connect
from sqlqueue_spark.engines.postgresql.connection import PostgresReader
from sqlqueue_spark.options import ConnectionOptions

#: The environment of a machine from which no database of the test would be reached.
ELSEWHERE = {
    "PGHOST": "127.0.0.9",
    "PGHOSTADDR": "127.0.0.9",
    "PGOPTIONS": "-c work_mem=64kB",
    "PGPORT": "1",
    "PGSSLMODE": "require",
    "PGUSER": "stranger",
}
_REACHED = "SELECT current_database()::text, current_user::text, current_setting('work_mem')"
_MEMORY = "4MB"


@pytest.fixture
def parts(postgresql):
    """The parameters of libpq's connection string."""
    return conninfo_to_dict(postgresql.url)


def reached(options):
    """The databases of a connection, and of one that reads Arrow."""
    target = Target.of(options)
    with connect(target) as connection, closing(PostgresReader(target)) as reader:
        found = list(connection.execute(_REACHED))
        with reader._raw.read(_REACHED, 1 << 20) as rows:
            return {*found, *zip(*rows.read_all().to_pydict().values(), strict=True)}


def on_a_worker(monkeypatch, options, **environment):
    """The databases that a worker reaches by the driver's options, in another environment."""
    travels = pickle.dumps(options)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return reached(pickle.loads(travels))  # noqa: S301 -- our own


def test_the_driver_s_environment_names_the_database(parts, elsewhere, monkeypatch):
    for name in ("host", "port", "user", "dbname"):
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(parts[name]))
    options = ConnectionOptions.parse({"url": "postgresql://", "password": parts["password"]})
    others = ELSEWHERE | {"PGDATABASE": conninfo_to_dict(elsewhere.url)["dbname"]}
    assert on_a_worker(monkeypatch, options, **others) == {(parts["dbname"], parts["user"], _MEMORY)}


def test_the_database_of_the_login_s_name_is_meant_where_the_driver_names_none(parts, elsewhere, monkeypatch):
    url = "postgresql://{user}:{password}@{host}:{port}".format(**parts)
    options = ConnectionOptions.parse({"url": url})
    others = ELSEWHERE | {"PGDATABASE": conninfo_to_dict(elsewhere.url)["dbname"]}
    assert on_a_worker(monkeypatch, options, **others) == {(parts["user"], parts["user"], _MEMORY)}
