"""What people install: the wheel holds all of the package,
and each of its commands runs outside the clone.
"""

import colorsys
import json
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

import pytest

from tests.support import delta
from tests.support.messages import message_ids
from tests.support.postgresql import PostgresEngine, fresh_database
from tests.support.quick_java import quick
from tests.support.wheel import ROOT

#: Messages into two tables, to another database, to a handler,
#: and those that are stored for the other database.
JOBS = [
    "archive failed --into delta/failed --take --checkpoint c/archive --available-now",
    "drain orders --into delta/drained --available-now",
    (
        "forward returns --to Billing --function shop:routed --endpoint F "
        "--create --checkpoint c/forward --available-now"
    ),
    (
        "handle claims --handler shop:handle --endpoint H --error-queue error --create --checkpoint "
        "c/handle --available-now"
    ),
    (
        "store-and-forward outgoing --endpoint S --error-queue error --create --checkpoint "
        "c/store --available-now"
    ),
]
#: Workers import a handler, and what a function of Spark's calls, by name from the working folder.
SHOP = """
from pyspark.sql import functions as F
from sqlqueue_spark.handling import Send

def handle(message):
    import colorsys
    return Send("Shipping", message.type, colorsys.__file__.encode())

def place(id):
    import colorsys
    return "Billing" if colorsys.__file__ == "{python}" else "nowhere"

def routed(messages):
    return messages.withColumn("Destination", F.udf(place, "string")("Id"))
""".replace("{python}", colorsys.__file__)
STORED = ("--type", "T", "--header", "$.store-and-forward.destination=Remote")
QUEUES = ("failed", "orders", "returns", "claims", "Shipping", "outgoing", "error")
#: One process after the other would start Spark five times.
PROGRAM = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from sqlqueue_spark.cli import main
    for command in sys.argv[1:]:
        main(command.split(), standalone_mode=False)
    import pyspark_sqlqueue, sqlqueue_spark
    print(*(Path(each.__file__).parent for each in (pyspark_sqlqueue, sqlqueue_spark)), file=sys.stderr)
""")


@pytest.fixture
def folder(tmp_path):
    """Where the commands run: with a module of the user's, and one that another user has put there."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "colorsys.py").touch()
    return tmp_path


@pytest.fixture
def remote(server):
    """A second database."""
    with fresh_database(server.url(), f"remote_{os.getpid()}") as url:
        yield PostgresEngine(url)


@pytest.fixture
def home():
    """A folder that pytest does not close to the server's user, when we are root."""
    made = Path(tempfile.mkdtemp(prefix="sqlqueue-home-"))
    yield made
    shutil.rmtree(made)


def ran(installed, folder, *command, **environment):
    """What a program says on stdout and on stderr; it must succeed."""
    ended = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env=installed.environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout, ended.stderr


def test_the_wheel_holds_every_file_of_the_package(installed):
    """Statements, settings of Spark and of its log, examples of configurations, and the mark of types."""
    files = (each for each in (ROOT / "sqlqueue_spark").rglob("*") if each.is_file())
    package = {str(each.relative_to(ROOT)) for each in files if "__pycache__" not in each.parts}
    assert installed.files == package | {"pyspark_sqlqueue.py"}
    suffixes = {Path(each).suffix for each in installed.files}
    assert suffixes == {".py", ".sql", ".toml", ".properties", ".conf", ".typed"}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_job_runs_from_the_wheel(installed, folder, postgresql, remote):
    """Nothing but the wheel is there: no file of the clone, no configuration of Spark."""
    environment = {"SQLQUEUE_URL": postgresql.url, "SQLQUEUE_SINK_URL": remote.url}
    ran(installed, folder, installed.sqlqueue, "create", *QUEUES, **environment)
    ran(installed, folder, installed.sqlqueue, "send", "outgoing", *STORED, **environment)
    remote.create_queue("Remote")
    postgresql.queue("orders").insert(5)
    postgresql.queue("failed").insert(4)
    postgresql.queue("returns").insert(3)
    postgresql.queue("claims").insert(2)
    said, complained = ran(
        installed, folder, installed.python, "-c", PROGRAM, *JOBS, **environment, **quick()
    )
    lines = said.splitlines()
    begun = [each for each in lines if " queue=" in each and not each.startswith("created")]
    assert [each.partition(" into=")[0] for each in begun] == [
        "taking queue=failed",
        "draining queue=orders",
        "forwarding queue=returns",
        "handling queue=claims",
        "storing and forwarding queue=outgoing",
    ]
    assert sorted(delta.column(folder / "delta" / "drained", "MessageId")) == sorted(message_ids(range(5)))
    assert sorted(delta.column(folder / "delta" / "failed", "MessageId")) == sorted(message_ids(range(4)))
    assert (folder / "delta" / "drained" / "_checkpoints" / "commits" / "0").is_file()
    left = {name: postgresql.queue(name).count() for name in QUEUES}
    assert left == {**dict.fromkeys(QUEUES, 0), "Shipping": 2}
    assert {name: remote.queue(name).count() for name in ("Billing", "Remote")} == {"Billing": 3, "Remote": 1}
    assert {bytes(row.body).decode() for row in postgresql.queue("Shipping").rows()} == {colorsys.__file__}
    homes = complained.splitlines()[-1].split()
    assert all(Path(each).is_relative_to(installed.folder) for each in homes), homes
    # The log is that of the wheel: with its own one Spark says so, and what it does.
    assert "default log4j profile" not in complained, complained
    assert "INFO" not in complained, complained
    # What each start of Java and of Ivy says is left out.
    assert re.findall("incubator|\tfound |replaced a statically", complained) == [], complained
    assert not (folder / "spark-warehouse").exists()


def test_every_command_is_there(installed, folder):
    """Each says what it does, and each job has its example of a configuration."""
    program = textwrap.dedent("""
        import json
        from click.testing import CliRunner
        from sqlqueue_spark.cli import exit_codes, main
        jobs = [
            name for name, command in main.commands.items() if isinstance(command, exit_codes.SparkCommand)
        ]
        asked = [[name, "--help"] for name in main.commands] + [[name, "--example-config"] for name in jobs]
        print(json.dumps({" ".join(each): CliRunner().invoke(main, each).exit_code for each in asked}))
    """)
    said, _ = ran(installed, folder, installed.python, "-c", program)
    codes = json.loads(said)
    assert {
        "demo --help",
        "server --help",
        "drain --example-config",
        "store-and-forward --help",
    } <= codes.keys()
    assert set(codes.values()) == {0}


def test_a_server_is_there(installed, folder, home):
    """In the folder of the user who runs it."""
    environment = {"XDG_DATA_HOME": str(home)}
    try:
        ran(installed, folder, installed.sqlqueue, "server", "start", **environment)
        url, _ = ran(installed, folder, installed.sqlqueue, "server", "url", **environment)
        said, _ = ran(installed, folder, installed.sqlqueue, "create", "orders", SQLQUEUE_URL=url.strip())
        assert said == "created orders@[public]@[postgres]\n"
    finally:
        ran(installed, folder, installed.sqlqueue, "server", "remove", "--yes", **environment)
    assert list((home / "sqlqueue").iterdir()) == []
