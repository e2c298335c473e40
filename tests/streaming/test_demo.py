"""The demos, as a user of the wheel runs them: that of draining twice in one folder,
that of two databases to its end and interrupted.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.quick_java import quick
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LONG = timedelta(seconds=60)


@pytest.fixture
def demo(installed, tmp_path):
    """Run a demo to its end, anywhere."""

    def run(*arguments):
        ran = subprocess.run(
            [installed.sqlqueue, "demo", *arguments],
            cwd=tmp_path, env=installed.environment(**quick()), capture_output=True, text=True, check=False,
        )  # fmt: skip
        return ran.returncode, ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr

    return run


def concluded(said):
    """What it says in the end, each line by its name; how long it took and how fast that
    was is another matter.
    """
    done, after = said.index("Done: every message has left the queue"), said.index("\nWhat to type next:")
    lines = said[done:after].splitlines()[1:]
    shown = {line[2:16].strip(): line[17:] for line in lines}
    assert {"drained", "rate"} <= shown.keys()
    return {name: text for name, text in shown.items() if name not in {"drained", "rate"}}


@pytest.fixture
def folder():
    """One that no other run of pytest closes to the servers' user meanwhile."""
    made = Path(tempfile.mkdtemp(prefix="sqlqueue-demo-"))
    yield made / "demo"
    shutil.rmtree(made)


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.tier("nightly"))])
def test_the_demo_drains_everything_once(demo, folder, again):
    """A second run goes on."""
    of_demo = ("--folder", str(folder))
    try:
        code, said = demo(*of_demo, "--messages", "400")
        assert (code, concluded(said)) == (0, {"rows in Delta": "400", "rows left": "0"})
        if again:
            code, said = demo(*of_demo, "--messages", "40")
            assert (code, concluded(said)) == (
                0,
                {"rows in Delta": "440, those of earlier runs included", "rows left": "0"},
            )
        assert "What to type next:" in said
        file = folder / "url"
        password = urlsplit(file.read_text()).password
        assert (file.stat().st_mode & 0o777, password in said) == (0o600, False)
        assert f'export SQLQUEUE_URL="$(cat {file})"' in said
    finally:
        stopped = [demo(*of_demo, "--stop") for _ in range(2)]
    assert stopped == [
        (0, f"The server in {folder / 'database'} is stopped; its data stay.\n"),
        (0, f"No server of this demo runs in {folder}.\n"),
    ]


def test_the_demo_of_two_databases_has_every_order_accepted_once(demo, installed, folder):
    """Some have waited. The servers run on, under the urls that it names, until they are stopped."""
    of_demo = ("store-and-forward", "--folder", str(folder))
    try:
        code, said = demo(*of_demo, "--messages", "60")
        # The log goes with the folder.
        assert code == 0, said + "".join(log.read_text()[-10_000:] for log in folder.glob("jobs.log"))
        submitted, waiting = said[said.index("Done: every order was accepted once.") :].splitlines()[1:3]
        assert submitted == "  60 submitted, 60 accepted once, 0 twice, 0 lost"
        waited = re.fullmatch(
            r"  (\d+) waited in the table outgoing.Delayed while billing's server was down", waiting
        )
        assert waited is not None, said
        assert 20 <= int(waited[1]) < 60
        for event in ("database_down database=sink.url", "database_back database=sink.url"):
            assert said.count(f"the job says: {event}") == 1, said
        # A message that was on its way while the database came back is put back after the others.
        put_back = re.findall(r"the job says: put_back queue=outgoing database=sink.url rows=(\d+)", said)
        assert sum(map(int, put_back)) >= int(waited[1]), said
        urls = [(folder / f"{name}.url").read_text().strip() for name in ("shop", "billing")]
        assert [urlsplit(each).password in said for each in urls] == [False, False]
        assert "\x1b" not in said  # it is no terminal
        peeked = subprocess.run(
            [installed.sqlqueue, "length", "sales", "--json"],
            env=installed.environment(SQLQUEUE_URL=urls[0]), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert '"rows": 60' in peeked.stdout
    finally:
        stopped = demo(*of_demo, "--stop")
    stays = "is stopped; its data stay."
    assert stopped == (0, "".join(f"The server in {folder / each} {stays}\n" for each in ("shop", "billing")))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.tier("nightly")),
        pytest.param(signal.SIGKILL, id="kill -9"),
    ],
)
def test_a_demo_of_two_databases_that_is_ended_leaves_nothing_running(installed, folder, tmp_path, end):
    """Neither its servers nor its jobs."""
    said = tmp_path / "said.txt"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    with said.open("wb") as out:
        running = subprocess.Popen(
            [installed.sqlqueue, "demo", "store-and-forward", "--folder", str(folder)],
            cwd=tmp_path,
            env=installed.environment(**quick()),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    signal.signal(signal.SIGINT, before)
    eventually(lambda: re.search(r"\d submitted", said.read_text()), within=LONG)
    theirs = psutil.Process(running.pid).children(recursive=True)
    servers = [each for each in psutil.process_iter(["cwd"]) if str(folder) in (each.info["cwd"] or "")]
    assert {each.name() for each in theirs} & {"java", "python", "python3"}
    assert servers
    os.killpg(running.pid, end)
    assert running.wait(60) == (130 if end == signal.SIGINT else -end)
    eventually(lambda: not any(alive(each) for each in (*theirs, *servers)), within=LONG)
    assert "Traceback" not in said.read_text()


def alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
