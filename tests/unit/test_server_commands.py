"""``sqlqueue server``: a server that runs until it is stopped, under one url,
in a folder that holds nothing else.
"""

import itertools
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import psutil
import psycopg
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.embedded import EmbeddedServer, programs
from sqlqueue_spark.embedded.data_folder import default_folder, make_way
from sqlqueue_spark.embedded.kept_server import KeptServer
from sqlqueue_spark.embedded.server_processes import Client, connected_to
from tests.support.installing import OF_DEMO
from tests.support.other_user import STRANGER, as_root
from tests.support.waiting import eventually


@pytest.fixture
def folder():
    """One that pytest does not close to the server's user; what runs in it is stopped."""
    made = Path(tempfile.mkdtemp(prefix="sqlqueue-server-"))
    kept = made / "it's here"
    yield kept
    if (kept / "database").is_dir():
        run(kept, "stop")
    shutil.rmtree(made)


def run(folder, name, *arguments, answer=None):
    """The exit code, and what is said on stdout and stderr."""
    result = CliRunner().invoke(main, ["server", name, "--folder", str(folder), *arguments], input=answer)
    return result.exit_code, result.stdout, result.stderr


def test_a_server_runs_until_it_is_stopped_and_its_data_stay_until_it_is_removed(folder):
    """It has one url, which only its own command prints."""
    option = "--folder '" + str(folder).replace("'", "'\"'\"'") + "'"
    assert run(folder, "status") == (1, f"There is no server in {folder}\n", "")

    code, began, _ = run(folder, "start")
    found = json.loads(run(folder, "status", "--json")[1])
    port = found["port"]
    file = folder / "url"
    started = {name: found.pop(name) for name in ("startedBy", "startedAt")}
    where = {"folder": str(folder), "port": port, "urlFile": str(file)}
    assert found == {"state": "running", **where, "connected": []}
    assert (code, began.splitlines()) == (
        0,
        [
            f"A PostgreSQL server runs on port {port} of this machine; its data are in {folder}",
            f"Its url, with the password, is in {file}, which you alone can read:",
            f'  export SQLQUEUE_URL="$(sqlqueue server url {option})"',
            f"It runs on until: sqlqueue server stop {option}",
        ],
    )
    said = [began, *run(folder, "start")[1:], *run(folder, "status")[1:]]
    me = pwd.getpwuid(os.getuid()).pw_name
    assert started["startedBy"] == f"{me} in {Path.cwd()}"
    at = datetime.fromisoformat(started["startedAt"])
    assert timedelta(0) < datetime.now(UTC) - at < timedelta(minutes=2)
    whose = [
        f"It was started by {me} in {Path.cwd()} at {at:%Y-%m-%d %H:%M:%SZ}, … ago",
        "Connected: no process",
    ]
    again, state = (re.sub(r"\d+ s ago", "… ago", each).splitlines() for each in (said[1], said[3]))
    assert again == [began.splitlines()[0].replace("runs", "runs already"), *whose, *began.splitlines()[1:3]]
    assert state == [f"running on port {port}, with its data in {folder}", *whose]

    code, url, _ = run(folder, "url")
    assert (code, url, stat.S_IMODE(file.stat().st_mode)) == (0, file.read_text(), 0o600)
    assert not any(urlsplit(url).password in each for each in said)
    with psycopg.connect(url.strip()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")

    assert run(folder, "stop") == (
        0,
        f"The server in {folder} is stopped; its data stay until: sqlqueue server remove {option}\n",
        "",
    )
    assert run(folder, "stop") == (0, f"The server in {folder} does not run.\n", "")
    assert run(folder, "status") == (1, f"stopped, with its data in {folder}\n", "")
    assert run(folder, "url") == (
        1,
        "",
        f"Error: The server in {folder} does not run; start it with: sqlqueue server start {option}\n",
    )

    assert run(folder, "start")[0] == 0
    assert run(folder, "url")[1] == url
    code, _, asked = run(folder, "remove", answer="yes\n")
    assert (code, asked.splitlines()[-1]) == (1, "Error: That is not 'remove', so nothing was deleted.")
    assert " MB) deleted; to go on, type remove: " in asked
    with psycopg.connect(url.strip()) as connection:
        assert connection.execute("SELECT seven FROM kept").fetchall() == [(7,)]

    (folder / "mine.txt").touch()
    code, said, _ = run(folder, "remove", "--yes")
    assert (code, said.splitlines()) == (
        0,
        [
            f"removed the server in {folder}",
            "The folder stays, for it holds other things: mine.txt",
        ],
    )
    assert os.listdir(folder) == ["mine.txt"]  # noqa: PTH208 -- their names are enough
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url.strip())


@pytest.mark.tier("all")
def test_who_is_connected_is_told_and_cut_off_only_when_that_is_meant(folder):
    run(folder, "start")
    url = run(folder, "url")[1].strip()
    wait = f"import psycopg; connection = psycopg.connect({url!r}); print(1, flush=True); input()"
    with (
        subprocess.Popen([sys.executable, "-c", wait], stdin=PIPE, stdout=PIPE, cwd=folder.parent) as other,
        psycopg.connect(url),
        psycopg.connect(url) as ours,
    ):
        assert other.stdout is not None
        other.stdout.readline()
        me = pwd.getpwuid(os.getuid()).pw_name
        where = {os.getpid(): Path.cwd(), other.pid: folder.parent}
        them = [
            {"process": pid, "program": psutil.Process(pid).name(), "user": me, "folder": str(where[pid])}
            for pid in sorted(where)
        ]
        named = ", ".join(
            "{program} (process {process} of {user}, in {folder})".format(**each) for each in them
        )
        assert json.loads(run(folder, "status", "--json")[1])["connected"] == them
        assert run(folder, "status")[1].splitlines()[-1] == f"Connected: {named}"
        code, _, asked = run(folder, "stop", answer="yes\n")
        assert (code, asked.splitlines()) == (
            1,
            [
                f"The server in {folder} will be stopped, and cuts off {named}; to go on, type stop: yes",
                "Error: That is not 'stop', so nothing was stopped.",
            ],
        )
        code, _, asked = run(folder, "stop")
        assert (code, asked.splitlines()[-1]) == (
            1,
            "Error: No answer came, so nothing was stopped; where the command cannot ask, add --yes.",
        )
        asked = run(folder, "remove", answer="\n")[2]
        assert f" MB) deleted; it cuts off {named}; to go on, type remove: " in asked
        assert ours.execute("SELECT 7").fetchall() == [(7,)]
        assert run(folder, "stop", "--yes")[0] == 0
        with pytest.raises(psycopg.OperationalError):
            ours.execute("SELECT 7")
        other.communicate(b"\n")


@pytest.mark.tier("all")
def test_a_demo_asks_too_before_its_servers_cut_others_off(folder):
    """None of them is stopped before all are asked for."""

    def stop(*arguments, answer=None):
        given = ["demo", "store-and-forward", "--folder", str(folder), "--stop", *arguments]
        result = CliRunner().invoke(main, given, input=answer)
        return result.exit_code, result.stdout, result.stderr

    make_way(folder)
    shop, billing = (EmbeddedServer(folder / name, keep_running=True) for name in ("shop", "billing"))
    try:
        shop.start()
        billing.start()
        with closing(psycopg.connect(billing.url())) as ours:
            me, where = psutil.Process(), folder / "billing"
            named = f"{me.name()} (process {me.pid} of {me.username()}, in {Path.cwd()})"
            question = f"The server in {where} will be stopped, and cuts off {named}; to go on, type stop: "
            refusal = "Error: That is not 'stop', so nothing was stopped.\n"
            assert stop(answer="no\n") == (1, "", f"{question}no\n{refusal}")
            assert (shop.running_port() is not None, ours.execute("SELECT 7").fetchall()) == (True, [(7,)])
            stopped = [
                f"The server in {folder / name} is stopped; its data stay.\n" for name in ("shop", "billing")
            ]
            assert stop("--yes") == (0, "".join(stopped), "")
    finally:
        shop.stop()
        billing.stop()


@pytest.mark.parametrize("told", [True, False], ids=["all are told", "each is asked"])
def test_connections_are_those_to_our_port(monkeypatch, told):
    """Java's have an address of IPv6. macOS asks each process of ours; Linux hides whose others' are."""

    def found(pid, host, port, status="ESTABLISHED"):
        return SimpleNamespace(pid=pid, raddr=(host, port) if port else (), status=status)

    ours, java = os.getpid(), os.getppid()
    each = [
        found(ours, "127.0.0.1", 50),
        found(None, "127.0.0.1", 50),
        found(ours, "127.0.0.1", 50),
        found(java, "::ffff:127.0.0.1", 50),
        found(1, "10.0.0.1", 50),
        found(1, "127.0.0.1", 51),
        found(1, "127.0.0.1", 50, "TIME_WAIT"),
        found(1, "", 0, "LISTEN"),
    ]

    def asked(_):
        if told:
            return each
        raise psutil.AccessDenied

    def of_one(process, _):
        return [one for one in each if one.pid == process.pid]

    monkeypatch.setattr(psutil, "net_connections", asked)
    monkeypatch.setattr(psutil.Process, "net_connections", of_one)
    not_ours = [None] if told else []
    assert [one.process for one in connected_to(50)] == [*not_ours, *sorted((ours, java))]
    assert [one for one in connected_to(50) if one.process is None] == [Client() for _ in not_ours]


@pytest.mark.parametrize("name", ["stop", "url", "remove"])
def test_where_there_is_no_server_nothing_is_done(folder, name):
    make_way(folder)
    (folder / "database").mkdir()
    code, said, refused = run(folder, name, *(["--yes"] if name == "remove" else []))
    assert (code, said) == (1, "")
    assert refused.startswith(f"Error: There is no server in {folder}; start one there with: sqlqueue server")
    assert refused.endswith(", or name its folder with --folder.\n")
    assert (folder / "database").is_dir()


def test_a_folder_of_other_things_is_refused(folder):
    """Nothing is written into it."""
    make_way(folder)
    for each in ("a", "b", "c", "d"):
        (folder / each).touch()
    assert run(folder, "start") == (
        1,
        "",
        (
            f"Error: The folder {folder} holds other things (a, b, c) and no server; "
            "name an empty one with --folder.\n"
        ),
    )
    assert sorted(each.name for each in folder.iterdir()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("character", '"$`\\\n')
def test_a_path_that_a_shell_would_read_otherwise_is_refused(folder, character):
    """Nothing is run that it names, and nothing is made."""
    named = folder.parent / f"of {character}(touch x)"
    code, said, refused = run(named, "start")
    assert (code, said) == (1, "")
    assert refused.split(" of a server ")[1] == (
        f"has the character {character!r}, which a shell would not leave as it is; "
        "name a folder without it.\n"
    )
    assert not named.exists()


def test_a_start_that_meets_a_removal_leaves_no_server_that_no_command_knows(folder):
    """It has opened the lock's file, which the removal deletes."""
    assert run(folder, "start")[0] == 0
    waiting = threading.Thread(target=run, args=(folder, "start"))
    with programs.one_at_a_time(folder / "lock"):
        waiting.start()
        eventually(lambda: len(locks_open(folder)) == 2)
        KeptServer(folder)._server.stop()
        shutil.rmtree(folder)
    waiting.join(30)
    assert not folder.exists()


def locks_open(folder):
    """The descriptors of this process that have the lock's file open."""
    return [each for each in psutil.Process().open_files() if each.path == str(folder / "lock")]


@as_root
def test_root_follows_no_other_user_and_opens_no_folder_for_others(folder):
    """He has put a link into his folder, to give away a folder of root's."""
    theirs, ours = folder.parent / "theirs", folder.parent / "ours"
    for each in (theirs, ours):
        each.mkdir(mode=0o700)
    (theirs / "database").symlink_to(ours)
    os.chown(theirs, STRANGER, STRANGER)
    assert run(theirs, "start") == (
        1,
        "",
        (
            f"Error: A server in {theirs} could be led elsewhere, because {theirs} belongs to the user with "
            "the number 65534; name a folder of your own that others may not change.\n"
        ),
    )
    (theirs / "sqlqueue-server.txt").touch()
    for name in ("start", "stop", "url"):
        code, said, complained = run(theirs, name)
        assert (code, said) == (1, "")
        assert f"because {theirs} belongs to the user with the number 65534" in complained
    assert run(folder, "start") == (
        1,
        "",
        (
            f"Error: The folder {folder.parent} does not let PostgreSQL's user pgserver through to {folder}; "
            f"use a path outside of it, or type: chmod o+x '{folder.parent}'\n"
        ),
    )
    found = [each.stat() for each in (theirs, ours, folder.parent)]
    assert [each.st_uid for each in found] == [STRANGER, 0, 0]
    assert {stat.S_IMODE(each.st_mode) for each in found} == {0o700}
    assert not folder.exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_into_which_others_may_write_is_refused(folder, mode):
    make_way(folder)
    folder.chmod(mode)
    assert run(folder, "start") == (
        1,
        "",
        (
            f"Error: A server in {folder} could be led elsewhere, because {folder} may be written by other "
            "users; name a folder of your own that others may not change.\n"
        ),
    )
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(folder):
    folder.touch()
    assert run(folder / "below", "start") == (
        1,
        "",
        (
            f"Error: No server can be started in {folder}/below (Not a directory: {folder}/below); name "
            "another folder with --folder, or give yourself the right to this one.\n"
        ),
    )


def test_a_folder_below_the_home_of_no_user_is_said():
    said = (
        "The folder ~nosuchuser/x cannot be found (Could not determine home directory.); name another with "
        "--folder."
    )
    assert run(Path("~nosuchuser/x"), "status") == (1, "", f"Error: {said}\n")


def test_what_is_not_installed_is_said_before_anything_is_made(folder, monkeypatch):
    monkeypatch.delenv(programs.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(programs, "find_spec", lambda _: None)
    assert run(folder, "start") == (
        1,
        "",
        f"Error: The embedded PostgreSQL server is not installed; run: {OF_DEMO}.\n",
    )
    assert not folder.exists()


def test_each_home_has_a_folder_wherever_one_stands(monkeypatch, tmp_path):
    """Root's is no folder of a home, which would have to be opened for the server's user."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert KeptServer().folder == tmp_path / "sqlqueue" / "server"
    assert KeptServer().command("stop") == "sqlqueue server stop"
    of_root = pwd.getpwuid(0).pw_dir
    found = {
        (user, home): folder_of(monkeypatch, user, home)
        for user, home in itertools.product((0, 1000), (of_root, "/home/me/", "/home%2Fme", ".."))
    }
    assert found == {
        (0, of_root): "/var/lib/sqlqueue/server",
        (0, "/home/me/"): "/var/lib/sqlqueue/%2Fhome%2Fme/server",
        (0, "/home%2Fme"): "/var/lib/sqlqueue/%2Fhome%252Fme/server",
        (0, ".."): f"/var/lib/sqlqueue/{quote(str(Path.cwd() / '..'), safe='')}/server",
        (1000, of_root): f"{of_root}/.local/share/sqlqueue/server",
        (1000, "/home/me/"): "/home/me/.local/share/sqlqueue/server",
        (1000, "/home%2Fme"): "/home%2Fme/.local/share/sqlqueue/server",
        (1000, ".."): f"{Path.cwd() / '..'}/.local/share/sqlqueue/server",
    }


def folder_of(monkeypatch, user, home):
    """The default folder of a user whose HOME is this one."""
    with monkeypatch.context() as his:
        his.setattr(os, "geteuid", lambda: user)
        his.setenv("HOME", home)
        his.setenv("XDG_DATA_HOME", "here")  # it is not absolute, so it does not count
        return str(default_folder())
