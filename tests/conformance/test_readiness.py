"""What a job needs is looked for before Spark starts, and created where the user asks for that."""

import json
import re
from unittest import mock

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import delayed_tables, outbox_tables
from sqlqueue_spark.engines.open_connection import Target, one_each
from sqlqueue_spark.errors import ConfigurationError, QueueError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.pipeline import check_ready, create_missing
from sqlqueue_spark.pipeline.declared import jobs, store_and_forward
from sqlqueue_spark.pipeline.running import program
from sqlqueue_spark.pipeline.running.readiness import check_checkpoint
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.row_set import RowSet
from sqlqueue_spark.send.compose.database_of_address import Places
from sqlqueue_spark.send.deliver.preflight import look_before
from sqlqueue_spark.tables.database_facts import are_one
from tests.conftest import GUARDED_ROLE
from tests.support.engines import with_catalog


def source(engine, **more):
    return SourceOptions.parse({"url": engine.url, "queue": "orders", **more})


def sink(engine, **more):
    options = SinkOptions.parse({"url": engine.url, "queue": "Billing", "endpoint": "Forward", **more})
    return Places(options, options)


@pytest.fixture
def ready(engine):
    """Both queues, and the outbox."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), "Forward")
    return [engine.create_queue(name) for name in ("orders", "Billing")]


def refusal(action):
    with pytest.raises((QueueError, ConfigurationError)) as caught:
        action()
    return str(caught.value)


def full(engine, table):
    return f"{table}@[{engine.default_schema}]"


def test_where_all_is_there_nothing_is_said_and_nothing_changed(engine, ready):
    orders, billing = ready
    orders.insert(3)
    check_ready(source(engine), sink(engine))
    assert create_missing(source(engine), sink(engine)) == []
    assert (orders.count(), billing.count()) == (3, 0)


def test_a_missing_queue_of_the_source_is_named(engine):
    assert refusal(lambda: check_ready(source(engine))) == (
        f"There is no queue table {full(engine, 'orders')} in this database; create it with: sqlqueue create "
        "'orders', or correct the queue name or its schema."
    )


def test_a_missing_error_queue_is_named(engine, ready):
    assert refusal(lambda: check_ready(source(engine, errorQueue="error"))) == (
        f"There is no queue table {full(engine, 'error')} in this database; create it with: sqlqueue create "
        "'error', or correct the queue name or its schema."
    )


def test_a_missing_destination_is_named(engine, ready):
    assert refusal(lambda: check_ready(source(engine), sink(engine, queue="Shipping"))) == (
        f"There is no queue table {full(engine, 'Shipping')} to send to; create it with: sqlqueue create "
        "'Shipping', or correct the destination or its schema."
    )


REMEDY = (
    "with that database's url (SQLQUEUE_URL or --url) create it with: sqlqueue outbox create '{}', or set "
    "outbox to none."
)


def test_a_missing_outbox_is_named(engine, ready):
    said = refusal(lambda: check_ready(source(engine), sink(engine, endpoint="Other")))
    assert said.endswith(REMEDY.format("Other"))


def test_an_outbox_that_is_missing_in_the_sinks_database_alone_is_said_to_be_missing_there(engine, elsewhere):
    for name in ("outgoing", "error"):
        engine.create_queue(name)
    given = ConnectionOptions.parse({"url": engine.url})
    outbox_tables.create(given, "Forward")
    delayed_tables.create(given, "outgoing")
    job = store_and_forward.StoreAndForward(
        {"url": engine.url, "queue": "outgoing"},
        {"url": elsewhere.url, "endpoint": "Forward", "errorQueue": "error"},
        store_and_forward.StoreAndForwardOptions.parse({"checkpoint": "none"}),
    )
    said = refusal(lambda: job.make_ready(create=False))
    there = with_catalog(elsewhere, "x").rpartition("@[")[2].rstrip("]")
    assert re.search(
        rf"^There is no outbox table \S+ in the database '{there}' at \S+:\d+; with that database's url ",
        said,
    )
    assert said.endswith(REMEDY.format("Forward"))


@pytest.mark.tier("all")
def test_a_sink_by_itself_needs_no_outbox_at_home_where_its_queue_is_elsewhere(engine, elsewhere):
    """A job does: what becomes of received rows is known at home. Nor does one whose rows name the queue."""
    elsewhere.create_queue("billing")
    leads = {"url": engine.url, "endpoint": "Forward", "endpoint.billing.url": elsewhere.url}
    by_option = SinkOptions.parse({**leads, "queue": "billing"})
    assert "There is no outbox table " in refusal(lambda: look_before(by_option))
    outbox_tables.create(ConnectionOptions.parse({"url": elsewhere.url}), "Forward")
    look_before(by_option)
    look_before(SinkOptions.parse(leads))
    engine.create_queue("orders")
    at_home = SinkOptions.parse({**leads, "queue": "orders"})
    alone = SinkOptions.parse({"url": engine.url, "endpoint": "Forward"})
    for refused in (
        lambda: look_before(at_home),
        lambda: look_before(alone),
        lambda: check_ready(source(engine), by_option),
    ):
        assert "There is no outbox table " in refusal(refused)


def test_a_sink_without_an_outbox_or_with_a_stage_needs_none(engine, ready):
    check_ready(source(engine), sink(engine, endpoint="Other", outbox="none"))
    atomic = {"transactionMode": "sendsAtomicWithReceive", "stream": "Other"}
    check_ready(source(engine, **atomic), sink(engine, **atomic))


def test_a_destination_in_another_database_is_refused_in_an_atomic_pipeline(engine, ready):
    atomic = {"transactionMode": "sendsAtomicWithReceive", "stream": "Other"}
    there = {"endpoint.Billing.url": engine.url.replace("postgresql://", "postgresql://somebody@", 1)}
    if engine.name != "postgresql":
        there = {"endpoint.Billing.url": engine.url + ";App=other"}
    assert refusal(lambda: check_ready(source(engine, **atomic), sink(engine, **atomic, **there))) == (
        "The destination 'Billing' lies in another database, which transactionMode sendsAtomicWithReceive "
        "cannot reach in one transaction; send to it with receiveOnly and an outbox, or name a queue of this "
        "database as storeAndForward."
    )


def test_what_is_missing_is_created_and_named(engine):
    given = source(engine, errorQueue="error"), sink(engine)
    made = create_missing(*given)
    assert [line.partition("@")[0] for line in made[:3]] == [
        "created queue=orders",
        "created queue=error",
        "created queue=Billing",
    ]
    assert len(made) == 4
    assert made[3].startswith("created outbox=")
    check_ready(*given)
    assert create_missing(*given) == []


def test_the_table_of_the_delayed_endpoint_is_created_where_it_is_looked_for(postgresql):
    """In the sink's schema."""
    postgresql.execute("CREATE SCHEMA sales")
    given = source(postgresql), sink(postgresql, defaultSchema="sales", delayedEndpoint="Timeouts")
    made = create_missing(*given)
    assert f"created table=Timeouts.Delayed@[sales]@[{postgresql.url.rpartition('/')[2]}]" in made
    check_ready(*given)


def test_a_login_that_may_not_receive_or_send_is_told_which_rights_it_lacks(postgresql, guarded_url):
    for name in ("orders", "Billing"):
        postgresql.create_queue(name)
    outbox_tables.create(ConnectionOptions.parse({"url": postgresql.url}), "Forward")
    mine = SourceOptions.parse({"url": guarded_url, "queue": "orders"})
    assert refusal(lambda: check_ready(mine)) == (
        f"The user {GUARDED_ROLE!r} may not receive from "
        f"orders@[public]@[{postgresql.url.rpartition('/')[2]}], for it lacks SELECT, UPDATE, DELETE; have a "
        f"receiver's rights granted. {granted('orders', 'SELECT', 'UPDATE (id)', 'DELETE')}"
    )
    postgresql.execute(f"GRANT SELECT, UPDATE, DELETE ON orders TO {GUARDED_ROLE}")
    check_ready(mine)
    theirs = sink(postgresql, url=guarded_url)
    assert refusal(lambda: check_ready(mine, theirs)).startswith(
        f"The user {GUARDED_ROLE!r} may not send to Billing@[public]@["
    )
    postgresql.execute(f'GRANT INSERT ON "Billing" TO {GUARDED_ROLE}')
    postgresql.execute(f'GRANT USAGE ON SEQUENCE "Billing_seq_seq" TO {GUARDED_ROLE}')
    postgresql.execute(f'GRANT SELECT ON "Forward_OutboxData" TO {GUARDED_ROLE}')
    assert refusal(lambda: check_ready(mine, theirs)).endswith(
        "(permission denied for table Forward_OutboxData); an outbox needs SELECT, INSERT and DELETE (and "
        "UPDATE on PostgreSQL, to lock rows) on its table; sqlqueue script QUEUE --engine postgresql "
        "--grants 'guarded' --role sender --endpoint 'Forward' writes the statements."
    )
    postgresql.execute(f'GRANT INSERT ON "Forward_OutboxData" TO {GUARDED_ROLE}')
    check_ready(mine, theirs)
    assert postgresql.fetch('SELECT count(*) FROM "Forward_OutboxData"') == [(0,)]


def granted(table, *rights):
    """The statements that grant these rights."""
    on_table = (f'GRANT {right} ON "public"."{table}" TO "{GUARDED_ROLE}";' for right in rights)
    return " ".join([f'GRANT USAGE ON SCHEMA "public" TO "{GUARDED_ROLE}";', *on_table])


@pytest.mark.parametrize(
    "job, arguments", [(jobs.drain, ("--path", "x")), (jobs.forward, ("--to", "Billing", "--endpoint", "F"))]
)
def test_a_job_ends_before_spark_starts(postgresql, job, arguments, monkeypatch):
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))
    command = ["--queue", "orders", "--checkpoint", "c", *arguments]
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(job, command)
    assert (result.exit_code, result.stdout, result.stderr) == (
        1,
        "",
        (
            "Error: There is no queue table orders@[public] in this database; create it with: sqlqueue "
            "create 'orders', or correct the queue name or its schema.\n"
        ),
    )


#: Each job that has a stream, and what it needs beside its queue.
STREAMS = {
    jobs.drain: ("--path", "x"),
    jobs.forward: ("--to", "billing", "--endpoint", "F"),
    jobs.handle: (
        "--handler",
        "json:loads",
        "--endpoint",
        "F",
        "--error-queue",
        "error",
    ),
    jobs.archive: ("--into", "x", "--take"),
    jobs.store_and_forward: ("--endpoint", "F", "--error-queue", "error"),
}


def begun(folder, queue):
    """A checkpoint whose newest batch has rows of a queue, as Spark writes it."""
    (folder / "offsets").mkdir()
    for number in (9, 10):
        its = queue if number == 10 else "older"
        end = Offset(queue=its, identity="1", live=RowSet([(1, 2)]), expired=RowSet()).to_json()
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(end)}')
    return str(folder)


@pytest.mark.tier("all")
@pytest.mark.parametrize("create", [[], ["--create"]], ids=["made before", "--create"])
def test_a_checkpoint_of_another_queue_is_told_before_spark_starts(postgresql, tmp_path, monkeypatch, create):
    """With ``--create`` nothing is created before."""
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))
    for name in ("orders", "other") if create else ("orders", "other", "billing", "error"):
        postgresql.create_queue(name)
    if not create:
        given = ConnectionOptions.parse({"url": postgresql.url})
        outbox_tables.create(given, "F")
        delayed_tables.create(given, "orders")
    other = with_catalog(postgresql, "other")
    there = f"{postgresql.url}?application_name=there"
    env = {"SQLQUEUE_URL": postgresql.url, "SQLQUEUE_SINK_URL": there}
    folder, told = begun(tmp_path, other), {}
    for job, arguments in STREAMS.items():
        command = ["--queue", "orders", "--checkpoint", folder, *arguments, *create]
        result = CliRunner(env=env).invoke(job, command)
        told[job.name] = result.exit_code, result.stdout, result.stderr
    said = (
        f"Error: The checkpoint belongs to the queue {other}, not to {with_catalog(postgresql, 'orders')}; "
        "give every queue a checkpoint of its own, or correct the option queue; several "
        f"sources of a query keep their order. The folder of the checkpoint is {folder!r}.\n"
    )
    assert told == dict.fromkeys([job.name for job in STREAMS], (1, "", said))


def test_a_copy_writes_no_checkpoint_and_so_needs_no_folder_for_one(postgresql, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "session", mock.Mock())
    monkeypatch.setattr(jobs, "archive_until_stopped", lambda *_: None)
    file = tmp_path / "file"
    file.touch()
    postgresql.create_queue("orders")
    command = ["orders", "--into", str(tmp_path / "x"), "--checkpoint", f"{file}/c"]
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(jobs.archive, command)
    assert (result.exit_code, result.output) == (0, "")
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(jobs.archive, [*command, "--take"])
    assert (result.exit_code, result.stderr.partition(",")[0]) == (
        1, f"Error: The option checkpoint is '{file}/c'",
    )  # fmt: skip


@pytest.mark.parametrize("create", [[], ["--create"]], ids=["made before", "--create"])
def test_a_copy_has_no_stream_and_so_reads_no_checkpoint(postgresql, tmp_path, monkeypatch, create):
    monkeypatch.setattr(program, "session", mock.Mock())
    monkeypatch.setattr(jobs, "archive_until_stopped", lambda *_: None)
    folder = begun(tmp_path, with_catalog(postgresql, "other"))
    postgresql.create_queue("orders")
    command = ["orders", "--into", "x", "--checkpoint", folder, *create]
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(jobs.archive, command)
    assert (result.exit_code, result.output) == (0, "")


def test_a_checkpoint_that_does_not_tell_its_queue_is_left_to_spark(tmp_path):
    """Then no database is asked."""
    nowhere = SourceOptions.parse({"url": "postgresql://nowhere.invalid/shop", "queue": "orders"})
    for folder in (None, str(tmp_path / "nowhere"), "s3://bucket/checkpoint"):
        check_checkpoint(nowhere, folder)
    (tmp_path / "offsets").mkdir()
    for kept in ("", "v1\n{}", "v1\n{}\n-", "v1\n{}\n17", "v1\n{}\n{}\n{}", 'v1\n{}\n{"version":1}'):
        (tmp_path / "offsets" / "0").write_text(kept)
        check_checkpoint(nowhere, str(tmp_path))


def test_a_job_creates_what_is_missing(postgresql, monkeypatch):
    monkeypatch.setattr(program, "session", mock.Mock())
    monkeypatch.setattr(jobs, "drain_until_stopped", lambda *_: None)
    command = ["--queue", "orders", "--checkpoint", "c", "--path", "x", "--create"]
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(jobs.drain, command)
    database = postgresql.url.rpartition("/")[2]
    assert (result.exit_code, result.stdout) == (0, f"created queue=orders@[public]@[{database}]\n")
    assert postgresql.queue("orders").count() == 0


TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
CREATE = ("--endpoint", "E", "--error-queue", "error", "--checkpoint", "c", "--create")
HANDLER = ("--handler", "json:loads")
NOWHERE = "postgresql://me@127.0.0.1:1/shop"
LONG = "Shop.Of.A.Name.Too.Long.Ends"
NOT_THERE = "There is no such database at 127.0.0.1:"
ATOMIC = ("--stream", "S", "--transaction-mode", "sendsAtomicWithReceive")


@pytest.mark.parametrize(
    "job,arguments,code,sentence",
    [
        (
            "handle",
            ("--handler", "no_such:handle"),
            2,
            "The module of the function no_such:handle cannot be ",
        ),
        ("handle", ("--handler", "json:handle"), 2, "The module json has no function handle; correct the n"),
        (
            "handle",
            (*HANDLER, "--set", "sink.outbox=none"),
            2,
            "The rows of the frame are outcomes of receiv",
        ),
        (
            "handle",
            (*HANDLER, "--set", "sink.publish=true"),
            2,
            "The option publish is on, and the frame has ",
        ),
        ("handle", (*HANDLER, "--checkpoint", "{file}/c"), 1, "The option checkpoint is '{file}/c', and "),
        ("forward", (), 2, "Nothing says where to send: give the option queue, or the column Destination wi"),
        (
            "forward",
            ("--function", "no_such:route"),
            2,
            "The module of the function no_such:route cannot be ",
        ),
        ("forward", ("--to", "B", "--sink-url", NOWHERE), 1, "No database answers at 127.0.0.1:1/shop ("),
        (
            "forward",
            ("--to", "A", *ATOMIC, "--set", f"sink.endpoint.A.url={NOWHERE}"),
            1,
            "The destination 'A' lies in another database, which transactionMode ",
        ),
        (
            "forward",
            ("--sql", "SELECT 1", "--sink-url", NOWHERE),
            1,
            "No database answers at 127.0.0.1:1/shop (",
        ),
        ("forward", ("--to", "A", "--config", "{B.toml}"), 1, NOT_THERE),
        ("store_and_forward", ("--config", "{sink.toml}"), 1, NOT_THERE),
        (
            "store_and_forward",
            ("--sink-url", NOWHERE, "--config", "{B.toml}"),
            1,
            NOT_THERE,
        ),
        (
            "handle",
            (*HANDLER, "--endpoint", LONG),
            1,
            f"The endpoint {LONG!r} gives its outbox table the prefix",
        ),
        (
            "handle",
            (*HANDLER, "--set", f"sink.delayedEndpoint={LONG * 2}"),
            1,
            f"The queue name '{LONG * 2}.Delayed' is 64 bytes long, but ",
        ),
        ("forward", ("--to", "A@elsewhere"), 1, "There is no schema 'elsewhere' for the queue A@[elsewhere]"),
    ],
)
def test_a_job_that_is_refused_has_created_nothing(
    postgresql, tmp_path, monkeypatch, job, arguments, code, sentence
):
    """It looks before at its options, names, handler and folders, and whether each database answers."""
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))
    file = tmp_path / "file"
    file.touch()
    command = ["orders", *CREATE, *arguments]
    for name, key in {"file": None, "B.toml": "endpoint.B.url", "sink.toml": "url"}.items():
        command = [each.replace(f"{{{name}}}", str(tmp_path / name)) for each in command]
        if key is not None:  # a url with a password in it may stand in a file
            (tmp_path / name).write_text(f'[sink]\n{key} = "{postgresql.url}_missing"')
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(getattr(jobs, job), command)
    assert (result.exit_code, result.stdout, postgresql.fetch(TABLES)) == (code, "", [(0,)])
    assert result.stderr.startswith(f"Error: {sentence.replace('{file}', str(file))}")


@pytest.mark.parametrize(
    "job,arguments,misshapen,sentence",
    [
        ("handle", ("--error-queue", "bad"), "bad", "{}@[public]@[{}] has no column id (uuid)"),
        ("handle", ("--audit-queue", "bad"), "bad", "{}@[public]@[{}] has no column id (uuid)"),
        ("forward", ("--to", "bad"), "bad", "{}@[public]@[{}] has no column id (uuid)"),
        (
            "handle",
            (),
            "orders.Delayed",
            "{}@[public] is no table of delayed messages: it has no column due; choose another name.",
        ),
        (
            "handle",
            (),
            "E_OutboxData",
            'The outbox table "public"."{}" has no unique index whose only key is',
        ),
        (
            "handle",
            ("--subscribe", "A.B"),
            "SubscriptionRouting",
            "{}@[public] is no table of subscriptions: it lacks one of the columns",
        ),
    ],
)
def test_a_job_one_of_whose_tables_is_misshapen_has_created_nothing(
    postgresql, monkeypatch, job, arguments, misshapen, sentence
):
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))
    postgresql.execute(f'CREATE TABLE "{misshapen}" (x int)')
    command = ["orders", *CREATE, *(HANDLER if job == "handle" else ()), *arguments]
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(getattr(jobs, job), command)
    assert (result.exit_code, result.stdout, postgresql.fetch(TABLES)) == (1, "", [(1,)])
    assert result.stderr.startswith(f"Error: {sentence.format(misshapen, postgresql.url.rpartition('/')[2])}")


def test_a_store_and_forward_job_looks_at_both_databases_before_it_creates_anything(engine, elsewhere):
    elsewhere.execute('CREATE TABLE "Forward_OutboxData" (x int)')
    job = store_and_forward.StoreAndForward(
        {"url": engine.url, "queue": "outgoing"},
        {"url": elsewhere.url, "endpoint": "Forward", "errorQueue": "error"},
        store_and_forward.StoreAndForwardOptions.parse({"checkpoint": "none"}),
    )
    assert "has no unique index whose only key is MessageId" in refusal(lambda: job.make_ready(create=True))
    for queue in ("outgoing", "error"):
        assert refusal(lambda queue=queue: check_ready(source(engine, queue=queue))).startswith(
            f"There is no queue table {full(engine, queue)} in this database"
        )


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_store_and_forward_job_creates_its_tables_while_the_other_database_is_read_only(
    engine, elsewhere, capsys
):
    """Rows for it wait, as for one that is down."""
    outbox_tables.create(ConnectionOptions.parse({"url": elsewhere.url}), "Forward")
    name = elsewhere.url.rpartition("/")[2]
    elsewhere.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    job = store_and_forward.StoreAndForward(
        {"url": engine.url, "queue": "outgoing"},
        {"url": elsewhere.url, "endpoint": "Forward", "errorQueue": "error"},
        store_and_forward.StoreAndForwardOptions.parse({"checkpoint": "none"}),
    )
    job.make_ready(create=True)
    made = re.findall(r"^created \w+=([^@\n]+)", capsys.readouterr().out, re.MULTILINE)
    assert made == ["outgoing", "outgoing.Delayed", "error", '"public"."Forward_OutboxData"']


def test_what_was_created_before_an_error_is_said(postgresql, monkeypatch):
    """Here a view has the name of the second table."""
    postgresql.execute("CREATE VIEW error AS SELECT 1")
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(
        jobs.handle, ["orders", *CREATE, *HANDLER]
    )
    database = postgresql.url.rpartition("/")[2]
    assert (result.exit_code, result.stdout) == (1, f"created queue=orders@[public]@[{database}]\n")
    assert result.stderr.startswith(
        "Error: Something else than a table is called error@[public] (a view, say)"
    )


def test_events_for_several_queues_are_refused_before_anything_is_created(postgresql):
    given = ("--set", 'source.queues=["a", "b"]', *HANDLER, "--subscribe", "A.B")
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(jobs.handle, [*CREATE, *given])
    sentence = "Events come to one queue, and the source has several; subscribe each with sqlqueue subscribe."
    assert (result.exit_code, result.stderr) == (2, f"Error: {sentence}\n")
    assert postgresql.fetch(TABLES) == [(0,)]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_handlers_job_creates_a_table_to_wait_in_where_there_are_delayed_retries(
    postgresql, monkeypatch, retries
):
    monkeypatch.setattr(program, "session", mock.Mock())
    monkeypatch.setattr(jobs, "send_until_stopped", lambda *_, **__: None)
    sets = (f"handle.delayedRetries={retries}", "sink.auditQueue=audit")
    command = ["orders", *CREATE, *HANDLER, *(word for each in sets for word in ("--set", each))]
    result = CliRunner(env={"SQLQUEUE_URL": postgresql.url}).invoke(jobs.handle, command)
    made = re.findall(r"^created \w+=([^@\n]+)", result.stdout, re.MULTILINE)
    waiting, outbox = ["orders.Delayed"] if retries else [], '"public"."E_OutboxData"'
    assert (result.exit_code, made) == (0, ["orders", "error", *waiting, "audit", outbox])


def several(engine, **more):
    return SourceOptions.parse({"url": engine.url, **more})


def test_every_queue_of_a_list_is_looked_for_and_created(engine):
    given = several(engine, queues='["orders", "billing"]')
    engine.create_queue("orders")
    assert refusal(lambda: check_ready(given)).startswith(
        f"There is no queue table {full(engine, 'billing')} in"
    )
    assert [line.partition("=")[2].partition("@")[0] for line in create_missing(given)] == ["billing"]
    check_ready(given)


def test_messages_of_each_queue_need_a_table_to_wait_in(engine):
    """Where they are tried again later."""
    given = several(engine, queues='["orders", "billing"]')
    create_missing(given)
    assert ".Delayed" in refusal(lambda: check_ready(given, retries=True))
    made = create_missing(given, retries=True)
    names = [line.partition("=")[2].partition("@")[0] for line in made]
    assert names == ["orders.Delayed", "billing.Delayed"]
    check_ready(given, retries=True)


def test_a_queue_of_a_pattern_that_has_no_table_to_wait_in_stops_no_other_queue(engine, caplog):
    """A warning says how to create it."""
    given = several(engine, queuePattern="Sales.*")
    for name in ("Sales.A", "Sales.B"):
        engine.create_queue(name)
    delayed_tables.create(ConnectionOptions.parse({"url": engine.url}), "Sales.A")
    check_ready(given, retries=True)
    (said,) = (each.message for each in caplog.records if each.message.startswith("no_delayed_table"))
    assert said.startswith(f"no_delayed_table queue={full(engine, 'Sales.B')}")
    assert said.endswith(f"create it with: sqlqueue delayed create '{full(engine, 'Sales.B')}'.")
    made = create_missing(given, retries=True)
    assert [line.partition("=")[2].partition("@")[0] for line in made] == ["Sales.B.Delayed"]
    caplog.clear()
    check_ready(given, retries=True)
    assert caplog.records == []


def test_a_pattern_that_matches_nothing_yet_is_fine(engine):
    given = several(engine, queuePattern="Sales.*")
    check_ready(given)
    assert create_missing(given) == []


@pytest.mark.parametrize("option", ["queue", "errorQueue", "auditQueue"])
def test_a_queue_of_the_source_by_another_url_is_refused(engine, elsewhere, ready, option):
    """What goes there would come again, and count as sent. A queue of that name elsewhere is another one."""
    for name in ("orders", "Billing"):
        elsewhere.create_queue(name)
    outbox_tables.create(ConnectionOptions.parse({"url": elsewhere.url}), "Forward")

    def check(url):
        check_ready(source(engine), sink(engine, **{option: "orders", "endpoint.orders.url": url}))

    named = with_catalog(engine, "orders")
    assert refusal(lambda: check(other_spelling(engine.url))) == (
        f"By another url the queue 'orders' of the sink is one of the source, {named}: "
        "what goes there would go round for ever, or be dropped as sent before; name another queue."
    )
    check(elsewhere.url)
    with one_each() as connected:
        own, same, other = (
            connected(Target.of(source(engine, url=url)))
            for url in (engine.url, other_spelling(engine.url), elsewhere.url)
        )
        assert (are_one(own, same), are_one(own, other)) == (True, False)


def other_spelling(url):
    """Another url to the same database."""
    return f"{url};App=two" if ";" in url else f"{url}{'&' if '?' in url else '?'}application_name=two"
