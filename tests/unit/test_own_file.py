"""Files in folders that others share: no link is followed, and no file of another user is believed."""

import json
import os
import signal
import stat
from types import SimpleNamespace
from unittest import mock

import pytest

from sqlqueue_spark.options.own_file import OwnFile, changed_by_others, opened
from sqlqueue_spark.pipeline.running.delta_lake import fetched, remember
from sqlqueue_spark.pipeline.running.stop import run_until_stopped
from sqlqueue_spark.receive.holding.done_file import DoneFile
from tests.support.other_user import STRANGER, as_root


@pytest.fixture
def important(tmp_path):
    """A file of ours, to which a link leads."""
    file = tmp_path / "important"
    file.write_text("kept")
    (tmp_path / "link").symlink_to(file)
    return file


def test_a_file_is_written_in_the_place_of_a_link(important):
    link = OwnFile(important.with_name("link"))
    link.write("secret")
    mode = stat.S_IMODE(link.path.lstat().st_mode)
    assert (link.read(), mode, important.read_text()) == ("secret", 0o600, "kept")
    assert sorted(each.name for each in important.parent.iterdir()) == ["important", "link"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        OwnFile(tmp_path / "folder").write("secret")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_a_link_is_not_opened(important):
    assert OwnFile(important.with_name("link")).read() is None
    with pytest.raises(OSError, match="it is a link, which is not followed"):
        opened(important.with_name("link"), os.O_RDWR | os.O_CREAT)


@as_root
def test_a_file_of_another_user_is_not_opened(important):
    os.chown(important, STRANGER, STRANGER)
    with pytest.raises(PermissionError, match="it belongs to the user with the number 65534"):
        opened(important, os.O_RDONLY)


@pytest.mark.parametrize(
    "mode,found", [(0o700, None), (0o755, None), (0o777, "shared"), (0o1777, "shared"), (0o775, "shared")]
)
def test_a_folder_into_which_others_may_write_is_found(tmp_path, mode, found):
    """Also by a group that is not its owner's alone."""
    shared = tmp_path / "shared"
    shared.mkdir()
    if os.geteuid() == 0:
        os.chown(shared, 0, 100)
    elif mode == 0o775:
        pytest.skip("only root can give a folder to another group")
    shared.chmod(mode)
    where = changed_by_others(shared)
    assert (where and where.name) == found


def test_the_group_that_has_the_name_of_its_user_is_no_other_user(tmp_path, monkeypatch):
    """Many systems give each user a group, and let the group write."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    shared.chmod(0o775)
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_name="me"))
    monkeypatch.setattr("grp.getgrgid", lambda _: SimpleNamespace(gr_name="me"))
    assert changed_by_others(shared) is None


@as_root
@pytest.mark.parametrize("place", ["folder", "link of a stranger", "link to a stranger's", "missing"])
def test_root_looks_at_the_whole_way(tmp_path, place):
    (tmp_path / "theirs" / "ours").mkdir(parents=True)
    way = tmp_path / "theirs" / "ours"
    wrong = tmp_path / "theirs"
    os.chown(wrong, STRANGER, STRANGER)
    if place == "missing":
        way = wrong / "not there" / "yet"
    elif place == "link to a stranger's":
        (tmp_path / "link").symlink_to(wrong)
        way = tmp_path / "link" / "ours"
    elif place == "link of a stranger":
        wrong = tmp_path / "link"
        wrong.symlink_to(tmp_path)
        os.lchown(wrong, STRANGER, STRANGER)
        way = wrong / "not there yet"
    assert changed_by_others(way) == wrong


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        changed_by_others(tmp_path / "a")


def told(path):
    """The end offsets that a source hears of."""
    heard = []
    watched = DoneFile(path, lambda end: heard.append(end.serial))
    watched._seen, watched._thread = None, mock.Mock()
    watched.look()
    return heard


@pytest.fixture
def done(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sqlqueue_spark.receive.offset.Offset.if_ours", lambda said: SimpleNamespace(serial=said)
    )
    file = tmp_path / "done"
    file.write_text(json.dumps([7]))
    return file


def test_a_source_believes_its_own_done_file(done):
    assert told(done) == [7]
    link = done.with_name("link")
    link.symlink_to(done)
    assert told(link) == []


@as_root
def test_a_source_does_not_believe_another_users_done_file(done):
    os.chown(done, STRANGER, STRANGER)
    assert told(done) == []


def test_a_stop_makes_no_file_where_a_link_leads(tmp_path):
    stop_file, elsewhere = tmp_path / "stop", tmp_path / "elsewhere"
    stop_file.symlink_to(elsewhere)
    made = []

    def await_termination(_):
        if not query.stop.called:
            os.kill(os.getpid(), signal.SIGTERM)
        return query.stop.called

    query = mock.Mock(isActive=False, recentProgress=[], id="q", awaitTermination=await_termination)
    query.status = {"isTriggerActive": False}
    query.stop.side_effect = lambda: made.append(elsewhere.exists())
    run_until_stopped(mock.Mock(_jvm=None), query, stop_file)
    assert made == [False]


@as_root
@pytest.mark.parametrize("whose", ["folder", "jar", "jar that others may write"])
def test_a_note_or_a_jar_of_another_user_is_not_used(tmp_path, monkeypatch, whose):
    """Spark runs what is in a jar."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = tmp_path / "delta.jar"
    jar.touch(mode=0o644)
    remember("delta", jar.as_uri())
    assert fetched("delta") == jar.as_uri()
    if whose == "jar that others may write":
        jar.chmod(0o666)
    else:
        os.chown(jar if whose == "jar" else tmp_path / "sqlqueue", STRANGER, STRANGER)
    assert fetched("delta") is None
    remember("other", jar.as_uri())
    assert (tmp_path / "sqlqueue" / "other.jars").exists() == (whose != "folder")
