"""What declarative pipelines, notebooks and Spark Connect need, which the tests' environment lacks."""

import subprocess

import pytest

from tests.support.wheel import install


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """The wheel, with what pipelines, notebooks and Spark Connect need."""
    made = install(tmp_path_factory.mktemp("doors"))
    try:
        made.add("doors")
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode().strip().splitlines()[-1]
        pytest.skip(f"pipelines, notebooks, Spark Connect: MISSING, requirements/doors.txt fails: {last}")
    subprocess.run(
        [made.python, "-m", "ipykernel", "install", "--prefix", str(made.folder)],
        check=True,
        capture_output=True,
    )
    return made
