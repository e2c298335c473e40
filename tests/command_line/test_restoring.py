"""Queues are copied, saved and restored by ``peek --json`` and ``send --from``:
row for row, byte for byte.
"""

import io
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import queue_restore
from sqlqueue_spark.cli import main
from sqlqueue_spark.options import ConnectionOptions
from tests.support import dotnet
from tests.support.messages import body, headers, row_id

pytestmark = pytest.mark.needs("reads_json_as_documented")

#: Every text that PostgreSQL can keep.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ROWS = st.fixed_dictionaries(
    {
        "expires": st.none() | st.datetimes(),
        "headers": st.one_of(
            TEXTS,
            st.dictionaries(TEXTS, TEXTS).map(lambda each: json.dumps(each, ensure_ascii=False)),
            st.sampled_from(
                ["", "null", "[]", '{"a":"1","a":"2"}', '{"a":"\\ud800"}', '{"a":"b\\/c","n":1}', "\ufeff{}"]
            ),
        ),
        "body": st.none()
        | st.binary()
        | TEXTS.map(str.encode)
        | TEXTS.map(lambda text: text.encode("utf-8-sig")),
    }
)
INSERT = "INSERT INTO orders (id, expires, headers, body) VALUES (%(id)s, %(expires)s, %(headers)s, %(body)s)"


class Pipe(io.BytesIO):
    def seekable(self):
        return False


def run(engine, *arguments, input=None):
    given = Pipe(input.encode() if isinstance(input, str) else input or b"")
    return CliRunner(env={"SQLQUEUE_URL": engine.url}).invoke(main, [*arguments], input=given)


def said(engine, *arguments, **more):
    result = run(engine, *arguments, **more)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return result.stdout


def saved(engine, tmp_path, queue="orders"):
    file = tmp_path / "saved.jsonl"
    file.write_bytes(run(engine, "peek", queue, "--all", "--json").stdout_bytes)
    return file


def whole(queue):
    """Every row but for its number."""
    return [(row.id, row.expires, row.headers, row.body) for row in queue.rows()]


def line(**more):
    return json.dumps({"headers": {"a": "b"}, "body": "{}", **more})


@pytest.fixture
def both(postgresql):
    """A queue, and an empty one."""
    return postgresql.create_queue(), postgresql.create_queue("copy")


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(ROWS, max_size=6), piped=st.booleans())
@example(rows=[{"expires": datetime.min, "headers": "no json", "body": b"\xff"}] * 2, piped=False)  # noqa: DTZ901 -- the column has no zone
@example(rows=[{"expires": datetime.max, "headers": "{}", "body": None}], piped=False)  # noqa: DTZ901
def test_any_rows_make_the_round_trip(postgresql, both, tmp_path, piped, rows):
    """In their order, with ids, times, the text of the headers and the bytes of the body."""
    queue, copy = both
    postgresql.execute("TRUNCATE orders, copy RESTART IDENTITY")
    with psycopg.connect(postgresql.url) as connection, connection.cursor() as cursor:
        cursor.executemany(
            INSERT, [{"id": row_id(len(rows) - number), **row} for number, row in enumerate(rows)]
        )
    file = saved(postgresql, tmp_path)
    if piped:
        said(postgresql, "send", "copy", "--from", "-", "--stopping", input=file.read_bytes())
    else:
        said(postgresql, "send", "copy", "--from", str(file), "--stopping")
    assert whole(copy) == whole(queue)
    assert copy.row_versions() == [*range(1, len(rows) + 1)]


@pytest.mark.parametrize("name", sorted(dotnet.QUEUES))
def test_what_net_endpoints_wrote_makes_the_round_trip(postgresql, tmp_path, name):
    queue = dotnet.create_queue(postgresql, dotnet.QUEUES[name], dotnet.rows(name))
    copy = postgresql.create_queue("copy")
    file = saved(postgresql, tmp_path, queue.address)
    stopping = [] if all(row.body is not None for row in queue.rows()) else ["--stopping"]
    assert said(postgresql, "send", "copy", "--from", str(file), *stopping).startswith("sent ")
    assert whole(copy) == whole(queue)


def test_rows_of_each_engine_make_the_round_trip(engine, queue, tmp_path):
    """Of SQL Server with the columns of its oldest tables."""
    later = datetime(2040, 1, 31, 12, 0, 0, 123_000)  # noqa: DTZ001 -- the column has no zone
    for number, (text, bytes_) in enumerate(
        [
            (headers(1), body(1)),
            ("no json", b"\xff\x00"),
            ('{"ü ☃ \U0001f4e6":"\\u0001"}', b""),
            ("", b"x" * 70_000),
        ]
    ):
        queue.insert_row(id=row_id(number), headers=text, body=bytes_, expires=later if number % 2 else None)
    if engine.name == "sqlserver":
        engine.execute(
            "UPDATE orders SET CorrelationId = 'c', ReplyToAddress = 'ä', "
            "Recoverable = 0 WHERE RowVersion = 2"
        )
    copy = engine.create_queue("copy")
    assert said(engine, "send", "copy", "--from", str(saved(engine, tmp_path))) == "sent 4 messages to copy\n"
    assert whole(copy) == whole(queue)
    lines = [
        [json.loads(each) for each in said(engine, "peek", name, "--json").splitlines()]
        for name in ("orders", "copy")
    ]
    assert lines[0] == lines[1]


def test_a_body_of_20_megabytes_makes_the_round_trip(postgresql, both, tmp_path):
    queue, copy = both
    large = bytes(range(256)) * (20 << 12)
    for number, each in enumerate((b"small", large)):
        queue.insert_row(id=row_id(number), headers=headers(number), body=each)
    said(postgresql, "send", "copy", "--from", str(saved(postgresql, tmp_path)))
    assert whole(copy) == whole(queue)


def test_many_lines_go_out_in_chunks(postgresql, both, tmp_path, monkeypatch):
    """In their order."""
    queue, copy = both
    queue.insert(9_000)
    told: list[int] = []
    restore = queue_restore.restore

    def watched(*given, progress, **more):
        def tell(count):
            told.append(count)
            progress(count)

        return restore(*given, progress=tell, **more)

    monkeypatch.setattr(queue_restore, "restore", watched)
    file = saved(postgresql, tmp_path)
    assert said(postgresql, "send", "copy", "--from", str(file)) == "sent 9,000 messages to copy\n"
    assert (whole(copy), told) == (whole(queue), [4_000, 4_000, 1_000])


def test_large_lines_go_out_in_small_chunks(postgresql, both, monkeypatch):
    monkeypatch.setattr(queue_restore, "_CHUNK_BYTES", 1_000)
    lines = "".join(f"{line(body='x' * size)}\n" for size in (100, 700, 700, 5_000, 100))
    given = queue_restore.Input(source=Pipe(lines.encode()), name="it", again=False)
    told: list[int] = []
    options = ConnectionOptions.parse({"url": postgresql.url})
    sent = queue_restore.restore(options, "copy", given, progress=told.append)
    assert (told, sent) == ([2, 1, 1, 1], queue_restore.Restored(messages=5, lines=5))


def test_a_file_with_a_line_that_is_no_message_is_not_begun(postgresql, both, tmp_path):
    _, copy = both
    file = tmp_path / "wrong.jsonl"
    file.write_text(f"{line()}\n\n{line()}\nhello\n{line()}\n")
    refused = run(postgresql, "send", "copy", "--from", str(file))
    assert (refused.exit_code, refused.stdout, copy.count()) == (1, "", 0)
    assert refused.stderr == (
        f"Error: Line 4 of the file '{file}' is no message: it is no JSON (Expecting value at character 1); "
        "with --type a line is a body. Nothing was sent.\n"
    )


def test_of_a_pipe_the_lines_before_that_one_are_sent(postgresql, both):
    """It says how to go on."""
    _, copy = both
    ids = [str(row_id(number)) for number in range(4)]
    lines = [line(id=ids[0]), "", line(id=ids[1]), "hello", line(id=ids[2]), line(id=ids[3])]
    refused = run(postgresql, "send", "copy", "--from", "-", input="\n".join(lines))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "Error: Line 4 of standard input is no message: it is no JSON (Expecting value at character 1); with "
        "--type a line is a body. The first 3 lines are done; send the rest with --skip 3.\n"
    )
    assert copy.ids() == [UUID(each) for each in ids[:2]]
    lines[3] = ""
    rest = said(postgresql, "send", "copy", "--from", "-", "--skip", "3", input="\n".join(lines))
    assert (rest, copy.ids()) == ("sent 2 messages to copy\n", [UUID(each) for each in ids])
    nothing = run(postgresql, "send", "copy", "--from", "-", "--skip", "7", input="\n".join(lines))
    assert nothing.stderr == (
        "Error: There are only 6 lines in standard input, so that --skip 7 leaves none; correct the number.\n"
    )


@pytest.mark.parametrize(
    "text,why",
    [
        (
            line(body=None),
            (
                "it has no body (NULL), at which .NET endpoints stop; make it an empty one, or have it sent "
                "all the same with --stopping"
            ),
        ),
        (
            line(headers="null"),
            (
                "its headers are the JSON null, at which .NET endpoints stop; make them {}, or have it sent "
                "all the same with --stopping"
            ),
        ),
        (line(headers=None), "it has no headers (NULL), and the table takes no such row"),
        (line(headers="\0"), "its headers hold the character NUL, which PostgreSQL cannot keep"),
    ],
)
def test_a_message_that_the_table_does_not_take_is_refused(postgresql, both, text, why):
    _, copy = both
    refused = run(postgresql, "send", "copy", "--from", "-", input=text)
    assert refused.stderr == f"Error: Line 1 of standard input is no message: {why}. Nothing was sent.\n"
    assert copy.count() == 0


def test_headers_that_are_null_make_the_round_trip_where_a_table_has_them(postgresql, both, tmp_path):
    queue, copy = both
    postgresql.execute(
        "ALTER TABLE orders ALTER headers DROP NOT NULL; ALTER TABLE copy ALTER headers DROP NOT NULL"
    )
    queue.insert_row(id=row_id(1), headers=None, body=b"{}")
    said(postgresql, "send", "copy", "--from", str(saved(postgresql, tmp_path)))
    assert whole(copy) == whole(queue) == [(row_id(1), None, None, b"{}")]


@pytest.mark.parametrize("expires,exit_code", [("infinity", 0), ("-infinity", 1)])
def test_a_time_that_json_cannot_tell(postgresql, both, tmp_path, expires, exit_code):
    """Infinity is never, as NULL is. What has expired must not live for ever."""
    queue, copy = both
    queue.insert(1)
    queue.execute(f"UPDATE {{table}} SET expires = '{expires}'")
    result = run(postgresql, "send", "copy", "--from", str(saved(postgresql, tmp_path)))
    assert (result.exit_code, [row.expires for row in copy.rows()]) == (exit_code, [None] * (1 - exit_code))
    assert ("it has expired, at a time that the line does not tell" in result.stderr) is bool(exit_code)


def test_a_column_takes_a_number_of_characters_only(sqlserver):
    sqlserver.create_queue()
    refused = run(sqlserver, "send", "orders", "--from", "-", input=line(correlationId="c" * 256))
    assert "correlationId has 256 characters, and its column takes 255. Nothing was sent.\n" in refused.stderr


def test_a_row_that_is_there_is_not_sent_again(postgresql, both, tmp_path):
    """Unless as another one."""
    queue, _ = both
    queue.insert(3)
    file = saved(postgresql, tmp_path)
    refused = run(postgresql, "send", "orders", "--from", str(file))
    assert refused.exit_code == 1
    assert (
        f"A row of lines 1 to 3 of the file '{file}' is in the queue already; if these lines are to go out "
        "once more, give their rows new Ids with --new-ids. Nothing was sent.\n"
    ) in refused.stderr
    assert queue.count() == 3
    said(postgresql, "send", "orders", "--from", str(file), "--new-ids")
    rows = queue.rows()
    assert [(row.headers, row.body) for row in rows[3:]] == [(row.headers, row.body) for row in rows[:3]]
    assert len({row.id for row in rows}) == 6


def test_what_was_discarded_is_put_back(postgresql, both, tmp_path):
    queue, _ = both
    queue.insert(3)
    before = whole(queue)
    file = tmp_path / "kept.jsonl"
    said(postgresql, "errors", "discard", "orders", "--yes", "--to-file", str(file))
    assert queue.count() == 0
    said(postgresql, "send", "orders", "--from", str(file))
    assert whole(queue) == before


def test_what_an_interrupted_discard_has_written_twice_is_put_back_once(
    postgresql, both, tmp_path, monkeypatch
):
    queue, _ = both
    queue.insert(3)
    before, file = whole(queue), tmp_path / "kept.jsonl"
    discard = ("errors", "discard", "orders", "--yes", "--to-file", str(file))

    def killed(step):
        if step == fail_points.FAILED_PUT:
            raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(fail_points, "step", killed)
        assert run(postgresql, *discard).exit_code == 130
    said(postgresql, *discard)
    assert (len(file.read_text().splitlines()), queue.count()) == (6, 0)
    said(postgresql, "send", "orders", "--from", str(file))
    assert whole(queue) == before


def test_a_message_keeps_its_time_to_be_received(postgresql, both, tmp_path):
    """Also where that is over: receivers drop it, as they would have."""
    queue, copy = both
    past = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    queue.insert(1, expires=past)
    said(postgresql, "send", "copy", "--from", str(saved(postgresql, tmp_path)))
    assert whole(copy) == whole(queue)


def test_a_table_of_delayed_messages_takes_no_lines(postgresql):
    said(postgresql, "delayed", "create", "Sales")
    refused = run(postgresql, "send", "Sales.Delayed", "--from", "-", input=line())
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert (
        "is a table of delayed messages, and lines do not say when they are due; name a queue.\n"
        in refused.stderr
    )


def test_a_sender_who_may_not_look_restores(postgresql, both, tmp_path, guarded_url):
    queue, copy = both
    queue.insert(3)
    file = saved(postgresql, tmp_path)
    postgresql.execute("GRANT INSERT ON copy TO guarded")
    postgresql.execute("GRANT USAGE ON SEQUENCE copy_seq_seq TO guarded")
    result = CliRunner().invoke(main, ["send", "copy", "--from", str(file), "--url", guarded_url])
    assert (result.exit_code, whole(copy)) == (0, whole(queue))


@pytest.mark.parametrize("piped", [False, True])
def test_with_a_type_each_line_is_the_body_of_a_new_message(postgresql, both, tmp_path, monkeypatch, piped):
    """Whatever is in it; the end of a line does not belong to it, and an empty line is none."""
    monkeypatch.setattr(queue_restore, "_CHUNK_BYTES", 10)
    queue, _ = both
    file = tmp_path / "lines"
    file.write_bytes(b'left out\nplain\n\n{"order": 2}\r\n  \xff \x00\nlast')
    options = ("--type", "Sales.Placed", "--header", "tenant=north", "--ttl", "1h", "--skip", "1")
    given = ("-",) if piped else (str(file),)
    sent = said(
        postgresql, "send", "orders", "--from", *given, *options, input=file.read_bytes() if piped else None
    )
    assert sent == "sent 4 messages to orders\n"
    rows = queue.rows()
    assert [row.body for row in rows] == [b"plain", b'{"order": 2}', b"  \xff \x00", b"last"]
    assert {row.expires is None for row in rows} == {False}
    told = [json.loads(row.headers) for row in rows]
    assert {(each["tenant"], each["NServiceBus.EnclosedMessageTypes"]) for each in told} == {
        ("north", "Sales.Placed")
    }
    assert len({each["NServiceBus.MessageId"] for each in told}) == 4


def test_lines_have_ids_of_their_own(postgresql, both):
    queue, _ = both
    given = ("--type", "T", "--header", "NServiceBus.MessageId=mine")
    refused = run(postgresql, "send", "orders", "--from", "-", *given, input="one\n")
    assert (refused.exit_code, queue.count()) == (1, 0)
    assert refused.stderr.startswith("Error: Several messages cannot have one id; ")


def test_a_table_that_refuses_a_line_says_how_many_are_done(postgresql, both, monkeypatch):
    monkeypatch.setattr(queue_restore, "_CHUNK_BYTES", 1)
    queue, _ = both
    queue.execute("ALTER TABLE {table} ADD CONSTRAINT short CHECK (length(body) < 4)")
    refused = run(postgresql, "send", "orders", "--from", "-", "--type", "T", input="one\ntwo\nthree\n")
    assert (refused.exit_code, queue.count()) == (1, 2)
    assert refused.stderr.endswith(" The first 2 lines are done; send the rest with --skip 2.\n")


@pytest.mark.parametrize(
    "options,complaint",
    [
        (["--type", "T", "--body", "x"], "Lines (--from) have bodies; leave out --body, --count,"),
        (["--type", "T", "--new-ids"], "--new-ids and --stopping belong to lines of JSON; leave out --type."),
        (["--ttl", "1h"], "Lines of JSON (--from) are sent as they are; leave out --header and --ttl,"),
        (["--header", "a=b"], "Lines of JSON (--from) are sent as they are; leave out --header and --ttl,"),
    ],
)
def test_what_lines_cannot_be_given(postgresql, options, complaint):
    refused = run(postgresql, "send", "orders", "--from", "-", *options)
    assert (refused.exit_code, complaint in " ".join(refused.stderr.split())) == (2, True)
