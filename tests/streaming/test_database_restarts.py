"""The database goes away under a running stream and comes back: the stream goes on,
nothing is lost or doubled.
"""

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from sqlqueue_spark.embedded import EmbeddedServer
from tests.support.messages import row_ids
from tests.support.postgresql import PostgresEngine, restart
from tests.support.streams import ids_in_delta, running, stream, to_each
from tests.support.waiting import eventually


@pytest.fixture
def own_server():
    """A server that may be restarted: no other test uses it."""
    folder = Path(tempfile.mkdtemp(prefix="sqlqueue-tests-"))  # as the server of all tests
    with EmbeddedServer(folder / "data", settings={"fsync": "off"}) as server:
        yield server
    shutil.rmtree(folder)


def test_a_stream_survives_restarts_of_the_database(spark, own_server, tmp_path):
    """The server crashes before workers read the batch's rows, after they are in Delta,
    and while the stream rests.

    More messages arrive during each batch, so that a batch which is not deleted comes again as another one.
    """
    engine = PostgresEngine(own_server.url())
    queue = engine.create_queue()
    queue.insert(60)
    done = []

    def handle(batch, number):
        if number < 2:
            queue.insert(40, start=60 + 40 * number)
        if number == 0:
            restart(own_server)
        once = {"txnAppId": "drain", "txnVersion": str(number)}
        batch.write.format("delta").mode("append").options(**once).save(str(tmp_path / "delta"))
        if number == 1:
            restart(own_server)
        done.append(number)

    options = {"maxMessagesPerTrigger": 100, "minMessagesPerPartition": 20}
    with running(to_each(stream(spark, engine, queue, **options), tmp_path, handle)):
        eventually(lambda: len(done) == 3, within=timedelta(seconds=90))
        eventually(lambda: queue.count() == 0)
        restart(own_server)  # while it rests
        queue.insert(50, start=140)
        eventually(lambda: queue.count() == 0, within=timedelta(seconds=60))
    assert done == [0, 1, 2, 3]
    assert ids_in_delta(spark, tmp_path) == [str(each) for each in row_ids(range(190))]
