"""A declarative pipeline sends by its sink, and a mistake is said in few lines there and in a notebook.

Both need packages that the tests' environment lacks. So they get the wheel in an environment of their own.
"""

import json
import os
import re
import subprocess
import textwrap

import pytest

from tests.streaming.test_doors import MOST_LINES
from tests.support.messages import message_ids
from tests.support.quick_java import quick
from tests.support.sending import ids_in
from tests.support.spark_home import spark_home
from tests.support.wheel import Installed

pytestmark = [pytest.mark.tier("nightly"), pytest.mark.timeout(600)]

SPEC = "{name: shop, storage: 'file://FOLDER/storage', libraries: [{glob: {include: shop.py}}]}"
PIPELINE = textwrap.dedent("""
    from pyspark import pipelines
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    pipelines.create_sink("billing", "sqlqueue", SINK)

    @pipelines.append_flow(target="billing", name="orders_to_billing")
    def orders_to_billing():
        orders = spark.readStream.format("sqlqueue").options(**SOURCE).load()
        return orders.select("Headers", "Body")
""")
BEGIN = textwrap.dedent("""
    from pyspark.sql import SparkSession, functions as F
    from sqlqueue_spark import SqlQueueSink
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    right = RIGHT
    guessed = {"url": GUARDED, "password": "guess"}
    rows = spark.createDataFrame([("{}", "x")], "Headers string, Body string")
""")
#: Cells, each with a mistake, by the name of what is said of it.
CELLS = {
    "source": 'spark.readStream.format("sqlqueue").options(**{**right, "queue": "ordrs"}).load()',
    "option": 'spark.readStream.format("sqlqueue").options(**right, quue="orders").load()',
    "password": 'spark.readStream.format("sqlqueue").options(**{**right, **guessed}).load()',
    "peek": 'spark.read.format("sqlqueue").options(**{**right, "queue": "ordrs"}).load().show()',
    "write": textwrap.dedent("""
        to = {**right, "queue": "ordrs", "outbox": "none"}
        rows.write.format("sqlqueue").mode("append").options(**to).save()
    """),
    "argument": 'SqlQueueSink(**right, quue="orders")',
    "sink": 'SqlQueueSink(**{**right, "queue": "ordrs"}, outbox="none")',
}
#: Queries that find their mistake while they run.
QUERIES = {
    "batch": textwrap.dedent("""
        orders = spark.readStream.format("sqlqueue").options(**right).load().select("Headers", "Body")
        sink = SqlQueueSink(**right, outbox="none")
        query = orders.select("Body", F.lit("ordrs").alias("Destination")).writeStream.foreachBatch(sink)
        query = query.option("checkpointLocation", "batch").trigger(availableNow=True)
        query.start().awaitTermination()
    """),
    "stream": textwrap.dedent("""
        to = {**right, "queue": "ordrs", "outbox": "none", "checkpointLocation": "stream"}
        query = orders.writeStream.format("sqlqueue").options(**to).trigger(availableNow=True)
        query.start().awaitTermination()
    """),
}
NOTEBOOK = textwrap.dedent("""
    import json, nbclient, nbformat, sys
    cells = [nbformat.v4.new_code_cell(each) for each in json.load(sys.stdin)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, allow_errors=True).execute()
    print("####", json.dumps([each.outputs for each in notebook.cells]))
""")


@pytest.fixture
def said(postgresql):
    where = postgresql.url.rpartition("@")[2]
    option = "There is no option 'quue'; did you mean queue?"
    missing = (
        "There is no queue table ordrs@[public] in this database; create it with: sqlqueue create 'ordrs', "
        "or correct the queue name or its schema."
    )
    return {
        "source": missing,
        "option": option,
        "password": f"The database at {where} refused the login of user 'guarded'; check user and password.",
        "peek": missing,
        "argument": option,
        "sink": missing.replace("in this database", "to send to").replace("queue name", "destination"),
        **dict.fromkeys(
            ("write", "batch", "stream"),
            "There is no queue table ordrs@[public] to send to; create it with: sqlqueue create 'ordrs', or "
            "correct the destination or its schema. Nothing of this batch was sent.",
        ),
    }


def ran(doors: Installed, folder, *command, given=None):
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), doors.python)
    path = f"{doors.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(each) for each in command], input=given, cwd=folder, capture_output=True, text=True, check=False,
        env=doors.environment(**quick(), **python, PATH=path, SPARK_LOCAL_IP="127.0.0.1"),
    )  # fmt: skip


def pipeline(doors, folder, source, sink):
    """What ``spark-pipelines run`` ends with, and says."""
    (folder / "spark-pipeline.yml").write_text(SPEC.replace("FOLDER", str(folder)))
    (folder / "shop.py").write_text(PIPELINE.replace("SINK", repr(sink)).replace("SOURCE", repr(source)))
    done = ran(doors, folder, "bash", spark_home() / "bin" / "spark-pipelines", "run")
    return done.returncode, done.stdout + done.stderr


def test_a_declarative_pipeline_sends_by_its_sink(doors, postgresql, tmp_path):
    """Spark names the query of each flow, and so there is one more option."""
    orders, billing = postgresql.create_queue("orders"), postgresql.create_queue("Billing")
    orders.insert(20)
    source = {"url": postgresql.url, "queue": "orders"}
    sink = {"url": postgresql.url, "queue": "Billing", "outbox": "none"}
    code, said = pipeline(doors, tmp_path, source, sink)
    assert (code, "Run is COMPLETED." in said) == (0, True), said
    assert (sorted(ids_in(billing)), orders.count()) == (message_ids(range(20)), 0)


def test_a_misspelt_queue_of_a_pipeline_is_said_in_the_line_of_its_error(doors, said, postgresql, tmp_path):
    postgresql.create_queue("orders").insert(1)
    source = {"url": postgresql.url, "queue": "orders"}
    code, told = pipeline(
        doors, tmp_path, source, {"url": postgresql.url, "queue": "ordrs", "outbox": "none"}
    )
    errors = {line.rpartition("QueueError: ")[2] for line in told.splitlines() if line.startswith("Error: ")}
    assert (code, errors) == (1, {said["stream"]}), told


def notebook(doors, folder, cells):
    """The outputs of each cell."""
    done = ran(doors, folder, doors.python, "-c", NOTEBOOK, given=json.dumps(cells))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.rpartition("####")[2])


def lines_of(outputs):
    """What is printed in a cell, then the lines of its error."""
    printed = "".join(each["text"] for each in outputs if each["output_type"] == "stream")
    (error,) = (each for each in outputs if each["output_type"] == "error")
    plain = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error["traceback"]))
    return printed.splitlines(), plain.splitlines()


@pytest.fixture
def begin(postgresql, guarded_url):
    postgresql.create_queue("orders").insert(1)
    right = repr({"url": postgresql.url, "queue": "orders"})
    return BEGIN.replace("RIGHT", right).replace("GUARDED", repr(guarded_url))


def test_a_notebook_ends_with_the_sentence(doors, begin, said, tmp_path):
    """Below it stands the line with Spark's state alone."""
    first, *outputs = notebook(doors, tmp_path, [begin, *CELLS.values()])
    assert [each for each in first if each["output_type"] == "error"] == []
    found = {}
    for name, each in zip(CELLS, outputs, strict=True):
        _, lines = lines_of(each)
        assert len(lines) <= MOST_LINES, lines
        last = [line for line in lines if line.strip() and not line.startswith(" SQLSTATE")][-1]
        found[name] = re.split(r"\w+Error: ", last)[-1]
    assert found == {name: said[name] for name in CELLS}


def test_a_notebook_with_the_extension_begins_with_the_sentence(doors, begin, said, tmp_path):
    """Also of a query, whose state Spark adds. The log of Spark comes before."""
    cells = CELLS | QUERIES
    _, _, *outputs = notebook(doors, tmp_path, [begin, "%load_ext sqlqueue_spark", *cells.values()])
    found = {}
    for name, each in zip(cells, outputs, strict=True):
        printed, lines = lines_of(each)
        assert len(lines) <= MOST_LINES, lines
        found[name] = printed[-1]
    assert found == said
