"""The verdict on PostgreSQL is found here and now, and what is broken on purpose is found out."""

import json
from urllib.parse import unquote

import pytest

from sqlqueue_spark.engines.connection import Target
from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.engines.open_connection import connect
from sqlqueue_spark.receive import SliceReader
from tests.support.postgresql import PostgresEngine
from tests.verdict import __main__ as command
from tests.verdict import held, plans, postgresql_held, postgresql_plans, postgresql_rules, run, said
from tests.verdict.postgresql import PostgresPlace, PostgresSession
from tests.verdict.probes import FINE, Outcome, Probes, Verdict, to_the_end
from tests.verdict.report import Report

pytestmark = pytest.mark.slow


@pytest.fixture
def place(database_url):
    with PostgresPlace(PostgresEngine(database_url), "classic").experiment() as found:
        yield found


def outcomes(verdicts):
    return {each.id: each.outcome for each in verdicts}


def test_everything_is_as_expected_of_postgresql(server, tmp_path):
    report = run.on(server.url())
    assert [each for each in report.verdicts if each.outcome not in FINE] == []
    assert outcomes(report.verdicts).keys() == {
        *postgresql_rules.PROBES.ids(),
        *(f"plan:{name}" for name in plans.WAYS),
        *(f"locks:{step.replace(' ', '-')}" for step in held.STEPS),
    }
    idle = {each.id for each in report.verdicts if each.outcome is Outcome.NOT_APPLICABLE}
    without = {f"plan:{name}" for name in plans.WAYS if not POSTGRESQL.statement(name)}
    assert idle == {"plan:insert", "plan:stage_insert", *without}, "every other statement was said"
    known = {each.id.removeprefix("plan:") for each in report.verdicts if each.outcome is Outcome.KNOWN}
    assert known == postgresql_plans.KNOWN_STALE.keys(), "take off the list what holds now"
    page, data = report.write(tmp_path)
    assert page.name == f"{report.name}.md"
    for text in (page.read_text(), data.read_text()):
        assert not any(secret in text for secret in ("127.0.0.1", str(server.port), "sqlqueue_verdict"))
    assert json.loads(data.read_text())["holds"] is True


def test_a_rule_that_is_told_wrongly_does_not_hold(place):
    right = postgresql_rules.PROBES["skip-locked-steps-over-rows"]
    wrong = right.expecting({"rows that the other session gets": [1, 2, 3, 4]})
    assert right.verdict(place, "classic").outcome is Outcome.HOLDS
    found = wrong.verdict(place, "classic")
    assert (found.outcome, found.seen) == (
        Outcome.DOES_NOT_HOLD,
        "rows that the other session gets: 1, 4; expected: rows that the other session gets: 1, 2, 3, 4",
    )


def test_an_experiment_that_fails_shows_nothing(place, monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("the password of 10.0.0.1 is hunter2")

    monkeypatch.setattr(PostgresSession, "rows", broken)
    found = postgresql_rules.PROBES["for-update-is-kept"].verdict(place, "classic")
    assert (found.outcome, found.seen) == (Outcome.BROKE_OFF, "an error: RuntimeError")
    assert "hunter2" in capsys.readouterr().err


def test_a_plan_without_its_index_is_found_out(place):
    for name in (said.QUEUE, said.DESTINATION):
        place.new_queue(name)
    with connect(Target(url=place.engine.url)) as connection:
        tables = said.create(connection)
        right = outcomes(postgresql_plans.of_empty_tables(connection, tables))
        place.engine.execute("ALTER TABLE orders DROP CONSTRAINT orders_seq_key")
        wrong = outcomes(postgresql_plans.of_empty_tables(connection, tables))
    by_number = {
        f"plan:{name}"
        for name, way in plans.WAYS.items()
        if way.index in ("row version", "expires") and POSTGRESQL.statement(name)
    }
    assert {right[name] for name in by_number} == {Outcome.HOLDS}
    assert {name for name in wrong if wrong[name] is not right[name]} == by_number


@pytest.mark.tier("nightly")
def test_a_lock_too_many_is_found_out(place, monkeypatch):
    class Careless(SliceReader):
        def read(self, part):
            session = place.session()
            program = unquote(self._target.url.rpartition("=")[2])
            session.rows("SELECT set_config('application_name', %s, false)", program)
            session.rows("LOCK TABLE orders IN SHARE UPDATE EXCLUSIVE MODE")
            yield from super().read(part)
            session.rollback()

    monkeypatch.setattr(held, "SliceReader", Careless)
    found = outcomes(postgresql_held.verdicts(place))
    assert [name for name in found if found[name] is not Outcome.HOLDS] == ["locks:slice-being-read"]


def verdict(outcome, name="a-rule"):
    return Verdict(id=name, rule="R.", done="D.", seen="s | t", outcome=outcome, where="classic")


def report(*verdicts):
    return Report(
        engine="sqlserver",
        title="SQL Server",
        version="16.0",
        date="2026-01-02",
        seconds=1.6,
        verdicts=verdicts,
    )


@pytest.mark.parametrize("outcome,code", [(each, 0 if each in FINE else 1) for each in Outcome])
def test_the_exit_code_says_whether_all_is_well(monkeypatch, tmp_path, capsys, outcome, code):
    monkeypatch.setattr(
        run, "on", lambda *_, **__: report(verdict(Outcome.HOLDS), verdict(outcome, "another"))
    )
    assert command.main(None, tmp_path) == code
    said_ = capsys.readouterr().out
    assert ("NOT everything is as expected" in said_) is (code == 1)
    assert (tmp_path / "sqlserver-16.0-2026-01-02.md").exists()


def test_nothing_looked_at_is_no_success():
    assert report().holds is False


def test_a_broken_rule_makes_the_command_fail(server, monkeypatch, tmp_path):
    wrong: Probes[PostgresPlace] = Probes()
    wrong("wrong", "One and one is three.", {"sum": 3})(sum_of_one_and_one)
    monkeypatch.setattr(postgresql_rules, "PROBES", wrong)
    monkeypatch.setattr(postgresql_plans, "verdicts", lambda _: [])
    monkeypatch.setattr(postgresql_held, "verdicts", lambda _: [])
    assert command.main(server.url(), tmp_path) == 1
    (page,) = tmp_path.glob("*.md")
    assert "| `wrong` | One and one is three. | It adds. | sum: 2; expected: sum: 3 |" in page.read_text()


def test_a_part_that_comes_to_no_end_is_told_and_the_others_go_on():
    def part():
        yield verdict(Outcome.HOLDS)
        raise RuntimeError("no more")

    found = to_the_end("plans", "classic", part)
    assert outcomes(found) == {"a-rule": Outcome.HOLDS, "plans:to-the-end": Outcome.BROKE_OFF}


def sum_of_one_and_one(place):
    """It adds."""
    (found,) = place.session().first("SELECT 1 + 1")
    return {"sum": found}


def test_places_that_show_the_same_share_a_line():
    one, other = verdict(Outcome.HOLDS), verdict(Outcome.HOLDS)
    lines = report(one, Verdict(**{**vars(other), "where": "heap"})).as_markdown().splitlines()
    assert lines[-1] == "| `a-rule` | R. | D. | s ∣ t | classic; heap | holds |"


@pytest.mark.parametrize("dialect", [POSTGRESQL, SQLSERVER], ids=lambda each: each.name)
def test_a_statement_is_known_by_its_name(dialect):
    names = dict.fromkeys(("queue", "stage", "catalog"), "x")
    assert {name: each.name for name, each in dialect.statements().items()} == {
        name: name for name in dialect.statements()
    }
    assert dialect.render("delete", **names).name == "delete"


@pytest.mark.parametrize("dialect", [POSTGRESQL, SQLSERVER], ids=lambda each: each.name)
def test_every_statement_with_a_plan_is_looked_at(dialect):
    assert said.planned(dialect) - plans.WAYS.keys() == set()
