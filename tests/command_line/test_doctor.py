"""The doctor on a real database: the way to a queue step by step, and what to do where it ends."""

import json
import re

import pytest
from click.testing import CliRunner

from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.cli import main
from sqlqueue_spark.inspection.doctor import State, database_checks, examine
from sqlqueue_spark.inspection.doctor.database_checks import checks
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from tests.conftest import GUARDED_PASSWORD
from tests.support.clock import wrong_clock

STEPS = ("network", "login", "database", "queue", "rights")


def way(url, queue="orders", *, role=None, **more):
    """The steps of the way to a queue, by name."""
    made = examine(ConnectionOptions.parse({"url": url, **more}), queue, role=role)
    return {check.name: (check.state, check.said) for check in made if check.name in STEPS}


@pytest.mark.needs("alters_databases")  # else its compatibility level stays what it is
def test_a_way_to_the_queue_is_fine_step_by_step(engine, queue):
    found = way(engine.url)
    assert [state for state, _ in found.values()] == [State.FINE] * 5
    said = {name: text for name, (_, text) in found.items()}
    assert re.fullmatch(r"\S+:\d+ answers in \d+ ms", said["network"])
    assert re.fullmatch(r"\S+ on (PostgreSQL|SQL Server) \d.*", said["database"])
    assert said["queue"].startswith(f"orders@[{engine.default_schema}]@[")
    mighty = (
        r"; it (is a superuser|is a sysadmin|is a db_owner), as no job's login should \(docs/rights\.md\)"
    )
    assert re.fullmatch(rf"\S+ may receive and send({mighty})?", said["rights"])


@pytest.mark.needs("alters_databases")  # else its compatibility level stays what it is
def test_without_a_queue_the_way_ends_at_the_database(engine):
    found = way(engine.url, None)
    assert found["database"][0] is State.FINE
    assert found["queue"] == found["rights"] == (State.OPEN, "not tried: no QUEUE is named")


@pytest.mark.parametrize("seconds", [-630, 630])
def test_a_server_whose_clock_differs_is_said(engine, seconds):
    with wrong_clock(database_checks, seconds=seconds):
        found = way(engine.url, None)
    said = (
        "The clock of the server and that of this machine are 10 min apart, and both count (docs/limits.md): "
        "let NTP set them."
    )
    assert found["database"] == (State.WRONG, said)


def test_a_missing_queue_is_said_and_has_no_rights(engine):
    found = way(engine.url, "no such")
    state, said = found["queue"]
    assert (state, said.startswith("There is no queue table no such@[")) == (State.WRONG, True)
    assert found["rights"] == (State.OPEN, "not tried: there is no table to have rights to")


def test_an_error_of_the_look_for_more_queues_does_not_keep_the_outbox_from_being_checked(postgresql):
    def look(connection):
        connection.execute(connection.dialect.statement("row_security"), {"name": "no_such_table"})
        return ()

    sender = SinkOptions.parse({"url": postgresql.url, "endpoint": "Shop"})
    found = {each.name: each for each in checks(sender, None, "sender", look)}
    queue, outbox = found["queue"], found["outbox"]
    assert (queue.state, "no_such_table" in queue.said, outbox.state) == (State.WRONG, True, State.WRONG)
    assert "outbox create" in outbox.said


def test_a_table_with_something_wrong_leads_to_inspect(postgresql):
    postgresql.create_queue("my orders").execute('ALTER TABLE {table} DROP CONSTRAINT "my orders_seq_key"')
    found = way(postgresql.url, "my orders")
    state, said = found["queue"]
    assert (state, found["rights"][0]) == (State.WRONG, State.FINE)
    assert said.endswith("is refused or slow. See what to run with: sqlqueue inspect 'my orders@[public]'")


def test_a_refused_login_ends_the_way(guarded_url):
    """The password is not shown."""
    found = way(guarded_url, password="not it")
    assert found["network"][0] is State.FINE
    assert found["login"][0] is State.WRONG
    assert re.fullmatch(
        r"The database at \S+ refused the login of user 'guarded'; check user and password\.",
        found["login"][1],
    )
    assert [found[name] for name in STEPS[2:]] == [(State.OPEN, "not tried: there is no connection")] * 3
    assert "not it" not in str(found)


def test_a_database_that_is_not_there_is_said(postgresql):
    found = way(re.sub(r"/test_\w+", "/nowhere", postgresql.url))
    assert found["login"][0] is State.WRONG
    assert found["login"][1].startswith("There is no such database at ")


def test_a_login_without_rights_is_told_what_to_have_run(postgresql, guarded_url):
    postgresql.create_queue()
    assert way(guarded_url)["rights"] == (
        State.WRONG,
        (
            "The user 'guarded' may not receive or send (to receive it lacks SELECT, UPDATE, DELETE; to send "
            "it lacks INSERT, USAGE on the sequence); have an administrator run what this prints: sqlqueue "
            "script --engine postgresql --grants 'guarded' --role receiver 'orders@[public]' (or sender)"
        ),
    )
    assert way(guarded_url, role="sender")["rights"] == (
        State.WRONG,
        (
            "The user 'guarded' may not send (to send it lacks INSERT, USAGE on the sequence); have an "
            "administrator run what this prints: sqlqueue script --engine postgresql --grants 'guarded' "
            "--role sender 'orders@[public]'"
        ),
    )


@pytest.mark.parametrize(
    "role,state", [(None, State.FINE), ("sender", State.FINE), ("receiver", State.WRONG)]
)
def test_a_sender_need_not_be_a_receiver(postgresql, guarded_url, role, state):
    postgresql.create_queue().execute("GRANT INSERT ON {table} TO guarded")
    postgresql.execute("GRANT USAGE ON SEQUENCE orders_seq_seq TO guarded")
    found = way(guarded_url, role=role)["rights"]
    assert found[0] is state
    assert state is State.WRONG or found[1] == "guarded may send"


def test_the_command_says_it_in_lines_with_its_exit_code(postgresql, guarded_url):
    postgresql.create_queue()
    for url, code, last in (
        (postgresql.url, 0, "✓ rights      postgres may receive and send"),
        (guarded_url, 1, "✗ rights      The user 'guarded' may not"),
    ):
        result = CliRunner().invoke(main, ["doctor", "orders", "--url", url])
        assert (result.exit_code, result.stderr) == (code, "")
        assert result.stdout.splitlines()[-1].startswith(last)
        assert GUARDED_PASSWORD not in result.output


def of_job(file, text, url):
    """The exit code, and the checks of the databases that the file of a job leads to."""
    file.write_text(text)
    result = CliRunner().invoke(main, ["doctor", "--config", str(file), "--url", url, "--json"])
    made = [json.loads(line) for line in result.stdout.splitlines()]
    made = [each for each in made if each["name"] in (*STEPS, "outbox")]
    return result.exit_code, [(each["name"], each["state"], each["said"]) for each in made]


@pytest.mark.tier("all")
def test_the_file_of_a_job_leads_to_its_outbox_and_to_each_of_its_other_databases(
    engine, queue, elsewhere, tmp_path
):
    """The login may send to the queues there that an option names, and each database has the outbox."""
    file, here = tmp_path / "job.toml", ConnectionOptions.parse({"url": engine.url})
    outbox_tables.create(here, "Sales")
    text = f"""
        [source]
        queue = "orders"
        [sink]
        endpoint = "Sales"
        errorQueue = "error"
        "endpoint.error.url" = "{elsewhere.url}"
        "endpoint.Billing.url" = "{elsewhere.url}"
        "endpoint.Lost*.url" = "postgresql://127.0.0.1:1/none"
        [handle]
        checkpoint = "nowhere"
    """
    elsewhere.create_queue("Billing")
    code, made = of_job(file, text, engine.url)
    (*home, outbox), others = made[:6], made[6:]
    assert (code, [name for name, _, _ in home]) == (1, list(STEPS))
    assert (outbox[:2], "Sales_OutboxData" in outbox[2]) == (("outbox", "fine"), True)
    there, lost = others[:8], others[8:]
    assert [each[:2] for each in there] == [
        ("network", "fine"),
        ("login", "fine"),
        ("database", "fine"),
        ("queue", "wrong"),
        ("rights", "open"),
        ("queue", "fine"),
        ("rights", "fine"),
        ("outbox", "wrong"),
    ]
    said = [text for _, _, text in there]
    assert all(each.startswith("endpoint.error.url: ") for each in said)
    assert said[3].startswith("endpoint.error.url: There is no queue table error@[")
    assert said[5].startswith("endpoint.error.url: Billing@[")
    assert re.match(r"endpoint\.error\.url: \S+ may send(;|$)", said[6])
    assert said[7].startswith("endpoint.error.url: There is no outbox table ")
    assert [(name, state) for name, state, _ in lost] == [
        ("network", "wrong"),
        *((name, "open") for name in STEPS[1:]),
    ]
    assert lost[0][2].startswith("endpoint.lost*.url: No server answers at 127.0.0.1:1 (")
    elsewhere.create_queue("error")
    outbox_tables.create(ConnectionOptions.parse({"url": elsewhere.url}), "Sales")
    code, made = of_job(file, text.replace('"endpoint.Lost*.url"', "#"), engine.url)
    assert (code, {state for _, state, _ in made}) == (0, {"fine"})


@pytest.mark.tier("all")
def test_a_table_that_no_message_reaches_by_its_name_alone_is_not_one_of_a_job(
    engine, queue, elsewhere, tmp_path
):
    """Options name queues without a schema. An address has no @ in the name of its table."""
    for endpoint, url in (("Sales", engine.url), ("Sales", elsewhere.url)):
        outbox_tables.create(ConnectionOptions.parse({"url": url}), endpoint)
    elsewhere.create_queue("ShipNow")
    elsewhere.create_queue("ShipLater", schema="old")
    elsewhere.create_queue("Ship@[")
    text = f"""
        [source]
        queue = "orders"
        [sink]
        endpoint = "Sales"
        "endpoint.ship*.url" = "{elsewhere.url}"
        [forward]
        checkpoint = "nowhere"
    """
    code, made = of_job(tmp_path / "job.toml", text, engine.url)
    there = [(name, state) for name, state, said in made if said.startswith("endpoint.ship*.url: ")]
    found = [said.split()[1].partition("@")[0] for name, _, said in made[6:] if name == "queue"]
    steps = ["network", "login", "database", "queue", "rights", "outbox"]
    assert (code, found, there) == (0, ["ShipNow"], [(each, "fine") for each in steps])


def test_a_file_that_is_no_job_of_a_sender_is_refused(postgresql, tmp_path):
    code, made = of_job(tmp_path / "job.toml", '[source]\nqueue = "orders"\n[delta]\n', postgresql.url)
    assert (code, made) == (1, [])
