"""A batch fails before Spark logs it where a received message has no outcome: its row would be deleted."""

from pathlib import Path

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.own_file import OwnFile
from sqlqueue_spark.receive.holding.done_file import RECEIVED, file_beside
from sqlqueue_spark.send.sent import CUBES, Sent


def check_outcomes(done_file: Path, sent: Sent) -> None:
    """Compare the messages that a frame of outcomes has with those that the source gave to its batch.

    :param done_file: the source's option. Where the source has said nothing beside it, nothing is compared.
    :raises ConfigurationError: there are fewer, or as many but others.
    """
    told = OwnFile(file := file_beside(done_file, RECEIVED)).read()
    rows, cubes = map(int, (told or "0 0").split())
    others = rows == sent.received and (cubes - sent.cubes) % CUBES
    if missing := "some" if others else max(0, rows - sent.received):
        raise ConfigurationError(
            f"There is no outcome for {missing} of the {rows} received messages, so the batch fails and its "
            "rows stay in their queue; let the transform keep each row of a frame with Outgoing or Failure "
            "(one that sends nothing has an empty Outgoing), and not unite parts of it, because Spark calls "
            "a function anew for each part."
        )
    file.unlink(missing_ok=True)  # a batch of rows of another source alone has no number of its own
