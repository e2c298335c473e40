"""The support code does to a queue table what the tests think it does."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests import conftest
from tests.support import sqlserver
from tests.support.gate import gated
from tests.support.messages import Row, body, headers, message_id, row_id, row_ids
from tests.support.spark_home import INSTALLED, fill
from tests.support.terminal import terminal
from tests.support.versions import SQLSERVER_VARIABLE

LIVE = ("tests/conformance", "tests/command_line", "tests/streaming", "tests/faults")


def test_messages_are_numbered_and_realistic(queue):
    assert queue.insert(3, start=40, size=80) == range(40, 43)
    assert queue.rows() == [
        Row(id=row_id(number), headers=headers(number), body=body(number, 80), row_version=number - 39)
        for number in (40, 41, 42)
    ]
    assert json.loads(headers(42))["NServiceBus.MessageId"] == message_id(42)
    assert len(headers(0)) + len(body(0)) == pytest.approx(700, rel=0.1)


def test_an_odd_row_is_kept_as_it_is(queue):
    expires = datetime(2020, 1, 2, 3, 4, 5)  # noqa: DTZ001 -- the column has no zone
    row = Row(id=UUID(int=7), headers="not JSON", body=None, row_version=1, expires=expires)
    assert queue.insert_row(id=row.id, headers=row.headers, body=row.body, expires=row.expires) == 1
    assert (queue.rows(), queue.count()) == ([row], 1)


def test_a_receiver_steps_over_locked_rows(queue):
    """And over expired ones."""
    queue.insert(1, start=0)
    queue.insert(1, start=1, expires=datetime(2020, 1, 1))  # noqa: DTZ001 -- the column has no zone
    queue.insert(2, start=2)
    with queue.locked(1), queue.session() as receiver:
        assert receiver.take().id == row_id(2)
        assert receiver.take(4).id == row_id(3)
        assert receiver.take() is None
        receiver.rollback()
    assert queue.take().id == row_id(0)
    assert queue.ids() == row_ids([1, 2, 3])


def test_a_sender_commits_lower_row_versions_later(queue):
    with queue.session() as late:
        late.insert(2, start=100)
        queue.insert(1)
        assert queue.row_versions() == [3]
        late.commit()
    assert (queue.row_versions(), queue.ids()) == ([1, 2, 3], row_ids([100, 101, 0]))


def test_the_tests_of_a_server_that_is_given_can_be_collected():
    """In each variant, by the folders of ``make test-live``; no server answers at this address."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *LIVE],
        cwd=Path(__file__).parents[2],
        env={**os.environ, SQLSERVER_VARIABLE: "mssql://nowhere.invalid/master"},
        check=False,
        capture_output=True,
        text=True,
    )
    one = "tests/conformance/test_settle.py::test_a_second_commit_is_harmless["
    variants = [line.removeprefix(one) for line in done.stdout.splitlines() if line.startswith(one)]
    assert (variants, done.returncode) == (
        [f"{each}]" for each in ("postgresql", *conftest.VARIANTS, *conftest.ODD)],
        0,
    )


@pytest.mark.parametrize(
    "one, by_day",
    [
        ("test_core_crashes.py::test_each_row_of_a_fragmented_claim_arrives_once", {"test": 1, "all": 0}),
        (
            "test_core_several_queues_atomic.py::test_each_message_is_sent_once_whatever_the_crash",
            {"test": 0, "all": 1},
        ),
    ],
)
def test_the_first_variant_of_a_test_runs_by_day_and_the_others_at_night(one, by_day):
    """In the tier of the folder, or in that of the file."""
    options = ("--collect-only", "-q", "-p", "no:cacheprovider", "--tier")
    done = {
        tier: subprocess.run(
            [sys.executable, "-m", "pytest", *options, tier, f"tests/faults/{one}"],
            cwd=Path(__file__).parents[2],
            check=False,  # it says so where it has collected none
            capture_output=True,
            text=True,
        ).stdout.count(f"{one}[postgresql-")
        for tier in ("test", "all", "nightly", "")
    }
    total = done.pop("")
    assert done == {**by_day, "nightly": total - 1}
    assert total > 2


def test_names_may_hold_anything(engine):
    queue = engine.create_queue("my]od\"d t'able@x{y}", schema='a]b"c{d}')
    queue.insert(2)
    assert (queue.row_versions(), queue.address) == ([1, 2], 'my]od"d t\'able@x{y}@[a]]b"c{d}]')


def test_what_varies_on_a_given_server_is_there():
    tests = Path(conftest.__file__).parent
    files = [tests / "conformance" / f"{name}.py" for name in conftest._VARIED_FILES]
    folders = [tests / name for name in conftest._VARIED_FOLDERS]
    assert [path for path in [*files, *folders] if not path.exists()] == []
    assert {shape for shape, _ in conftest.VARIANTS.values()} <= sqlserver.SHAPES.keys()


def test_connections_are_cut(postgresql):
    with psycopg.connect(postgresql.url) as connection:
        assert postgresql.cut_connections() == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_guarded_login_needs_its_password(guarded_url):
    with psycopg.connect(guarded_url) as connection:
        assert connection.execute("SELECT current_user").fetchall() == [("guarded",)]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(guarded_url, password="wrong")


def test_spark_writes_delta(spark, tmp_path):
    folder = str(tmp_path / "table")
    spark.range(3).write.format("delta").save(folder)
    assert [row.id for row in spark.read.format("delta").load(folder).orderBy("id").collect()] == [0, 1, 2]


def test_in_the_tests_spark_the_installed_package_stands_for_the_zip(tmp_path):
    fill(tmp_path)
    zips = sorted(each.name for each in (INSTALLED / "python" / "lib").glob("*.zip"))
    assert sorted(each.name for each in (tmp_path / "python" / "lib").iterdir()) == zips
    path = os.pathsep.join(str(tmp_path / "python" / "lib" / each) for each in zips)
    program = (
        "import os, py4j, pyspark; print(*(os.path.realpath(each.__file__) for each in (py4j, pyspark)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True, text=True,
    ).stdout.split()  # fmt: skip
    assert said == [str(INSTALLED.with_name("py4j") / "__init__.py"), str(INSTALLED / "__init__.py")]


def test_a_gate_that_is_shut_throws_out_a_client_that_had_just_knocked(monkeypatch):
    """It was on its way to the server meanwhile."""
    knocked, opened = threading.Event(), socket.create_connection

    def slowly(*given):
        knocked.set()
        time.sleep(0.2)
        return opened(*given)

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        gated(f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/shop") as gate,
    ):
        monkeypatch.setattr(socket, "create_connection", slowly)
        with opened(("127.0.0.1", gate._port), timeout=30) as client:
            assert knocked.wait(30)
            gate.shut()
            assert client.recv(1) == b""


def test_a_terminal_reads_a_letter_that_comes_in_two_parts():
    """As the bar of a busy program does."""
    program = (
        r"import os, tty; tty.setraw(0); os.write(1, b'a \xe2\x96'); os.read(0, 1); os.write(1, b'\x88 b')"
    )
    with terminal("-c", program, program=sys.executable) as shown:
        shown.until("a ")
        shown.type("x")
        assert shown.end() == 0
    assert shown.shown == "a \u2588 b"
