"""The server from a wheel: starts, restarts, is shared, and never outlives its process."""

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest

from sqlqueue_spark.embedded import EmbeddedServer, programs
from sqlqueue_spark.embedded.server_processes import servers_on
from sqlqueue_spark.errors import ConfigurationError
from tests.support.other_user import STRANGER, as_root, as_user
from tests.support.postgresql import restart
from tests.support.waiting import eventually


@pytest.fixture
def directory():
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-embedded-"))
    folder.chmod(0o711)  # for root PostgreSQL runs as another user
    yield folder / "data"
    shutil.rmtree(folder)


def ask(url, question):
    with psycopg.connect(url) as connection:
        return connection.execute(question).fetchall()[0][0]


def server_process(directory):
    return psutil.Process(int((directory / "postmaster.pid").read_text().splitlines()[0]))


def gone(process):
    """No parent may be there to take note of its end."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def child(directory, *, keep_running=False, then=""):
    """A process that starts a server and waits for us, and the server's port."""
    program = textwrap.dedent(f"""
        from pathlib import Path
        from sqlqueue_spark.embedded import EmbeddedServer
        server = EmbeddedServer(Path({str(directory)!r}), keep_running={keep_running})
        server.start()
        print(server.port, flush=True)
        input()
        {then}
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_a_server_listens_on_loopback_only(directory):
    """And it takes its settings."""
    with EmbeddedServer(directory, settings={"work_mem": "7MB", "application_name": "it's odd"}) as server:
        password = (directory.parent / "data.password").read_text().strip()
        assert server.url() == f"postgresql://postgres:{password}@127.0.0.1:{server.port}/postgres"
        assert ask(server.url(), "SHOW work_mem") == "7MB"
        assert ask(server.url(), "SHOW listen_addresses") == "127.0.0.1"
        assert ask(server.url(), "SHOW unix_socket_directories") == ""
        process = server_process(directory)
    eventually(lambda: gone(process))


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_keeps_all_but_the_sessions(directory, immediate):
    """The port and the data stay."""
    with EmbeddedServer(directory) as server:
        port = server.port
        with psycopg.connect(server.url()) as before:
            before.execute("CREATE TABLE kept AS SELECT 7 AS seven")
            before.commit()
            restart(server, immediate=immediate)
            with pytest.raises(psycopg.OperationalError):
                before.execute("SELECT 1")
        assert (server.port, ask(server.url(), "SELECT seven FROM kept")) == (port, 7)


def test_a_running_server_is_left_to_its_owner(directory):
    with EmbeddedServer(directory) as owner:
        with EmbeddedServer(directory) as guest:
            assert guest.url() == owner.url()
        assert ask(owner.url(), "SELECT 1") == 1


def test_a_killed_server_starts_again(directory):
    """Its pid file is still there."""
    server = EmbeddedServer(directory)
    server.start()
    killed = server_process(directory)
    killed.kill()
    eventually(lambda: gone(killed))
    with server:
        assert ask(server.url(), "SELECT 1") == 1


def test_a_start_that_is_killed_while_the_data_are_made_spoils_nothing(directory):
    """initdb notes its version long before it has made all."""
    program = f"""
from pathlib import Path
from sqlqueue_spark.embedded import EmbeddedServer
EmbeddedServer(Path({str(directory)!r})).start()
"""
    killed = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    making = directory.with_name("data.new")
    eventually((making / "PG_VERSION").exists)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert making.exists()
    with EmbeddedServer(directory) as server:
        assert ask(server.url(), "SELECT 1") == 1
    assert not making.exists()


def test_a_stale_pid_file_stops_no_start(directory):
    """Its number is that of another program now."""
    with EmbeddedServer(directory):
        left_behind = (directory / "postmaster.pid").read_text().splitlines()
    (directory / "postmaster.pid").write_text("\n".join([str(os.getpid()), *left_behind[1:], ""]))
    with EmbeddedServer(directory) as server:
        assert ask(server.url(), "SELECT 1") == 1


@pytest.mark.parametrize("ending", ["end", "kill"])
def test_a_server_ends_however_its_process_ends(directory, ending):
    process, _ = child(directory)
    server = server_process(directory)
    if ending == "end":
        process.communicate(b"\n")
    else:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    eventually(lambda: gone(server))


def test_a_server_is_left_running_when_asked(directory):
    process, port = child(directory, keep_running=True)
    process.communicate(b"\n")
    with EmbeddedServer(directory, keep_running=True) as server:
        assert (server.port, ask(server.url(), "SELECT 1")) == (port, 1)
    server.stop()
    assert not (directory / "postmaster.pid").exists()


def test_the_guarded_role_must_give_its_password(directory):
    with EmbeddedServer(directory) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'secret'")
        right = server.url(user="guarded", password="secret")
        wrong = server.url(user="guarded", password="wrong")
        assert ask(right, "SELECT current_user") == "guarded"
        with pytest.raises(
            psycopg.OperationalError, match='password authentication failed for user "guarded"'
        ):
            ask(wrong, "SELECT 1")


def test_a_refused_setting_is_told_with_the_remedy(directory):
    server = EmbeddedServer(directory, settings={"no_such_setting": "1"})
    with pytest.raises(ConfigurationError) as caught:
        server.start()
    assert str(caught.value) == (
        "The embedded PostgreSQL server did not start: "
        'unrecognized configuration parameter "no_such_setting"; '
        f"look into {directory}/server.log, or remove {directory} to begin anew."
    )


def test_a_url_before_the_start_is_refused(directory):
    with pytest.raises(ConfigurationError, match=r"has no port yet; call start\(\) first\."):
        EmbeddedServer(directory).url()


def refused(url, complaint):
    with pytest.raises(psycopg.OperationalError, match=complaint):
        psycopg.connect(url)


def test_no_login_gets_in_without_a_password(directory):
    """No other role and no other database is a way in, and there is no local socket."""
    with EmbeddedServer(directory) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE anybody LOGIN SUPERUSER")
            connection.execute("CREATE DATABASE shop")
            rules = connection.execute("SELECT type, auth_method FROM pg_hba_file_rules").fetchall()
            kept = connection.execute(
                "SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'"
            ).fetchall()
        assert rules == [("host", "scram-sha-256")]
        assert kept[0][0].startswith("SCRAM-SHA-256$1:")
        where = f"127.0.0.1:{server.port}"
        for database in ("postgres", "shop", "template1"):
            refused(f"postgresql://postgres@{where}/{database}", "no password supplied")
            refused(f"postgresql://anybody@{where}/{database}", "no password supplied")
            refused(f"postgresql://postgres:postgres@{where}/{database}", "password authentication failed")
        assert ask(server.url("shop"), "SELECT current_user") == "postgres"
        assert ask(server.url(), "SHOW unix_socket_directories") == ""


def test_only_the_owner_reads_the_password(directory):
    """Each server has its own, which no log and no list of processes shows."""
    with EmbeddedServer(directory) as server, EmbeddedServer(directory.with_name("other")) as other:
        file = directory.with_name("data.password")
        password = file.read_text().strip()
        assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) == (0o600, os.geteuid())
        assert (len(password), password in other.url()) == (32, False)
        assert password in server.url()
        assert password not in server.log.read_text()
        commands = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        assert not any(password in each for each in commands)
        assert password not in repr(server)


def test_a_server_that_begins_anew_has_another_password(directory):
    """While it did not run, another program may have listened on its port and have been told the old one."""
    with EmbeddedServer(directory) as server:
        old = server.url()
    with EmbeddedServer(directory) as server:
        new = server.url()
        assert ask(new, "SELECT 7") == 7
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            ask(old.rpartition("@")[0] + "@" + new.rpartition("@")[2], "SELECT 7")


def test_a_restart_keeps_the_password(directory):
    with EmbeddedServer(directory) as server:
        url = server.url()
        server.stop()
        server.start()
        assert (server.url(), ask(url, "SELECT 7")) == (url, 7)


def test_a_server_that_keeps_its_url_has_it_in_another_process_too(directory):
    with EmbeddedServer(directory, keep_url=True) as server:
        url = server.url()
    with EmbeddedServer(directory, keep_url=True) as server:
        assert (server.url(), ask(url, "SELECT 7")) == (url, 7)


def test_a_server_whose_port_is_taken_says_so_and_goes_on_without_its_note(directory):
    """Nothing is started on another port, because programs were told this one."""
    with EmbeddedServer(directory, keep_url=True) as server:
        port = server.port
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(ConfigurationError) as caught:
            EmbeddedServer(directory, keep_url=True).start()
        assert str(caught.value) == (
            f"The embedded PostgreSQL server did not start: another program listens on its port {port}; stop "
            f"that one, or remove {directory}.port, and the server takes another port."
        )
        directory.with_name("data.port").unlink()
        with EmbeddedServer(directory, keep_url=True) as server:
            assert ask(server.url(), "SELECT 7") == 7
            assert server.port != port


def test_a_server_is_left_running_once_all_is_well(directory):
    """Until then it would end with its process."""
    process, port = child(directory, then="server.leave_running()")
    process.communicate(b"\n")
    with EmbeddedServer(directory, keep_running=True) as server:
        assert (server.port, ask(server.url(), "SELECT 1")) == (port, 1)
    server.stop()


@as_root
def test_what_another_user_has_put_into_the_folder_is_not_run(directory):
    directory.mkdir()
    (directory / "PG_VERSION").write_text("18")
    os.chown(directory, STRANGER, STRANGER)
    with pytest.raises(
        ConfigurationError, match=r"belongs to the user with the number 65534, and a server in it"
    ):
        EmbeddedServer(directory).start()
    assert directory.stat().st_uid == 65534


@as_root
def test_a_link_that_a_query_makes_leads_root_nowhere(directory, tmp_path):
    """Its superuser runs programs as the server's user, who owns the folder."""
    important = tmp_path / "important"
    important.write_text("kept")
    with EmbeddedServer(directory) as server, psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE asked AS SELECT 1 AS one")
        connection.commit()
        connection.execute(f"COPY asked TO PROGRAM 'ln -sf {important} {directory}/pg_hba.conf'")
    assert (directory / "pg_hba.conf").readlink() == important
    with EmbeddedServer(directory) as server:
        assert ask(server.url(), "SELECT one FROM asked") == 1
    assert important.read_text() == "kept"
    rules = (directory / "pg_hba.conf").lstat()
    assert (stat.S_IFMT(rules.st_mode), pwd.getpwuid(rules.st_uid).pw_name) == (stat.S_IFREG, "pgserver")


@as_root
def test_nothing_is_read_where_a_link_of_the_servers_user_leads(directory, tmp_path):
    """A running server says its port there, among other things."""
    important = tmp_path / "important"
    with EmbeddedServer(directory) as server:
        port, pid_file = server.port, directory / "postmaster.pid"
        important.write_text(pid_file.read_text())
        important.chmod(0o600)
        assert server.running_port() == port
        as_user("pgserver", lambda: (pid_file.rename(directory / "kept"), pid_file.symlink_to(important)))
        assert server.running_port() is None
        as_user("pgserver", lambda: (directory / "kept").rename(pid_file))


def denied(_):
    raise psutil.AccessDenied


def test_a_server_is_found_where_its_working_folder_is_not_ours_to_see(directory, monkeypatch):
    """As by root in a container."""
    with EmbeddedServer(directory) as server:
        monkeypatch.setattr(psutil.Process, "cwd", denied)
        assert server.running_port() == server.port
        server.stop()
        assert server.running_port() is None
    assert not (directory / "postmaster.pid").exists()


@as_root
def test_what_another_user_runs_is_not_taken_for_the_server(directory, monkeypatch):
    """It has the server's name and its arguments."""
    directory.mkdir()
    postgres = directory.parent / "postgres"
    postgres.symlink_to("/bin/sh")
    monkeypatch.setattr(psutil.Process, "cwd", denied)
    command = [postgres, "-c", "echo; read line", "-D", str(directory)]
    for user, processes in ((STRANGER, 0), (0, 1)):
        with subprocess.Popen(command, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            assert len(servers_on(directory)) == processes
            other.communicate(b"\n")


def test_a_folder_that_is_a_link_is_refused(directory, tmp_path):
    directory.symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match=r"data is a link, which is not followed; name the folder"):
        EmbeddedServer(directory).start()
    assert list(tmp_path.iterdir()) == []


@as_root
def test_a_folder_of_other_things_is_not_given_away(directory):
    directory.mkdir()
    (directory / "mine").touch()
    with pytest.raises(ConfigurationError) as caught:
        EmbeddedServer(directory).start()
    assert str(caught.value) == (
        f"The folder {directory} holds other things, and PostgreSQL's user pgserver would own it; "
        "name an empty one."
    )
    assert directory.stat().st_uid == 0


def test_a_link_in_the_place_of_the_lock_empties_no_file(directory, tmp_path):
    important = tmp_path / "important"
    important.write_text("kept")
    directory.with_name("data.lock").symlink_to(important)
    with pytest.raises(OSError, match="it is a link, which is not followed"):
        EmbeddedServer(directory).start()
    assert important.read_text() == "kept"


def test_the_server_does_not_know_our_environment(directory, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "hunter2")
    with EmbeddedServer(directory) as server, psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TEMPORARY TABLE said (line text)")
        connection.execute("COPY said FROM PROGRAM 'env'")
        known = [line for (line,) in connection.execute("SELECT line FROM said").fetchall()]
    assert any(line.startswith("PATH=") for line in known)
    assert not any("hunter2" in line for line in known)


def as_before(directory):
    """Leave a directory as version 0.1.0 made it: it let in everybody on the loopback interface."""
    with EmbeddedServer(directory) as server, psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
        connection.execute("ALTER ROLE postgres PASSWORD NULL")
    (directory / "pg_hba.conf").write_text(
        "host all guarded 127.0.0.1/32 scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 trust\n"
    )
    directory.with_name("data.password").unlink()


def test_a_directory_of_an_earlier_version_is_closed_and_keeps_its_data(directory):
    as_before(directory)
    with EmbeddedServer(directory) as server:
        assert ask(server.url(), "SELECT seven FROM kept") == 7
        refused(f"postgresql://postgres@127.0.0.1:{server.port}/postgres", "no password supplied")


def test_a_server_of_an_earlier_version_that_still_runs_is_told_what_to_do_with(directory, monkeypatch):
    as_before(directory)
    with monkeypatch.context() as earlier:
        earlier.setattr(EmbeddedServer, "_guard", lambda *_, **__: None)
        running = EmbeddedServer(directory)
        running.start()
    with pytest.raises(ConfigurationError) as caught:
        EmbeddedServer(directory).start()
    assert str(caught.value) == (
        f"The server on {directory} runs, and either it lets in everybody, as an earlier version left it, or "
        f"its password is not in {directory}.password any more; stop it (sqlqueue server stop, sqlqueue demo "
        "--stop, or stop() of EmbeddedServer) and start it again: its data stay."
    )
    EmbeddedServer(directory).stop()
    with EmbeddedServer(directory) as server:
        assert ask(server.url(), "SELECT seven FROM kept") == 7


@pytest.mark.parametrize("lost", ["gone", "others read it"])
def test_a_password_that_is_lost_is_made_anew(directory, lost):
    """Or that others may have read."""
    with EmbeddedServer(directory) as server:
        before = server.url()
    file = directory.with_name("data.password")
    if lost == "gone":
        file.unlink()
    else:
        file.chmod(0o644)
    with EmbeddedServer(directory) as server:
        assert ask(server.url(), "SELECT 1") == 1
        assert server.url().partition("@")[0] != before.partition("@")[0]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_login_is_percent_encoded(directory):
    with EmbeddedServer(directory) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE ROLE \"m/e@\" LOGIN PASSWORD 'open:se/s@me %'")
        assert ask(server.url(user="m/e@", password="open:se/s@me %"), "SELECT current_user") == "m/e@"


@as_root
def test_servers_that_start_at_once_on_a_fresh_machine_make_their_user_together(monkeypatch):
    user = f"sqlqueue{os.getpid()}"
    monkeypatch.setattr(programs, "_USER", user)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: programs.server_user(), range(8)))
        assert set(found) == {pwd.getpwnam(user)}
    finally:
        subprocess.run(["userdel", user], check=True)


@as_root
def test_the_user_is_made_also_where_the_path_leaves_out_the_programs_of_administrators(monkeypatch):
    user = f"sqlqueue{os.getpid()}"
    monkeypatch.setattr(programs, "_USER", user)
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        assert programs.server_user() == pwd.getpwnam(user)
    finally:
        subprocess.run(["/usr/sbin/userdel", user], check=True)


@as_root
@pytest.mark.parametrize(
    "program,why",
    [
        (
            "#!/bin/sh\necho 'useradd: cannot lock /etc/passwd;' >&2; echo 'try again later.' >&2; exit 1",
            "useradd: cannot lock /etc/passwd; try again later.",
        ),
        ("#!/bin/sh\nexit 3", "{file} failed with code 3"),
        ("#!/no/such/shell", "{file} does not run (No such file or directory)"),
        (None, "there is no program useradd in {folder}"),
    ],
)
def test_why_the_user_cannot_be_made_is_told(tmp_path, monkeypatch, program, why):
    monkeypatch.setattr(programs, "_USER", "sqlqueue_missing")
    monkeypatch.setenv("PATH", str(tmp_path))
    if program is None:
        monkeypatch.setattr(programs, "_FOR_ADMINISTRATORS", ())
    else:
        (tmp_path / "useradd").write_text(program)
        (tmp_path / "useradd").chmod(0o755)
    with pytest.raises(ConfigurationError) as caught:
        programs.server_user()
    told = why.format(file=tmp_path / "useradd", folder=tmp_path)
    assert str(caught.value) == (
        f"PostgreSQL does not run as root, and the user sqlqueue_missing cannot be made: {told}; make that "
        "user, or run this as another one."
    )
