"""Where a checkpoint is, and whether it and its Delta table remember the same batches; reads nothing itself.

Both number the batches of the query: the checkpoint in its folders ``offsets`` (begun) and ``commits``
(done), Delta in its log. A checkpoint can go back: it is restored from a backup or copied, or its newest
files are lost. Then Spark gives new messages numbers that Delta has: Delta would skip them, Spark would log
them, the source would delete them. So the newest batch of Delta must be one that the checkpoint has begun.

Two streams on copies of one checkpoint count alike. So each commit has a *mark*, a digest of what the
checkpoint's ``offsets`` say of its batch. A replay has it too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.fields import said
from sqlqueue_spark.pipeline.running.checkpoint_folder import Checkpoint

#: The folder of the checkpoint within the table's, unless one is named. Delta leaves folders alone whose
#: names begin with an underscore: it never takes their files for the table's, and VACUUM keeps them.
#: https://docs.delta.io/latest/delta-streaming.html
CHECKPOINT = "_checkpoints"
_MARK = re.compile(r"\bsqlqueue offsets=([0-9a-f]{64})\b")


def with_checkpoint(delta: Mapping[str, str]) -> dict[str, str]:
    """The options of [delta], with a checkpoint in the table's folder if they name none."""
    path = said(delta, "path")
    if path is None or said(delta, "checkpoint") is not None:
        return dict(delta)
    return {**delta, "checkpoint": f"{path.rstrip('/')}/{CHECKPOINT}"}


@dataclass(frozen=True)
class Recorded:
    """The newest batch that a Delta table has of a query, and its mark, if the commit has one."""

    batch: int
    mark: str | None


def check_start(checkpoint: Checkpoint, table: str, known: int | None) -> None:
    """Refuse to start a query if Delta would drop its messages.

    :param known: the newest batch that the table has of the checkpoint's query.
    :raises ConfigurationError: the checkpoint has gone back, or has lost its file ``metadata``.
    """
    if checkpoint.query_id is None and checkpoint.begun is not None:
        raise ConfigurationError(
            f"The checkpoint {checkpoint.folder} has no file metadata that names its query, so it is "
            f"not known which of its batches the Delta table {table} has; put the file back, or give a new "
            f"folder: {_NEW_FOLDER}."
        )
    if known is not None and (checkpoint.begun is None or known > checkpoint.begun):
        newest = "no batch" if checkpoint.begun is None else f"batch {checkpoint.begun}"
        raise ConfigurationError(
            f"The checkpoint {checkpoint.folder} has gone back: its newest is {newest}, but the Delta table "
            f"{table} has batch {known} of its query and would drop new messages under the numbers that it "
            f"has; give the newest checkpoint, or a new folder: {_NEW_FOLDER}."
        )


def put_back(table: str, found: Recorded) -> ConfigurationError:
    """The error that RESTORE has put a table back to a version before a batch that its log still has."""
    return ConfigurationError(
        f"Batch {found.batch} is not logged and its messages stay in the queue, because the Delta table "
        f"{table} was put back to a version without it, and Delta would not write it again; give this "
        f"stream a new folder: {_NEW_FOLDER}."
    )


def check_written(checkpoint: Checkpoint, table: str, own: Recorded, found: Recorded | None) -> None:
    """Check, before Spark logs a batch, that Delta has this batch, and not another one of the same number.

    :param checkpoint: the checkpoint as it was before the start.
    :param found: what the table has of the query now; None where it no longer keeps the commit.
    :raises ConfigurationError: the table has another stream's batch.
    """
    if found == own:
        return
    unmarked = found is None or found == Recorded(own.batch, None)
    if unmarked and own.batch == checkpoint.pending:
        return  # a version that left no mark wrote it, or it was written long ago
    has = "it" if found is None or found.batch == own.batch else f"batch {found.batch} of this query"
    raise ConfigurationError(
        f"Batch {own.batch} is not logged and its messages stay in the queue, because the Delta table "
        f"{table} has {has} from another stream, which runs on a copy of the checkpoint {checkpoint.folder}; "
        f"give this stream a new folder: {_NEW_FOLDER}."
    )


def marked(digest: str, by_user: str | None = None) -> str:
    """What to write into a commit's ``userMetadata``: the mark, behind what the user's settings say."""
    return f"{by_user} sqlqueue offsets={digest}" if by_user else f"sqlqueue offsets={digest}"


def mark_in(user_metadata: str | None) -> str | None:
    """The digest in a commit's ``userMetadata``, if it has one."""
    found = _MARK.search(user_metadata or "")
    return found[1] if found else None


_NEW_FOLDER = "it loses nothing, and only rows of the last batch that a crash left in the queue come twice"
