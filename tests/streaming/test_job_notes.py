"""What a job notes beside its checkpoint, and when it does not begin under other options."""

import json
import os

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.pipeline.running import program
from sqlqueue_spark.pipeline.running.checkpoint_folder import Files
from sqlqueue_spark.pipeline.running.job_note import NOTE
from tests.support.delayed import DelayedRows
from tests.support.stored import create_outbox

pytestmark = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)

FORWARD = ("forward", "--to", "billing")


@pytest.fixture
def job(spark, engine, tmp_path, monkeypatch):
    """Run a job as its command, in the session that the tests share; returns exit code and complaint."""
    monkeypatch.setattr(program, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(name, *arguments, to=None, url=None, ends=True, sink=None):
        config = tmp_path / "job.toml"
        config.write_text(
            "[sink]\n" + "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in (sink or {}).items())
        )
        given = ("outgoing", "--endpoint", "Shop.Forward", "--checkpoint", str(tmp_path / "checkpoint"))
        environment = {"SQLQUEUE_URL": url or engine.url, "SQLQUEUE_SINK_URL": to}
        flags = (*given, "--config", str(config), *(["--available-now"] if ends else []), *arguments)
        result = CliRunner(env=environment).invoke(main, [name, *flags])
        return result.exit_code, result.stderr

    return run


@pytest.fixture
def outgoing(engine):
    """The queue of the job, and what it needs at home."""
    create_outbox(engine, "Shop.Forward")
    for name in ("error", "local"):
        engine.create_queue(name)
    DelayedRows(engine, "outgoing").create()
    return engine.create_queue("outgoing")


def test_a_note_is_replaced_as_a_whole(spark, engine, tmp_path):
    """Whoever dies in the middle leaves the one before. What a person has changed in it can be read."""
    files, note = Files(spark), tmp_path / "folder" / "note"
    files.write(str(note), "first")
    os.link(note, tmp_path / "kept")
    files.write(str(note), "second")
    assert ((tmp_path / "kept").read_text(), note.read_text()) == ("first", "second")
    note.write_text("changed")
    assert files.text(str(note)) == "changed"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"means": []}', '{"means": {"sink.queue": {}}}'])
def test_a_note_that_is_none_of_ours_is_passed_over(engine, job, outgoing, tmp_path, text):
    engine.create_queue("billing")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / NOTE).write_text(text)
    assert job(*FORWARD) == (0, "")
    assert json.loads((folder / NOTE).read_text())["nothingLeft"] is True
