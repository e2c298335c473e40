"""What the sink tells whoever seals the stage of an atomic batch."""

from types import SimpleNamespace
from unittest import mock

import pytest

from sqlqueue_spark.options import ATOMIC
from sqlqueue_spark.spark.sink import SqlQueueSink
from sqlqueue_spark.tables.stage import Run
from sqlqueue_spark.tables.stage_mark import Batch

RUN = Run(name="a run", batch=Batch(number=7))


@pytest.mark.parametrize(
    "columns, own_ids",
    [(["Headers"], False), (["Id"], True), (["Id", "RowVersion"], False)],
    ids=["new messages", "rows with Ids of their own", "rows that were received"],
)
def test_only_written_ids_may_be_there_already(columns, own_ids):
    """All messages with such Ids are sent and taken back before the batch is done; else one a destination is enough."""
    types = {"Id": "string", "RowVersion": "bigint", "Headers": "string", "Body": "binary"}
    frame = mock.Mock(
        dtypes=[(each, types[each]) for each in [*columns, "Body"]], sparkSession=SimpleNamespace()
    )
    frame.mapInArrow.return_value.collect.return_value = []
    sink = SqlQueueSink(url="postgresql://h/d", queue="billing", transactionMode=ATOMIC, stream="Forward")
    with (
        mock.patch("sqlqueue_spark.spark.sink.prepare", return_value=RUN),
        mock.patch("sqlqueue_spark.spark.sink.seal") as seal,
    ):
        sink(frame, 7)
    assert seal.mock_calls == [mock.call(sink._options, [], RUN, own_ids=own_ids)]
