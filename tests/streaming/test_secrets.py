"""No password is told by Spark's UI, event log, logs or plans, checkpoints, errors, lists of processes."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.support.children import started
from tests.support.drivers.death import kill_session
from tests.support.postgresql import PostgresEngine, fresh_database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: In each password, and in no other text. However the rest of a password is written, this stays as it is.
WORD = "xyzzy"
NAMES = ("url", "option", "elsewhere")


def password(name):
    return f"{WORD}-{name} pl/u&g%h"


@pytest.fixture
def logins(server, database_url):
    """Urls and passwords, most of them of logins that may receive and send."""
    own = PostgresEngine(database_url)
    with fresh_database(server.url(), f"{database_url.rpartition('/')[2]}_other") as other_url:
        other = PostgresEngine(other_url)
        for engine in (own, other):
            for name in ("orders", "handled", "billing", "error", "other"):
                engine.create_queue(name)
            outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Telling")
        for name in ("orders", "handled"):
            own.queue(name).insert(5)
        urls = {}
        for name, engine in zip(NAMES, (own, own, other), strict=True):
            role = f"telling_{name}_{os.getpid()}"
            for statement in (
                f"CREATE ROLE {role} LOGIN PASSWORD '{password(name)}'",
                f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
                f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
            ):
                engine.execute(statement)
            database = engine.url.rpartition("/")[2]
            urls[name] = server.url(database, user=role, password=password(name))
        try:
            yield {
                **urls,
                "bare": urls["option"].replace(f":{quote(password('option'), safe='')}@", "@"),
                "password": password("option"),
                "token": password("token"),
                "wrong": urls["url"].replace(f"{WORD}-url", f"{WORD}-wrong"),
                "nowhere": urls["url"].replace(f":{server.port}/", ":1/"),
                "unreadable": f"postgresql://me:{password('unreadable')}@127.0.0.1:{server.port}/shop",
            }
        finally:
            for name, engine in zip(NAMES, (own, own, other), strict=True):
                engine.execute(f"DROP OWNED BY telling_{name}_{os.getpid()}")
                engine.execute(f"DROP ROLE telling_{name}_{os.getpid()}")


@contextlib.contextmanager
def watched_processes() -> Iterator[set[bytes]]:
    """The command lines of all processes that run within the block."""
    found: set[bytes] = set()
    done = threading.Event()

    def look():
        while not done.wait(0.05):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    found.add(file.read_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        done.set()
        looking.join()


def telling(files):
    return sorted(str(each) for each in files if each.is_file() and WORD.encode() in each.read_bytes())


def test_spark_and_jobs_tell_no_password(logins, tmp_path):
    """A stream, a sink, a writer, views of SQL, a job: by right logins and wrong ones."""
    with watched_processes() as commands:
        arguments = ["--folder", str(tmp_path)]
        child, said = started("telling", "", arguments, tmp_path, {"LOGINS": json.dumps(logins)})
        try:
            assert child.wait(300) == 0, said.read_text()[-5000:]
        finally:
            kill_session(child.pid)
    files = [*tmp_path.rglob("*")]
    assert {"ui-rest-environment.txt", "ui-rest-sql.txt", "said-0.txt"} <= {each.name for each in files}
    assert telling(files) == []
    assert [each for each in commands if WORD.encode() in each] == []
    told = said.read_text()  # all of it has run, and some has failed
    words = (
        "ended True",
        " failed=5",
        "refused the login of",
        "refused the Microsoft",
        "No database answers",
    )
    assert [told.count(each) for each in words] == [2, 2, 5, 3, 6]


COMMANDS = [
    ("length", "orders"),
    ("peek", "orders", "--debug"),
    ("inspect", "nowhere", "--debug"),
    ("doctor", "orders", "--json"),
    ("drain", "orders", "--into", "/nowhere", "--debug"),
]


@pytest.mark.parametrize(
    "login",
    [
        *("url", "bare"),
        *(
            pytest.param(each, marks=pytest.mark.tier("nightly"))
            for each in ("wrong", "nowhere", "unreadable")
        ),
    ],
)
def test_commands_tell_no_password(logins, login):
    """Those that fail do so with the trace of the error."""
    sqlqueue = str(Path(sys.executable).parent / "sqlqueue")
    environment = os.environ | {"SQLQUEUE_URL": logins[login]}
    if login == "bare":
        environment["SQLQUEUE_PASSWORD"] = password("wrong")
    said = []
    with watched_processes() as commands:
        for command in COMMANDS:
            if command[0] == "drain" and login == "url":
                continue
            ran = subprocess.run([sqlqueue, *command], env=environment, capture_output=True, check=False)
            said += [ran.stdout, ran.stderr]
    typed = [sqlqueue, "length", "orders", "--debug", "--url", logins[login]]
    said.append(subprocess.run(typed, capture_output=True, check=False).stderr)
    assert [each for each in said if WORD.encode() in each] == []
    assert [each for each in commands if WORD.encode() in each] == []
