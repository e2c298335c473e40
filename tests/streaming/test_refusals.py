"""What cannot work is refused with one sentence that says why and what to do, and that tells no secret."""

import socket
from contextlib import closing

import pytest
from pyspark.errors import PySparkException

from sqlqueue_spark import why
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline import read_queue
from sqlqueue_spark.pipeline.running.delta_lake import knows
from sqlqueue_spark.pipeline.running.readiness import check_checkpoint
from sqlqueue_spark.tables import scripts
from sqlqueue_spark.tables.rights import RECEIVER
from tests.conftest import GUARDED_PASSWORD, GUARDED_ROLE
from tests.support.streams import drain, stream, to_delta, to_each


def refusal(action):
    """The package's sentence within what Spark makes of it; a secret in any of it fails the test."""
    with pytest.raises(PySparkException) as caught:
        action()
    text = str(caught.value)
    assert GUARDED_PASSWORD not in text
    assert GUARDED_PASSWORD.replace(" ", "%20") not in text
    assert "sqlqueue_spark.errors." in text
    return why(caught.value)


def test_a_schema_unlike_the_queues_is_refused(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    options = {"url": postgresql.url, "queue": queue.address}
    said = (
        "The schema struct<Id:string,Body:string> is not the queue's; "
        "leave out .schema(…) and select or cast columns of "
        "struct<Id:string,CorrelationId:string,ReplyToAddress:string,Recoverable:boolean,Expires:timestamp,"
        "Headers:string,Body:binary,RowVersion:bigint>."
    )
    streaming = spark.readStream.format("sqlqueue").schema("Id string, Body string").options(**options)
    peeking = spark.read.format("sqlqueue").schema("Id string, Body string").options(**options)
    assert refusal(lambda: drain(to_delta(streaming.load(), tmp_path))) == said
    assert refusal(lambda: peeking.load().collect()) == said


def test_an_unknown_option_is_refused(spark, postgresql, tmp_path):
    queue = postgresql.create_queue()
    assert refusal(lambda: stream(spark, postgresql, queue, maxMessagePerTriger=1)) == (
        "There is no option 'maxmessagepertriger'; did you mean maxMessagesPerTrigger?"
    )


def test_a_checkpoint_of_another_queue_is_refused(spark, postgresql, tmp_path):
    orders, invoices = postgresql.create_queue(), postgresql.create_queue("invoices")
    orders.insert(2)
    invoices.insert(2)
    database = postgresql.url.rpartition("/")[2]
    drain(to_each(stream(spark, postgresql, orders), tmp_path, lambda *_: None))
    writer = to_each(stream(spark, postgresql, invoices), tmp_path, lambda *_: None)
    said = (
        f"The checkpoint belongs to the queue orders@[public]@[{database}], not to "
        f"invoices@[public]@[{database}]; give every queue a checkpoint of its own, "
        "or correct the option queue; several sources of a query keep their order."
    )
    assert refusal(lambda: drain(writer)) == said
    assert invoices.count() == 2
    # A job reads the same files before Spark starts.
    source = SourceOptions.parse({"url": postgresql.url, "queue": "invoices"})
    with pytest.raises(ConfigurationError) as caught:
        check_checkpoint(source, f"file:{tmp_path}/checkpoint")
    assert str(caught.value) == f"{said} The folder of the checkpoint is 'file:{tmp_path}/checkpoint'."


def test_a_queue_that_is_not_there_is_refused(spark, postgresql, tmp_path):
    assert refusal(lambda: stream(spark, postgresql, postgresql.queue("nowhere"))) == (
        "There is no queue table nowhere@[public] in this database; create it with: sqlqueue create "
        "'nowhere', or correct the queue name or its schema."
    )


def test_a_wrong_password_is_refused(spark, postgresql, guarded_url, tmp_path):
    queue = postgresql.create_queue()
    where = postgresql.url.rpartition("@")[2]
    assert refusal(lambda: stream(spark, postgresql, queue, url=guarded_url, password="guess")) == (
        f"The database at {where} refused the login of user 'guarded'; check user and password."
    )


def test_a_login_without_rights_is_refused(spark, postgresql, guarded_url, tmp_path):
    queue = postgresql.create_queue()
    where = postgresql.url.rpartition("@")[2]
    said = refusal(lambda: stream(spark, postgresql, queue, url=guarded_url))
    assert said.startswith(f"User 'guarded' lacks a right at {where} while looking at orders@")


def test_a_login_that_may_only_look_is_told_what_it_lacks_to_receive(spark, postgresql, guarded_url):
    postgresql.create_queue()
    postgresql.execute(f"GRANT SELECT ON orders TO {GUARDED_ROLE}")
    given = {"url": guarded_url, "queue": "orders"}
    with pytest.raises(QueueError) as caught:
        read_queue(spark, given)
    assert str(caught.value) == (
        f"The user 'guarded' may not receive from orders@[public]@[{postgresql.url.rpartition('/')[2]}], "
        "for it lacks UPDATE, DELETE; have a receiver's rights granted. "
        + " ".join(scripts.grants("postgresql", GUARDED_ROLE, RECEIVER, ["orders"]).split())
    )
    postgresql.execute(f"GRANT UPDATE, DELETE ON orders TO {GUARDED_ROLE}")
    assert read_queue(spark, given).isStreaming


def test_a_database_that_is_down_is_no_error_of_a_frame(spark, postgresql, tmp_path):
    """The first batch asks it: the stream may be one that a program starts while the database starts."""
    queue = postgresql.create_queue()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    frame = stream(spark, postgresql, queue, url=f"postgresql://me@127.0.0.1:{port}/shop")
    assert read_queue(spark, {"url": f"postgresql://me@127.0.0.1:{port}/shop", "queue": "orders"}).isStreaming
    assert refusal(lambda: drain(to_delta(frame, tmp_path))).startswith(
        f"No database answers at 127.0.0.1:{port}/shop "
    )


def test_a_password_is_in_no_plan_and_no_checkpoint(spark, postgresql, guarded_url, tmp_path, capsys):
    queue = postgresql.create_queue()
    queue.insert(1)
    postgresql.execute(f"GRANT SELECT, UPDATE, DELETE ON orders TO {GUARDED_ROLE}")
    frame = stream(spark, postgresql, queue, url=guarded_url)
    query = drain(
        to_each(frame, tmp_path, lambda batch, _: batch.write.format("noop").mode("overwrite").save())
    )
    peeked = spark.read.format("sqlqueue").options(url=guarded_url, queue=queue.address).load()
    plans = []
    for each in (frame, peeked, query):
        capsys.readouterr()
        each.explain(extended=True)
        plans.append(capsys.readouterr().out)
    assert ["sqlqueue" in plan for plan in plans] == [True, True, True]
    files = [file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 3
    assert [text for text in (*plans, *files, str(query.lastProgress)) if "sesame" in text] == []


def test_a_session_is_asked_whether_it_knows_a_format(spark):
    assert [knows(spark, source) for source in ("delta", "sqlqueue", "no such format")] == [True, True, False]
