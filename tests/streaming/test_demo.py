"""The demo, as ``make demo`` runs it, twice in one folder."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.quick_java import quick_submit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]


def demo(*arguments):
    command = [Path(sys.executable).with_name("sqlqueue"), "demo", *arguments]
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | quick_submit(), capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr


def concluded(said):
    """What it says in the end, each line by its name; how long it took and how fast that was is another matter."""
    lines = said[said.index("Done: every message has left the queue") :].splitlines()[1:5]
    shown = {line[2:16].strip(): line[17:] for line in lines}
    assert {"drained", "rate"} <= shown.keys()
    return {name: text for name, text in shown.items() if name not in {"drained", "rate"}}


def test_the_demo_drains_everything_once(tmp_path):
    """A second run goes on."""
    folder = ("--folder", str(tmp_path / "demo"))
    try:
        code, said = demo(*folder, "--messages", "400")
        assert (code, concluded(said)) == (0, {"rows in Delta": "400", "rows left": "0"})
        code, said = demo(*folder, "--messages", "40")
        assert (code, concluded(said)) == (
            0,
            {"rows in Delta": "440, those of earlier runs included", "rows left": "0"},
        )
        assert "What to type next:" in said
        file = tmp_path / "demo" / "url"
        password = urlsplit(file.read_text()).password
        assert (file.stat().st_mode & 0o777, password in said) == (0o600, False)
        assert f'export SQLQUEUE_URL="$(cat {file})"' in said
    finally:
        stopped = demo(*folder, "--stop")
    assert stopped == (0, "")
