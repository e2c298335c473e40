"""The notebooks run from start to end, with widgets as on Databricks and with environment
variables elsewhere.
"""

import ast
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest

from sqlqueue_spark.administration import queue_tables
from sqlqueue_spark.options import ConnectionOptions
from tests.conftest import GUARDED_PASSWORD
from tests.support.outboxes import OutboxRows
from tests.support.spark_home import python_path
from tests.support.streams import end

FOLDER = Path(__file__).parents[2] / "notebooks"


class Widgets:
    """What of ``dbutils.widgets`` the notebooks use: a widget that is set already keeps its value."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def text(self, name: str, default: str) -> None:
        self._values.setdefault(name, default)

    def get(self, name: str) -> str:
        return self._values[name]


def run(name: str, **names: Any) -> dict[str, Any]:
    """Run a notebook's cells in one namespace, as Databricks does; the names that it leaves."""
    file = FOLDER / f"{name}.py"
    exec(compile(file.read_text(encoding="utf-8"), file, "exec"), names)  # noqa: S102 -- what a user would run
    return names


def titles_that_do_not_fit(figure: Any) -> list[str]:
    """Those of a figure that its edge cuts off, or that are wider than what they stand over."""
    figure.canvas.draw()
    return [
        each.get_title()
        for each in figure.axes
        if each.title.get_window_extent().width > each.get_window_extent().width
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_first_notebook_drains_a_queue(spark, postgresql, guarded_url, tmp_path, monkeypatch, capsys):
    """It shows types and rates. As on Databricks: widgets, and the password of a secret."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    queue = postgresql.create_queue()
    queue_tables.send_load(ConnectionOptions.parse({"url": postgresql.url}), "orders", count=300)
    postgresql.execute("GRANT SELECT, UPDATE, DELETE ON orders TO guarded")
    secrets = SimpleNamespace(get=lambda *asked: {("shop", "spark"): GUARDED_PASSWORD}[asked])
    url = re.sub(r"(//guarded):[^@]+@", r"\1@", guarded_url)
    widgets = Widgets(url=url, password_secret="shop/spark", folder=str(tmp_path))
    # Outside of Databricks it takes the session that is there, or makes one.
    found = run("01_drain_to_delta", dbutils=SimpleNamespace(widgets=widgets, secrets=secrets))
    end(found["query"])
    assert queue.count() == 0
    kinds = ("Shop.Billing.PaymentAccepted", "Shop.Orders.OrderPlaced", "Shop.Shipping.ShipOrder")
    assert [(row.type, row.messages) for row in found["rows"]] == [(kind, 100) for kind in kinds]
    said = capsys.readouterr().out
    assert "300 messages wait in orders" in said
    assert "drained 300 messages in 1 batches" in said
    assert GUARDED_PASSWORD not in said
    panes = found["panes"]
    assert [bar.get_width() for bar in panes["types"].patches] == [100, 100, 100]
    rates, times = ([bar.get_height() for bar in panes[name].patches] for name in ("rates", "times"))
    assert (rates, times) == ([found["batches"][0].processedRowsPerSecond], [300])
    assert titles_that_do_not_fit(found["figure"]) == []
    plt.close(found["figure"])


def test_the_second_notebook_sends_and_forwards(spark, postgresql, tmp_path, monkeypatch, capsys):
    """Once, and atomically. As elsewhere: environment variables."""
    for name, value in {"URL": postgresql.url, "FOLDER": str(tmp_path), "BILLING": "Billing"}.items():
        monkeypatch.setenv(f"SQLQUEUE_{name}", value)
    found = run("02_send_with_outbox", spark=spark)
    end(found["query"])
    assert len(OutboxRows(postgresql, "Notebook_Sender").ids()) == 1000
    assert (postgresql.queue("Billing").count(), postgresql.queue("NotebookArchive").count()) == (0, 1000)
    said = capsys.readouterr().out.splitlines()
    assert said[-4:] == [
        "1000 messages in Billing",
        "1000 messages in Billing, 1000 ids in the outbox",
        "0 messages in Billing, 1000 in NotebookArchive",
        "0 of the messages are missing in NotebookArchive",
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_third_notebook_archives_an_error_queue(spark, postgresql, tmp_path, monkeypatch, capsys):
    """And shows what failed, by type over time."""
    for name, value in {"URL": postgresql.url, "FOLDER": str(tmp_path), "ORDERS": "orders"}.items():
        monkeypatch.setenv(f"SQLQUEUE_{name}", value)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    found = run("03_errors_and_retries", spark=spark)
    end(found["query"])
    assert (postgresql.queue("orders").count(), postgresql.queue("NotebookError").count()) == (0, 12)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if re.search(r"^\d+ messages|^copied \d+ messages", line)] == [
        "60 messages in orders",
        "12 messages in NotebookError",
        "copied 12 messages, and the second time 0",
        "12 messages have failed, 0 of them more than once",
    ]
    counted: dict[str, int] = {}
    for row in found["rows"]:
        counted[row["type"]] = counted.get(row["type"], 0) + row["messages"]
    assert counted == {"LookupError": 6, "ValueError": 6}
    heights = {bars.get_label(): sum(bar.get_height() for bar in bars) for bars in found["axes"].containers}
    assert heights == counted
    assert titles_that_do_not_fit(found["figure"]) == []
    plt.close(found["figure"])


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_the_fourth_notebook_stores_and_forwards(spark, engine, elsewhere, tmp_path, monkeypatch, capsys):
    """What waits while the other database is down arrives once."""
    for name, value in {"URL": engine.url, "BILLING_URL": elsewhere.url, "FOLDER": str(tmp_path)}.items():
        monkeypatch.setenv(f"SQLQUEUE_{name}", value)
    run("04_store_and_forward", spark=spark)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if re.search(r"^\d+ messages", line)] == [
        "60 messages in NotebookOutgoing",
        "0 messages in NotebookOutgoing, 60 wait",
        "0 messages in NotebookOutgoing, 0 wait",
        "60 messages in NotebookOrders, 60 different ones",
    ]
    assert (elsewhere.queue("NotebookOrders").count(), engine.queue("NotebookError").count()) == (60, 0)


@pytest.fixture
def jupyter(postgresql, tmp_path, monkeypatch):
    """Runs a notebook as Jupyter does, with what it shows; a line that begins with ``!`` is for a shell."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name, value in {"SQLQUEUE_URL": postgresql.url, "PATH": programs, "MPLBACKEND": "Agg"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.chdir(tmp_path)

    def shell(line: str) -> None:
        print(subprocess.run(line, shell=True, check=True, stdout=PIPE, text=True).stdout)  # noqa: S602, T201 -- as typed

    def run(name: str) -> dict[str, Any]:
        book = json.loads((FOLDER.with_name("examples") / name).read_text(encoding="utf-8"))
        code = [each for each in book["cells"] if each["cell_type"] == "code"]
        assert [each["outputs"] for each in code] == [[] for _ in code]
        names: dict[str, Any] = {"__name__": "__main__", "shell": shell}
        for each in code:
            text = re.sub("(?m)^!(.*)$", lambda line: f"shell({line[1]!r})", "".join(each["source"]))
            exec(text, names)  # noqa: S102 -- what a user would run
        return names

    return run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.tier("nightly")
def test_the_notebook_of_a_drain_runs_in_jupyter(spark, jupyter, postgresql, capsys):
    import matplotlib.pyplot as plt

    found = jupyter("drain_to_delta.ipynb")
    said = capsys.readouterr().out
    assert "\n1200 messages wait\n" in said
    assert "\n1200 messages in the table, 0 in the queue\n" in said
    drawn = {bars.get_label(): sum(bar.get_height() for bar in bars) for bars in found["axes"].containers}
    assert drawn == dict.fromkeys(
        ("Shop.Billing.PaymentAccepted", "Shop.Orders.OrderPlaced", "Shop.Shipping.ShipOrder"), 400
    )
    assert titles_that_do_not_fit(found["figure"]) == []
    plt.close(found["figure"])


@pytest.mark.slow
def test_the_notebook_of_a_handler_runs_in_jupyter(spark, jupyter, postgresql, capsys):
    """What fails once is handled the second time, and what always fails is in the error queue."""
    jupyter("handle_messages.ipynb")
    said = capsys.readouterr().out
    assert re.findall(r"^  rows +(\d+)$", said, re.MULTILINE) == ["3", "0", "1"]
    assert "\ndelivered 3 messages, 0 went to notebook-error\n" in said
    (failed,) = postgresql.queue("notebook-error").rows()
    assert failed.body == b'{"order":0}'


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_a_notebook_writes_into_a_folder_of_the_user_who_runs_it(file, tmp_path, monkeypatch):
    """Another user may have made one in a folder that is shared. On Databricks each user has his own."""
    text = file.read_text(encoding="utf-8")
    assert '\nfolder = parameter("folder") or own_folder()\n' in text
    (own,) = [each for each in ast.parse(text).body if getattr(each, "name", "") == "own_folder"]
    names: dict[str, Any] = {"Path": Path}
    exec(compile(ast.Module([own], []), file, "exec"), names)  # noqa: S102 -- what a user would run
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Path(names["own_folder"]())
    assert (made, stat.S_IMODE(made.stat().st_mode)) == (tmp_path / "sqlqueue", 0o700)
    user = SimpleNamespace(first=lambda: ("me@here",))
    names |= {"dbutils": None, "spark": SimpleNamespace(sql={"SELECT current_user()": user}.__getitem__)}
    assert names["own_folder"]() == "/Users/me@here/sqlqueue"


@pytest.mark.parametrize(
    "name", ["01_drain_to_delta", "02_send_with_outbox", "03_errors_and_retries", "04_store_and_forward"]
)
def test_a_notebook_is_in_databricks_source_format(name):
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    first, *cells = re.split(r"\n\n+# COMMAND ----------\n\n", text)
    assert first.startswith("# Databricks notebook source\n# MAGIC %md\n")
    assert all(
        cell.startswith("# MAGIC %md\n")
        == all(line.startswith("# MAGIC") for line in cell.splitlines() if line)
        for cell in cells
    )
