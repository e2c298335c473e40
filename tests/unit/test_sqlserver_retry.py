"""What a retry and a discard of failed messages say to SQL Server, as far as it is told without one."""

import base64
import json

import pytest

from sqlqueue_spark.administration import error_discard, error_queue, failed_retry
from sqlqueue_spark.messages.error_row import Selection
from sqlqueue_spark.options import ConnectionOptions
from tests.support.error_rows import failed, failure
from tests.support.messages import headers
from tests.support.recording import Answer, Recorder
from tests.support.statements import (
    CLOCK,
    DATABASE,
    ID,
    INDEXED,
    MESSAGE_ROW,
    MESSAGES,
    NOW,
    STORAGE,
    TABLE_COLUMNS,
    UNINDEXED,
)

FAILED = failed(1, failure("billing@[dbo]@[other]"))
#: How a statement that matters begins, and a word for it.
WORDS = {
    "SELECT RowVersion,\n       LOWER(CONVERT(char(36), Id)) AS Id,\n       CAST(CASE": "look",
    "SELECT q.RowVersion,": "lock",
    "SAVE TRANSACTION": "savepoint",
    "ROLLBACK TRANSACTION": "undo",
    "INSERT INTO [other].[dbo].[billing]": "insert",
    "DELETE q": "delete",
}


def answers(*, there=True, found=FAILED, indexes=INDEXED):
    row = [5, ID, "c", "r", NOW, found, "body"]
    return [
        *(DATABASE, STORAGE, CLOCK, TABLE_COLUMNS, indexes),
        Answer("FROM [shop].sys.tables", "wwiw", [["dbo", "error", 77, NOW]]),
        Answer("FROM [other].sys.tables", "wwiw", [["dbo", "billing", 88, NOW]] if there else []),
        Answer("DB_ID", "wbw", [["shop", 0, "other"]]),
        Answer("MAX(RowVersion)", "i", [[9]]),
        Answer("COUNT_BIG(*)", "i", [[1]]),
        Answer("AS body_bytes", "iwbwi", [[5, ID, 0, found, 4]]),
        Answer("UPDLOCK, READPAST", "iwwwtwx", [row]),
        Answer("XACT_STATE", "i", [[1]]),
        Answer("INSERT INTO", changed=1),
        Answer("DELETE q", changed=1),
        Answer("WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)", f"{MESSAGES}b", [[*MESSAGE_ROW, 0]]),
    ]


@pytest.fixture
def recorded(library, tmp_path):
    def run(action, **more):
        recorder = Recorder(library, tmp_path, answers(**more))
        return action(ConnectionOptions.parse({"url": recorder.url})), recorder

    return run


def said(recorder):
    texts = [each.text for each in recorder.executions()]
    return [
        word
        for text in texts
        for begin, word in WORDS.items()
        if text.startswith(begin) or f"\n{begin}" in text
    ]


def test_a_batch_is_one_transaction_also_across_databases(recorded):
    """The row is locked and stepped over where others hold it, inserted behind a savepoint, and deleted."""
    done, recorder = recorded(lambda options: failed_retry.retry(options, "error", Selection()))
    assert (done.went, done.stayed, done.held) == ({"billing@[dbo]@[other]": 1}, {}, 0)
    assert [each for each in said(recorder) if each != "savepoint"] == ["look", "lock", "insert", "delete"]
    insert = next(each for each in recorder.executions() if each.text.startswith("INSERT INTO"))
    ((number, new_id, expires, text, body, *columns),) = json.loads(str(insert.bound[0].value))
    assert text == headers(1)[:-1] + ', "NServiceBus.ProcessingEndpoint": "orders"}'
    assert (number, expires, base64.b64decode(body), columns) == (0, None, b"body", ["c", "r"])
    assert new_id != ID


def test_a_destination_that_is_missing_keeps_its_rows(recorded):
    done, recorder = recorded(lambda options: failed_retry.retry(options, "error", Selection()), there=False)
    assert done.stayed == {
        "There is no queue table billing@[dbo]@[other], for which they have failed; create it with: "
        "sqlqueue create 'billing@[dbo]@[other]'.": 1
    }
    assert not {"insert", "delete"} & set(said(recorder))


def test_a_queue_without_an_index_is_read_by_a_scan(recorded):
    """The server refuses a statement that has to seek an index which is not there."""
    rows, recorder = recorded(
        lambda options: [*error_queue.look(options, "error", Selection())], indexes=UNINDEXED
    )
    assert [row.row_version for row in rows] == [5]
    assert "look" not in said(recorder)


def test_what_is_discarded_is_deleted_as_it_was_locked(recorded, tmp_path):
    file = tmp_path / "kept.jsonl"
    done, recorder = recorded(lambda options: error_discard.discard(options, "error", Selection(), file))
    kept = json.loads(file.read_text())
    kept.pop("discarded")
    assert kept == {
        "queue": "error@[dbo]@[shop]",
        "rowVersion": 5,
        "id": ID,
        "correlationId": "c",
        "replyToAddress": "r",
        "expires": f"{NOW}Z",
        "headers": FAILED,
        "bodyBase64": "Ym9keQ==",
    }
    assert (done.discarded, said(recorder)) == (1, ["look", "savepoint", "lock", "delete"])
