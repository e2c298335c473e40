"""The names that Spark puts among the options: which, and that queries, paths and SQL work with them."""

import json
import re
import traceback

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource

from sqlqueue_spark.spark.datasource import OF_QUERIES, OF_TABLES, PATHS
from tests.support.messages import message_ids, row_ids
from tests.support.sending import ids_in
from tests.support.streams import drain, stream

#: The most lines of an error in a user's own program.
FEW = 40


@pytest.fixture
def orders(postgresql):
    """A queue with 3 messages."""
    queue = postgresql.create_queue("orders")
    queue.insert(3)
    return queue


@pytest.fixture
def billing(postgresql):
    return postgresql.create_queue("Billing")


@pytest.fixture
def names(spark):
    """Does something with the format ``told``, and says which names it has among its options."""

    class Told(DataSource):  # here, so that it travels to the workers by value
        @classmethod
        def name(cls):
            return "told"

        def schema(self):
            raise RuntimeError(f"names={json.dumps(sorted(self.options))}")

        def writer(self, *_):
            self.schema()

        streamWriter = writer  # noqa: N815 -- Spark's name

    spark.dataSource.register(Told)

    def told(act):
        with pytest.raises(PySparkException) as caught:
            act()
        return set(json.loads(re.findall(r"names=(\[.*\])", str(caught.value))[-1]))

    return told


def test_spark_puts_no_other_names_among_the_options(spark, names, tmp_path):
    """Where a new Spark adds one, ``own_options`` does not know it."""
    frame, ticks = spark.range(1), spark.readStream.format("rate").load().select("value")
    query = ticks.writeStream.format("told").queryName("ticks").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    view = "CREATE TEMPORARY VIEW told USING told OPTIONS (mine '1')"
    table = "CREATE TABLE told USING told OPTIONS (mine '1') COMMENT 'a table'"
    path, paths = PATHS
    assert names(lambda: spark.read.format("told").load()) == set()
    assert names(lambda: spark.read.format("told").load("x")) == {path}
    assert names(lambda: spark.read.format("told").load(["x", "y"])) == {paths}
    assert names(lambda: spark.readStream.format("told").load("x")) == {path}
    assert names(lambda: frame.write.format("told").mode("append").save("x")) == {path}
    assert names(lambda: query.start("x").awaitTermination(60)) == {
        path,
        *(each.lower() for each in OF_QUERIES),
    }
    assert names(lambda: spark.sql(view)) == {"mine"}
    assert names(lambda: spark.sql(table)) == {"mine", "option.mine", "comment", "owner", OF_TABLES}


def test_a_named_query_writes_by_format(spark, postgresql, orders, billing, tmp_path):
    messages = stream(spark, postgresql, orders).select("Headers", "Body")
    writer = messages.writeStream.format("sqlqueue").queryName("to Billing").options(
        url=postgresql.url, queue="Billing", outbox="none", checkpointLocation=str(tmp_path / "checkpoint")
    )  # fmt: skip
    assert drain(writer).name == "to Billing"
    assert sorted(ids_in(billing)) == message_ids(range(3))


def test_paths_name_several_queues(spark, postgresql, orders, billing):
    billing.insert(1)
    frame = spark.read.format("sqlqueue").option("url", postgresql.url).load(["orders", "Billing"])
    counted = {row["Queue"]: row["count"] for row in frame.groupBy("Queue").count().collect()}
    assert counted == {"orders@[public]": 3, "Billing@[public]": 1}


def test_sql_reads_by_a_temporary_view(spark, postgresql, orders):
    given = f"url '{postgresql.url}', queue 'orders'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders_rows USING sqlqueue OPTIONS ({given})")
    rows = spark.sql("SELECT Id FROM orders_rows").collect()
    assert sorted(row.Id for row in rows) == [str(each) for each in row_ids(range(3))]


def said(act):
    """What a user's program prints of the error that this raises."""
    try:
        act()
    except PySparkException:
        return traceback.format_exc().strip().splitlines()
    raise AssertionError("it raised nothing")


def sentences(lines):
    """The package's own ones among these lines."""
    return [
        sentence
        for each in lines
        if (sentence := each.partition("sqlqueue_spark.errors.ConfigurationError: ")[2])
    ]


def test_create_table_is_refused_at_once(spark, postgresql, orders):
    given = f"url '{postgresql.url}', queue 'orders'"
    lines = said(lambda: spark.sql(f"CREATE TABLE kept USING sqlqueue OPTIONS ({given})"))
    (sentence,) = sentences(lines)
    assert sentence == (
        "Spark does not give the options of a table in its catalog to a data source in Python when the table "
        "is read or written; instead of CREATE TABLE write CREATE TEMPORARY VIEW … USING sqlqueue OPTIONS "
        "(url '…', queue '…')."
    )
    assert len(lines) <= FEW
    assert not spark.catalog.tableExists("kept")


def test_overwriting_is_refused(spark, postgresql, billing):
    """Spark proposes it to those who have said no mode."""
    billing.insert(1)
    rows = spark.createDataFrame([("{}", b"")], "Headers string, Body binary").write.format("sqlqueue")
    rows = rows.options(url=postgresql.url, queue="Billing", outbox="none")
    assert 'use either the "Append" or "Overwrite" mode' in said(rows.save)[-1]
    lines = said(rows.mode("overwrite").save)
    (sentence,) = sentences(lines)
    assert sentence == (
        "A queue cannot be overwritten: receivers own its rows; write with mode append, and empty it with: "
        "sqlqueue purge 'Billing@[public]'."
    )
    assert len(lines) <= FEW
    assert billing.count() == 1
