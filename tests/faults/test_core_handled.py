"""A pipeline of outcomes dies at each step, and answers otherwise each time: each message has one outcome,
with all that belongs to it.
"""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.administration import outbox_tables
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, RECEIVE_ONLY, ConnectionOptions
from sqlqueue_spark.pipeline.running.missing_outcomes import check_outcomes
from sqlqueue_spark.send.deliver.destination_tables import Destinations
from sqlqueue_spark.send.deliver.preflight import prepare
from sqlqueue_spark.send.deliver.sender import Sender
from sqlqueue_spark.send.deliver.stage_writer import seal, stage
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.tables.stages.stage_mark import Batch
from tests.support import death_steps
from tests.support.delayed import DelayedRows
from tests.support.driver import BATCH_WRITTEN, OFFSET_NOT_LOGGED, at_each_step, crash, watched_connections
from tests.support.forwarding import NAME, Forward
from tests.support.messages import message_ids, number_of
from tests.support.outcomes import AT_ONCE, composed_outcomes, failure, frame, outgoing
from tests.support.sending import ids_in

pytestmark = [pytest.mark.needs("reads_json_as_documented"), pytest.mark.provokes("lock timeout")]

MANY = 60
HOUR = timedelta(hours=1)
RECEIVING = (*death_steps.STEPS, OFFSET_NOT_LOGGED, BATCH_WRITTEN)
SENDING = (fail_points.ROWS_INSERTED, fail_points.IDS_INSERTED, fail_points.CHUNK_SENT)
STAGING = (fail_points.ROWS_STAGED, fail_points.STAGE_SEALED)


class Handling(Forward):
    """Each try of a batch has other answers: a message is sent on, sent later,
    tried again later, or fails. As a job does, it looks whether each message has an outcome.
    """

    tries = checked = 0

    def write(self, messages):
        self.tries += 1
        given = self.sink_options
        found = Destinations(given)
        batch = Batch(query=self.query, number=self.done, attempt=self._attempt)
        run = self._last = prepare(found, AT_ONCE, [], batch=batch, last=self._last)
        outcomes = [self._outcome(each) for each in messages]
        half = -(-len(outcomes) // 2)
        frames = [frame(each) for each in (outcomes[:half], outcomes[half:]) if each]
        made = [composed_outcomes(given, found, each) for each in frames]
        if given.transaction_mode == ATOMIC:
            staged = [stage(found, each) for each in made]
            seal(given, staged, run)
            done = [each.sent for each in staged]
        else:
            done = []
            for each in made:
                with Sender(found) as sender:
                    done.append(sender.send(each))
        self._check(sum(done, Sent()))

    def _check(self, sent):
        file = Path(self.options.done_file or "")
        fewer, others = replace(sent, received=sent.received - 1), replace(sent, cubes=sent.cubes + 1)
        for wrong, missing in ((fewer, "1"), (others, "some")):
            why = f"no outcome for {missing} of the {sent.received} received"
            with pytest.raises(ConfigurationError, match=why):
                check_outcomes(file, wrong)
        check_outcomes(file, sent)
        self.checked += 1

    def _outcome(self, message):
        number = number_of(message["Id"])
        kind = (number + self.tries) % 4
        sends = outgoing(
            "billing", number, MessageId=f"{number}", **({"DelayDeliveryFor": HOUR} if kind == 1 else {})
        )
        return {
            "Queue": "orders",
            **{name: message[name] for name in ("RowVersion", "Id", "Headers", "Body")},
            "Outgoing": [sends, sends],
            "Failure": {2: failure(RetryAfter=HOUR), 3: failure()}.get(kind),
        }  # fmt: skip


@pytest.mark.parametrize(
    "mode, steps",
    [
        ("optimistic", (*RECEIVING, fail_points.IDS_CHECKED, *SENDING)),
        ("pessimistic", (*RECEIVING, *SENDING)),
        ("atomic", (*RECEIVING, *STAGING)),
    ],
    ids=["optimistic", "pessimistic", "atomic"],
)
def test_each_message_has_one_outcome_whatever_dies(engine, queue, tmp_path, mode, steps):
    """In each try the frame has as many messages as the source says that the batch has."""
    outbox_tables.create(ConnectionOptions.parse({"url": engine.url}), NAME)
    later, retried = (DelayedRows(engine, name).create() for name in (NAME, "orders"))
    billing, error, audit = (engine.create_queue(name) for name in ("billing", "error", "audit"))
    queue.insert(MANY)
    atomic = mode == "atomic"
    stream = Handling(
        engine,
        queue,
        transactionMode=ATOMIC if atomic else RECEIVE_ONLY,
        maxMessagesPerTrigger="4",
        minMessagesPerPartition="2",
        doneFile=str(tmp_path / "done"),
    )
    stream.outbox = "optimistic" if atomic else mode
    stream.sink_says = {"errorQueue": "error", "auditQueue": "audit"}
    with watched_connections(stream.opened), at_each_step(steps, crash, when=lambda: True) as crashes:
        stream.drain()
        stream.stop()
    assert (sorted(crashes), queue.count()) == (sorted(steps), 0)
    assert stream.checked >= MANY / 4
    sent = [*ids_in(billing), *(row.headers["NServiceBus.MessageId"] for row in later.rows())]
    handled = message_ids(sorted({int(each) for each in sent}))
    assert sorted(sent) == sorted([*map(str, map(number_of, handled))] * 2)
    waits = [row.headers["NServiceBus.MessageId"] for row in retried.rows()]
    assert sorted([*handled, *waits, *ids_in(error)]) == message_ids(range(MANY))
    assert sorted(ids_in(audit)) == handled
    assert all([handled, waits, error.count(), later.count(), billing.count()])
    assert {json.loads(row.headers)["NServiceBus.ProcessingEndpoint"] for row in error.rows()} == {"orders"}
