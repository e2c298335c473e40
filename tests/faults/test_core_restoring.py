"""Lines are sent and something dies: each line is sent whole or not at all, and it is known how many are."""

import json
import re
import signal

import pytest
from click.testing import CliRunner

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import queue_restore
from sqlqueue_spark.cli import main
from tests.support import death_steps
from tests.support.driver import at_step
from tests.support.drivers import death
from tests.support.engines import with_catalog
from tests.support.messages import row_id, row_ids
from tests.support.proxy import proxied
from tests.support.sending import steps

pytestmark = pytest.mark.needs("reads_json_as_documented")

MANY, PORTION = 30, 10


@pytest.fixture
def lines(tmp_path, monkeypatch):
    monkeypatch.setattr(queue_restore, "CHUNK", PORTION)
    file = tmp_path / "lines.jsonl"
    file.write_text(
        "".join(f"{json.dumps({'id': str(row_id(n)), 'headers': {}, 'body': str(n)})}\n" for n in range(MANY))
    )
    return file


def send(url, file, *more):
    return CliRunner().invoke(main, ["send", "orders", "--from", str(file), "--url", url, *more])


@pytest.mark.parametrize("step", death_steps.LINES_STEPS)
def test_what_is_said_to_be_sent_is_sent_when_connections_break(engine, queue, lines, step):
    """The rest can be sent."""
    with steps(), at_step(step, engine.cut_connections, on=(2,)):
        broken = send(engine.url, lines)
    assert broken.exit_code == 1
    skip = re.search(r"send the rest with --skip (\d+)\.", broken.stderr)
    assert skip
    assert queue.ids() == row_ids(range(int(skip[1])))
    assert send(engine.url, lines, "--skip", skip[1]).exit_code == 0
    assert queue.ids() == row_ids(range(MANY))


@pytest.mark.parametrize("heard", [False, True], ids=["before it is heard", "before its answer"])
def test_what_is_not_known_is_said(postgresql, lines, heard):
    """The connection breaks at a commit: whether its lines are in the queue cannot be known."""
    queue = postgresql.create_queue()
    with proxied(postgresql.url) as proxy:
        cut = at_step(fail_points.LINES_INSERTED, lambda: proxy.cut_at(b"COMMIT", deliver=heard), on=(2,))
        with steps(), cut:
            broken = send(proxy.url, lines)
    assert broken.exit_code == 1
    assert (
        "The first 10 lines are done; send the rest with --skip 10. Whether lines 11 to 20 were sent too is "
        "not known, because the connection was lost when they were committed: before you send them again, "
        f"look for the first of them with: sqlqueue peek --id {row_id(10)} "
        f"'{with_catalog(postgresql, 'orders')}', and ask its receivers.\n"
    ) in broken.stderr
    looked = CliRunner().invoke(
        main, ["peek", "--id", str(row_id(10)), "orders", "--json", "--url", postgresql.url]
    )
    assert len(looked.stdout.splitlines()) == heard
    assert queue.ids() == row_ids(range(20 if heard else 10))
    # Where they are there, sending them again is refused as a whole.
    again = send(postgresql.url, lines, "--skip", "10")
    assert again.exit_code == heard
    assert queue.ids() == row_ids(range(20 if heard else MANY))


@pytest.mark.parametrize("step", death_steps.LINES_STEPS)
def test_a_sender_that_is_killed_leaves_whole_portions(postgresql, tmp_path, step):
    """In a process of its own."""
    queue = postgresql.create_queue()
    file = tmp_path / "lines.jsonl"
    file.write_text(
        "".join(f"{json.dumps({'id': str(row_id(n)), 'headers': {}, 'body': ''})}\n" for n in range(9_000))
    )
    child = death.started(tmp_path / "steps", step, 2, postgresql.url, "send", "orders", "--from", str(file))
    assert child.wait(60) == -signal.SIGKILL
    done = {fail_points.LINES_INSERTED: 4_000, fail_points.LINES_COMMITTED: 8_000}[step]
    assert queue.ids() == row_ids(range(done))
    assert send(postgresql.url, file, "--skip", str(done)).exit_code == 0
    assert queue.ids() == row_ids(range(9_000))
