"""A job compares the messages of a frame of outcomes with those that the source gave to the batch."""

import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options.own_file import OwnFile
from sqlqueue_spark.pipeline.running.missing_outcomes import check_outcomes
from sqlqueue_spark.send.sent import Sent


@pytest.mark.parametrize("in_the_frame", [10, 11])
def test_a_number_holds_for_one_batch(tmp_path, in_the_frame):
    """The next batch may have rows of another source alone, and then this source says none."""
    OwnFile(tmp_path / "done.received").write("10 3025")
    check_outcomes(tmp_path / "done", Sent(received=in_the_frame, cubes=3025))
    check_outcomes(tmp_path / "done", Sent(received=0))
    assert [*tmp_path.iterdir()] == []


def test_a_batch_that_is_refused_is_refused_again(tmp_path):
    """A database may have been down meanwhile: then the sink sends the batch again."""
    OwnFile(tmp_path / "done.received").write("10 3025")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="There is no outcome for 1 of the 10 received messages"):
            check_outcomes(tmp_path / "done", Sent(received=9, repeated=9))


def test_a_message_that_stands_twice_hides_no_missing_one(tmp_path):
    """Of the rows 1 to 10 the frame has 4 twice, and not 7."""
    OwnFile(tmp_path / "done.received").write(f"10 {3025 + (1 << 60)}")
    frame = [1, 2, 3, 4, 4, 5, 6, 8, 9, 10]
    with pytest.raises(ConfigurationError, match="There is no outcome for some of the 10 received messages"):
        check_outcomes(tmp_path / "done", Sent(received=10, cubes=sum(each**3 for each in frame)))
    check_outcomes(tmp_path / "done", Sent(received=10, cubes=3025))
