"""The programs under ``jobs/`` before they start Spark: file, settings and flags become options,
and what is wrong is said.
"""

import errno
import logging
import os
import pkgutil
import runpy
import subprocess
import sys
from datetime import timedelta
from unittest import mock

import click
import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.pipeline import ArchiveOptions, DeltaOptions
from sqlqueue_spark.pipeline.declared import jobs
from sqlqueue_spark.pipeline.delta.delta_stream import with_checkpoint
from sqlqueue_spark.pipeline.running import program
from sqlqueue_spark.pipeline.running.configuration import configuration
from tests.support.installing import OF_SPARK
from tests.support.jobs import ROOT

SECRET = "hunter2"


@pytest.fixture
def refused(monkeypatch):
    """What ``drain`` says to arguments that it refuses without starting Spark."""
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))

    def run(*arguments):
        environment = {
            "SQLQUEUE_URL": f"postgresql://me:{SECRET}@127.0.0.1:1/shop",
            "SQLQUEUE_PASSWORD": SECRET,
        }
        result = CliRunner(env=environment).invoke(jobs.drain, [str(each) for each in arguments])
        assert SECRET not in result.output
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    return run


@pytest.mark.parametrize(
    "text,sentence",
    [
        (
            '[sink]\npath = "x"',
            "The configuration {file} has a section [sink]; this job knows only [source], [delta].",
        ),
        (
            'queue = "orders"',
            (
                "The key queue of the configuration {file} stands in no section; put it below one of "
                "[source], [delta]."
            ),
        ),
        (
            'source = "orders"',
            (
                "The key source of the configuration {file} stands in no section; put it below one of "
                "[source], [delta]."
            ),
        ),
        (
            'queues = ["orders"]',
            (
                "The key queues of the configuration {file} stands in no section; put it below one of "
                "[source], [delta]."
            ),
        ),
        (
            '[[sink]]\nqueue = "orders"',
            "The configuration {file} has a section [sink]; this job knows only [source], [delta].",
        ),
        (
            '[[source]]\nqueue = "orders"',
            "The configuration {file} has a list in the place of the section [source]; write [source] once.",
        ),
        (
            '[source]\nqueue = ["orders", "returns"]',
            (
                "The value of queue in [source] of the configuration {file} is a list; write one text, "
                "number, true or false."
            ),
        ),
        (
            '[source]\nqueue = "orders"\nendpoint.A.schema = 2026-01-01',
            (
                "The value of endpoint.A.schema in [source] of the configuration {file} is a date or time; "
                "write one text, number, true or false."
            ),
        ),
        ('[source]\nqueeu = "orders"', "There is no option 'queeu'; did you mean queue?"),
        (
            '[source]\nqueue = "orders"\nmaxConcurrency = 0',
            "The option maxConcurrency must be a whole number above 0, not '0'.",
        ),
        (
            '[source]\nqueue = "orders"\n[delta]\npath = "p"\ncheckpont = "c"',
            "There is no option 'checkpont'; did you mean checkpoint?",
        ),
        (
            '[source]\nqueue = "orders"\n[delta]\ncheckpoint = "c"',
            "The option path is required; set it to: Folder of the Delta table (--into).",
        ),
        (
            '[source]\nqueue = "orders"\n[delta]\npath = "p"\ncheckpoint = "c"\navailableNow = "maybe"',
            "The option availableNow must be true or false, not 'maybe'.",
        ),
        (
            '[source]\nqueue = 5\n[delta]\npath = "p"\ncheckpoint = "c"',
            "The option queue must be a text in quotes, not '5'.",
        ),
        (
            '[source]\nqueue = "orders"\nneighbourHeadroom = 5\n[delta]\npath = true\ncheckpoint = "c"',
            "The option path must be a text in quotes, not 'true'.",
        ),
        (
            "[source",
            (
                "The configuration {file} is not valid TOML (Expected ']' at the end of a table declaration "
                "(at end of document)); correct it."
            ),
        ),
    ],
)
def test_a_wrong_configuration_is_one_sentence(refused, tmp_path, text, sentence):
    """And exit code 2."""
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    assert refused("--config", file) == f"Error: {sentence.format(file=file)}\n"


def test_a_configuration_that_is_no_text_is_refused(refused, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_bytes(b'[source]\nqueue = "\xff"')
    assert refused("--config", file).startswith(f"Error: The configuration {file} is not valid TOML (")


def test_a_configuration_that_cannot_be_read_is_refused(refused):
    file = "/proc/self/mem"  # on Linux; its first bytes belong to no one
    said = "cannot be read ([Errno 5] Input/output error); name another file."
    assert refused("--config", file) == f"Error: The configuration {file} {said}\n"


def test_a_byte_order_mark_means_nothing(refused, tmp_path):
    file = tmp_path / "windows.toml"
    file.write_text('[source]\nqueue = "orders"\n[delta]\ncheckpoint = "c"', encoding="utf-8-sig")
    assert refused("--config", file).startswith("Error: The option path is required; ")


def test_bytes_that_are_no_utf_8_are_refused(refused):
    for given in (["--queue", "a\udcffb"], ["--set", "source.queue=a\udcffb"]):
        assert (
            refused(*given) == "Error: The option queue holds bytes that are no UTF-8; write it in UTF-8.\n"
        )


@pytest.mark.parametrize(
    "setting,sentence",
    [
        (f"source.password:{SECRET}", "A --set without ="),
        (SECRET, "A --set without ="),
        (f"password={SECRET}", "--set password=…"),
        ("sink.path=x", "--set sink.path=…"),
        ("=", "--set =…"),
    ],
)
def test_a_malformed_setting_is_said_without_its_value(refused, setting, sentence):
    remedy = "cannot be read; write source.KEY=VALUE or delta.KEY=VALUE."
    assert refused("--set", setting) == f"Error: {sentence} {remedy}\n"


def test_an_unknown_argument_or_file_is_wrong_usage(refused):
    assert "No such option '--quue'. Did you mean '--queue'?" in refused("--quue", "orders")
    assert "File '/no/such.toml' does not exist." in refused("--config", "/no/such.toml")


@pytest.fixture
def sections(monkeypatch):
    """The options of each section, as a job is given them by a command line. The job ends there."""

    def run(job, *arguments):
        found = []

        def noted(*given):
            found.append(configuration(*given))
            raise ConfigurationError("enough")

        monkeypatch.setattr(program, "configuration", noted)
        result = CliRunner(env={"SQLQUEUE_URL": None}).invoke(job, [str(each) for each in arguments])
        assert (result.exit_code, result.stderr) == (2, "Error: enough\n")
        return found[0]

    return run


def test_the_command_line_wins_over_settings_and_file(sections, tmp_path):
    """And settings win over the file."""
    file = tmp_path / "job.toml"
    file.write_text(
        '[source]\nqueue = "file"\nmaxConcurrency = 3\nclaimAhead = false\nendpoint.B.schema = "t"\n[delta]\n'
        'path = "file"\navailableNow = false\n'
    )
    settings = (
        "source.queue=setting",
        "source.maxconcurrency=2",
        "source.maxConcurrency=4",
        "delta.path=a=b.c",
        "source.queue.a.schema=s",
    )
    flags = ("--queue", "line", "--url", "postgresql://x", "--available-now")
    sets = (word for each in settings for word in ("--set", each))
    assert sections(jobs.drain, "--config", file, *sets, *flags) == {
        "source": {
            "queue": "line",
            "maxConcurrency": "4",
            "claimAhead": "false",
            "queue.a.schema": "s",
            "endpoint.B.schema": "t",
            "url": "postgresql://x",
        },
        "delta": {"path": "a=b.c", "availableNow": "true"},
    }


def test_the_configuration_in_conf_lacks_only_a_url(sections):
    given = ("--config", ROOT / "conf/drain_to_delta.toml")
    with pytest.raises(ConfigurationError, match=r"^The option url is required; "):
        SourceOptions.parse(sections(jobs.drain, *given)["source"])
    found = sections(jobs.drain, *given, "--url", "postgresql://x")
    assert SourceOptions.parse(found["source"]).queue == "orders"
    assert DeltaOptions.parse(found["delta"]).path == "data/orders"


@pytest.mark.parametrize(
    "arguments,name,variable",
    [
        (("--url", f"postgresql://me:{SECRET}@host/shop"), "--url", "SQLQUEUE_URL"),
        (("--url", f"postgresql://host/shop?user=me&password={SECRET}"), "--url", "SQLQUEUE_URL"),
        (("--url", f"Server=host;UID=me;PWD={SECRET}"), "--url", "SQLQUEUE_URL"),
        (("--password", SECRET), "--password", "SQLQUEUE_PASSWORD"),
        (("--set", f"source.password={SECRET}"), "--set source.password", "SQLQUEUE_URL"),
        (("--set", f"source.accessToken={SECRET}"), "--set source.accessToken", "SQLQUEUE_URL"),
        (("--set", f"source.URL=mssql://me:{SECRET}@host/shop"), "--set source.URL", "SQLQUEUE_URL"),
    ],
)
def test_a_password_on_the_command_line_is_refused(refused, arguments, name, variable):
    """Spark's event log keeps the command line."""
    complaint = refused(*arguments)
    assert complaint.endswith(
        f"Error: The password in {name} would stand in the list of processes and in Spark's event log, which "
        f"keeps the whole command line; give it in the environment ({variable}) or in the file of --config.\n"
    )


def test_a_url_without_a_password_may_stand_on_the_command_line(refused):
    for url in (
        "postgresql://me@host:5432/shop",
        "Server=host;Database=shop",
        "mssql://host/shop?encrypt=yes",
    ):
        assert "The option queue is required" in refused("--url", url)


@pytest.mark.parametrize("name", ["queue", "checkpoint", "path"])
def test_a_url_in_another_ones_place_is_refused_and_not_repeated(refused, name):
    url = f"postgresql://me:{SECRET}@host/shop"
    given = {"queue": "orders", "checkpoint": "c", "path": "p", name: url}
    complaint = refused(*(word for each in given.items() for word in (f"--{each[0]}", each[1])))
    assert complaint == (
        f"Error: The option {name} is shown in logs and plans, and a url with a password stands there; give "
        "it as the option url.\n"
    )


@pytest.fixture
def no_archive(monkeypatch):
    """What the archive says to arguments that it refuses without starting Spark, as ``sqlqueue archive``."""
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))

    def run(*arguments):
        result = CliRunner(env={"SQLQUEUE_URL": "postgresql://me@127.0.0.1:1/shop"}).invoke(
            main, ["archive", *arguments]
        )
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    return run


@pytest.mark.parametrize(
    "arguments,sentence",
    [
        (("--path", "p"), "The option queue is required; set it to: Address of the queue table."),
        (("--queue", "error"), "The option path is required; set it to: Folder of the Delta table (--into)."),
        (
            ("--queue", "error", "--path", "p", "--take"),
            (
                "The option checkpoint is required with take; set it to: Folder of the stream's checkpoint; "
                "one queue, one Delta table, one checkpoint."
            ),
        ),
        (
            ("--queue", "error", "--path", "p", "--checkpoint", "c", "--take", "--every", "1m"),
            "Both take and every are given, but what takes messages runs on by itself; drop every.",
        ),
        (
            ("--queue", "error", "--path", "p", "--every", "soon"),
            (
                "The option every must be a duration above 0 like 500ms, 30s, 10m or 7d, of ten years at "
                "most, not 'soon'."
            ),
        ),
        (("--queue", "error", "--set", "archive.evry=1m"), "There is no option 'evry'; did you mean every?"),
        (
            ("--queue", "error", "--set", "delta.path=p"),
            "--set delta.path=… cannot be read; write source.KEY=VALUE or archive.KEY=VALUE.",
        ),
    ],
)
def test_the_archive_refuses_what_does_not_go_together(no_archive, arguments, sentence):
    assert no_archive(*arguments) == f"Error: {sentence}\n"


def test_the_archive_of_conf_lacks_only_a_url(sections):
    given = ("--config", ROOT / "conf/archive.toml", "--url", "postgresql://x", "--every", "1m")
    found = sections(jobs.archive, *given)
    assert SourceOptions.parse(found["source"]).queue == "error"
    options = ArchiveOptions.parse(found["archive"])
    assert (options.path, options.take, options.every) == ("data/errors", False, timedelta(minutes=1))


@pytest.mark.parametrize(
    "error,said",
    [
        (ModuleNotFoundError("No module named 'pyspark'", name="pyspark"), "is not installed"),
        (
            ImportError("cannot import name 'New' from 'pyspark.sql'", name="pyspark.sql"),
            "is another one than this package needs",
        ),
        (
            ModuleNotFoundError("No module named 'pyspark.sql.datasource'", name="pyspark.sql.datasource"),
            "is another one than this package needs",
        ),
    ],
)
def test_a_job_without_the_right_spark_says_what_to_install(monkeypatch, error, said):
    def missing(_name):
        raise error

    monkeypatch.setattr(pkgutil, "resolve_name", missing)
    result = CliRunner().invoke(main, ["archive", "--queue", "error"])
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: Spark {said} ({error}); install it with: {OF_SPARK}.\n",
    )


@pytest.mark.parametrize(
    "raised", ["ImportError('no libarrow.so')", "ImportError('no libarrow.so', name='pyarrow.lib')"]
)
def test_a_package_that_cannot_be_loaded_is_named(tmp_path, raised):
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text(f"raise {raised}")
    ran = subprocess.run(
        [sys.executable, "-m", "sqlqueue_spark", "drain", "orders", "--into", "x"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = "The package pyarrow cannot be loaded (no libarrow.so); sqlqueue doctor says what to install."
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"Error: {said}\n")


def test_the_queue_is_an_argument_too(refused):
    """One that ``--queue`` contradicts is refused."""
    assert "The option path is required" in refused("orders")
    assert "The option path is required" in refused("orders", "--queue", "orders")
    assert refused("orders", "--queue", "billing").endswith(
        "Error: QUEUE and --queue name two queues; give one of them.\n"
    )


@pytest.mark.parametrize("given", [{"path": "data/orders"}, {"Path": "data/orders/"}])
def test_a_checkpoint_lies_in_the_table_unless_one_is_named(given):
    assert with_checkpoint(given) == {**given, "checkpoint": "data/orders/_checkpoints"}
    named = {**given, "CheckPoint": "c"}
    assert with_checkpoint(named) == named


@pytest.mark.parametrize("job", ["drain", "forward", "handle", "archive", "store-and-forward"])
def test_a_job_prints_a_configuration_to_begin_with(job):
    """That of conf, which a wheel has no folder of."""
    name = {"drain": "drain_to_delta"}.get(job, job.replace("-", "_"))
    printed = CliRunner().invoke(main, [job, "--example-config"])
    assert (printed.exit_code, printed.stdout) == (0, (ROOT / f"conf/{name}.toml").read_text())


@pytest.mark.parametrize("file", sorted((ROOT / "jobs").glob("*.py")), ids=lambda file: file.stem)
def test_a_program_for_spark_submit_is_the_job_of_the_package(file):
    name = {"drain_to_delta": "drain"}.get(file.stem, file.stem)
    found = runpy.run_path(str(file), run_name="loaded")
    assert found[name] is getattr(jobs, name)


def test_queues_are_a_list_in_the_file(tmp_path):
    """It becomes the text that the option takes."""
    file = tmp_path / "job.toml"
    file.write_text('[source]\nqueues = ["orders", "billing"]\n')
    assert configuration(["source", "delta"], file, [], {})["source"] == {"queues": '["orders", "billing"]'}


def test_a_disk_that_is_full_ends_a_job_with_one_sentence():
    """A signal makes the file stopFile, for example."""

    @click.command()
    def job():
        with program.exiting(1, debug=False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/here/stop")

    done = CliRunner().invoke(job)
    assert (done.exit_code, done.output) == (1, "Error: [Errno 28] No space left on device: '/here/stop'\n")


def test_a_ctrl_c_while_java_works_shows_no_stack_trace(caplog, monkeypatch):
    """Py4J logs it, and raises it too."""

    @click.command()
    def job():
        with program.exiting(1, debug=False):
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                logging.exception("KeyboardInterrupt while sending command.")  # noqa: LOG015 -- as Py4J does
                raise

    monkeypatch.setattr(logging.getLogger(), "filters", [])
    done = CliRunner().invoke(job)
    assert (done.exit_code, done.output, caplog.messages) == (130, "\n", [])


@pytest.mark.parametrize("queues", ["[1, 2]", "[2026-01-01]", '["orders", ["billing"]]'])
def test_a_list_of_something_else_is_refused(tmp_path, queues):
    file = tmp_path / "job.toml"
    file.write_text(f"[source]\nqueues = {queues}\n")
    with pytest.raises(ConfigurationError, match=r"The value of queues in .* is a list"):
        configuration(["source", "delta"], file, [], {})


def test_a_flag_stands_for_every_key_that_it_names(sections):
    """Those that hold for source and sink are given to both; several events are one text."""
    given = ("--error-queue", "error", "--endpoint", "E", "--stream", "S", "--transaction-mode", "none")
    both = {"errorQueue": "error", "stream": "S", "transactionMode": "none"}
    assert sections(jobs.handle, "orders", *given, "--subscribe", "A.B", "--subscribe", "C.D") == {
        "source": {"queue": "orders", **both},
        "sink": {"endpoint": "E", **both},
        "handle": {"subscribe": "A.B;C.D"},
    }


_COMMON = ("QUEUE", "SQLQUEUE_URL (or --url)")
#: What each job needs, as its help says it.
NEEDED = {
    "drain": (*_COMMON, "--into"),
    "forward": (*_COMMON, "--checkpoint", "--endpoint"),
    "handle": (*_COMMON, "--checkpoint", "--error-queue", "--endpoint", "--handler"),
    "archive": (*_COMMON, "--into"),
    "store-and-forward": (
        *(*_COMMON, "--checkpoint", "SQLQUEUE_SINK_URL (or --sink-url)", "--endpoint", "--error-queue"),
    ),
}
GIVEN = {
    "--handler": "json:loads",
    "SQLQUEUE_URL": "postgresql://me@here/a",
    "SQLQUEUE_SINK_URL": "postgresql://me@there/b",
}


@pytest.mark.parametrize("job", NEEDED)
def test_the_help_of_a_job_says_what_it_needs(monkeypatch, job):
    """With all of that, and a place to send to, its options are understood; without one they are not."""

    def enough(**_):
        raise ConfigurationError("enough")

    monkeypatch.setattr(program, "check_machine", enough)
    helped = CliRunner().invoke(main, [job, "--help"], terminal_width=1000)
    needed = ", ".join(NEEDED[job])
    assert f"\n  Needed, here or in the file of --config: {needed}.\n" in helped.stdout

    def run(names):
        given = [each.partition(" ")[0] for each in names]
        flags = [word for each in given if each[0] == "-" for word in (each, GIVEN.get(each, "x"))]
        others = ["orders"] * ("QUEUE" in given) + ["--to", "Billing"] * (job == "forward")
        variables = {each: GIVEN[each] if each in given else None for each in GIVEN if each[0] != "-"}
        return CliRunner(env=variables).invoke(main, [job, *others, *flags])

    whole = run(NEEDED[job])
    assert (whole.exit_code, whole.stderr) == (1, "Error: enough\n")
    assert {each: run({*NEEDED[job]} - {each}).exit_code for each in NEEDED[job]} == dict.fromkeys(
        NEEDED[job], 2
    )


def test_the_help_of_a_job_lists_the_keys_of_its_section():
    helped = CliRunner().invoke(main, ["handle", "--help"], terminal_width=1000)
    again = "How often a message that has failed is tried again later; 0 for never."
    assert helped.stdout.partition("Keys of [handle]")[2].splitlines() == [
        ", as --set handle.KEY=VALUE or in the file:",
        "  availableNow            as --available-now",
        "  checkpoint              as --checkpoint",
        "  handler                 as --handler",
        "  subscribe               as --subscribe",
        "  immediateRetries        How often a function that fails is called again at once.  [default: 5]",
        "  handlerTimeout          How long a call may take.  [default: 30s]",
        f"  delayedRetries          {again}  [default: 3]",
        "  delayedRetriesIncrease  How much longer each of these waits than the one before.  [default: 10s]",
        "",
        "Keys of [source]: sqlqueue options, of [sink]: sqlqueue options --sink.",
    ]


@pytest.mark.parametrize(
    "job,flag,key,places",
    [
        ("handle", "--delayed-retries", "delayedRetries", ["handle"]),
        ("handle", "--delayed-retrys=0", "delayedRetries", ["handle"]),
        ("store-and-forward", "--lock-timeout", "lockTimeout", ["source", "sink"]),
    ],
)
def test_a_flag_that_is_a_key_says_where_the_key_goes(job, flag, key, places):
    refused = CliRunner().invoke(main, [job, "orders", flag, "1"])
    sets = " or ".join(f"--set {each}.{key}=VALUE" for each in places)
    sections = " or ".join(f"[{each}]" for each in places)
    told = f"the key {key} is given as {sets}, or in the section {sections} of the file of --config."
    sentence = f"Error: There is no flag {flag.partition('=')[0]}; {told}"
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (2, sentence)


def test_a_flag_that_is_a_key_of_a_secret_says_where_it_may_stand():
    refused = CliRunner().invoke(main, ["drain", f"--access-token={SECRET}"])
    told = "the key accessToken is given in the section [source] of the file of --config."
    assert refused.stderr.splitlines()[-1] == f"Error: There is no flag --access-token; {told}"


@pytest.mark.parametrize("command", [[jobs.drain], [main, "drain"]])
def test_ctrl_c_before_a_job_runs_is_exit_code_130(monkeypatch, command):
    """Also in a program of spark-submit."""
    monkeypatch.setattr(program, "check_machine", mock.Mock(side_effect=KeyboardInterrupt))
    name, *before = command
    given = [*before, "orders", "--into", "x", "--url", "postgresql://me@here/a"]
    ended = CliRunner().invoke(name, given)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (130, "", "\n")


def test_a_flag_that_means_another_flag_says_which():
    refused = CliRunner().invoke(main, ["drain", "--availablenow"])
    assert refused.stderr.endswith(
        "Error: No such option '--availablenow'. Did you mean '--available-now'?\n"
    )


def test_debug_lets_the_processes_of_spark_tell_their_stack_traces(monkeypatch):
    monkeypatch.setattr(program, "check_machine", lambda **_: None)
    level_of = lambda *_, **__: pytest.fail(f"level {os.environ['SQLQUEUE_LOG']}")  # noqa: E731 -- shorter
    monkeypatch.setattr(program, "session", level_of)

    def job(_sections):
        return program.Run(title="Job", make_ready=lambda **_: None, start=lambda _: None)

    for arguments, level in ((["--debug"], "DEBUG"), ([], "INFO")):
        with pytest.raises(pytest.fail.Exception, match=f"level {level}"):
            CliRunner(env={"SQLQUEUE_LOG": "INFO", "SQLQUEUE_URL": "postgresql://x"}).invoke(
                program.Job(job, {"source": SourceOptions}, []), arguments, catch_exceptions=False
            )
