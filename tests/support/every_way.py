"""Every way by which an address out of a message leads somewhere, for a job with a login of its own."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlqueue_spark.administration import event_subscriptions, outbox_tables
from sqlqueue_spark.embedded import EmbeddedServer
from sqlqueue_spark.messages.message import FORWARD_DESTINATION
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.tables import scripts
from tests.support.delayed import DelayedRows, move
from tests.support.driver import streaming
from tests.support.forwarding import NAME, STAGE
from tests.support.logins import url_of
from tests.support.messages import body, message_id, row_id
from tests.support.outcomes import frame, outcome, outgoing, settled_all
from tests.support.postgresql import PostgresEngine, PostgresQueue, fresh_database
from tests.support.sending import batch, options, send

OWNER, JOB = "owner", "job"
QUEUES = ("orders", "billing", "error", "audit", "outgoing")
OUTBOXES = ("Sales", "Forward")
WAITING = ("Sales", "outgoing")
BILLING = '"public"."billing"'
#: Tables beside the queues.
BESIDE = ("Sales.Delayed", "Sales_OutboxData", "SubscriptionRouting", STAGE)


@dataclass(frozen=True)
class EveryWay:
    """One database: queues of the login ``owner``, and a job with the rights that docs/rights.md says.

    Each way sends messages: those of odd numbers to billing, those of even ones to the given address.
    """

    admin: PostgresEngine
    job: PostgresEngine

    def queue(self, name: str) -> PostgresQueue:
        return self.admin.queue(name)

    def clear(self) -> None:
        tables = (*QUEUES, *BESIDE, "Forward_OutboxData", "outgoing.Delayed")
        statements = [f'DELETE FROM "{name}"' for name in tables]
        self.admin.execute("; ".join([*statements, "SELECT setval('orders_seq_seq', 1, false)"]))

    def failed(self) -> dict[int, str]:
        """The reasons of the messages in the error queue, by their numbers."""
        return {
            json.loads(row.body or b"")["order"]: json.loads(row.headers)["NServiceBus.ExceptionInfo.Message"]
            for row in self.queue("error").rows()
        }

    def sink(self, to: str, numbers: Sequence[int]) -> None:
        where = [_address(number, to) for number in numbers]
        send(options(self.job, errorQueue="error"), batch(numbers, Destination=where))

    def answers(self, to: str, numbers: Sequence[int]) -> None:
        """As the answers of a handler."""
        rows = [outcome(number, outgoing(_address(number, to), number)) for number in numbers]
        settled_all(options(self.job, errorQueue="error"), frame(rows))

    def in_transit(self, to: str, numbers: Sequence[int]) -> None:
        orders = self.queue("orders")
        for number in numbers:
            orders.insert_row(id=row_id(number), headers=on_its_way(number, to), body=body(number))
        with streaming(self.job, orders, errorQueue="error") as stream:
            stream.drain()
            assert stream.messages() == []

    def delayed(self, to: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.wait(number, to)
        sent, failed = move(self.job, "Sales")
        assert (sent + failed, DelayedRows(self.admin, "Sales").count()) == (len(numbers), 0)

    def wait(self, number: int, to: str) -> None:
        """Let a delayed message be due."""
        headers = on_its_way(number, to).replace("'", "''")
        self.admin.execute(
            'INSERT INTO "Sales.Delayed" (headers, body, due) VALUES '
            f"('{headers}', '{body(number).decode()}', now() - interval '1 day' + interval '1 s' * {number})"
        )

    def send(self, way: str, to: str, numbers: Sequence[int] = (1, 2, 3)) -> None:
        """Send messages by one of :data:`WAYS`."""
        getattr(self, way)(to, numbers)


WAYS = ("sink", "answers", "in_transit", "delayed")


def _address(number: int, to: str) -> str:
    return BILLING if number % 2 else to


def on_its_way(number: int, to: str) -> str:
    """Headers as the transport writes those of a delayed message."""
    headers = {"NServiceBus.MessageId": message_id(number), FORWARD_DESTINATION: _address(number, to)}
    return json.dumps(headers, separators=(",", ":"))


def rights(login: str = JOB) -> list[str]:
    """The statements that give a job its rights, as docs/rights.md says them."""
    received, sent = ["orders", "outgoing", "error"], ["billing", "error", "audit", "orders", "outgoing"]
    text = scripts.grants("postgresql", login, "receiver", received, stream=NAME)
    for endpoint in OUTBOXES:
        text += scripts.grants("postgresql", login, "sender", sent, endpoint=endpoint, subscriptions=True)
    waiting = [
        f'GRANT SELECT, INSERT, DELETE, UPDATE (id) ON "{each}.Delayed" TO {login}' for each in WAITING
    ]
    return [each for each in dict.fromkeys(text.splitlines()) if each] + waiting


@contextlib.contextmanager
def furnished(server: EmbeddedServer, name: str) -> Iterator[EveryWay]:
    """A new database for a module; the logins must be there."""
    with fresh_database(server.url(), f"{name}_{os.getpid()}") as url:
        admin = PostgresEngine(url)
        said = ConnectionOptions.parse({"url": url})
        for queue in QUEUES:
            admin.create_queue(queue)
            admin.execute(f'ALTER TABLE "{queue}" OWNER TO {OWNER}')
        for endpoint in OUTBOXES:
            outbox_tables.create(said, endpoint)
        for queue in WAITING:
            DelayedRows(admin, queue).create()
            admin.execute(f'ALTER TABLE "{queue}.Delayed" OWNER TO {OWNER}')
        event_subscriptions.subscriptions(said, create=True)
        for part in 2 * scripts.create("postgresql", [], stream=NAME).split("\nGO\n"):
            if part.strip():
                admin.execute(part)
        for line in rights():
            admin.execute(line)
        yield EveryWay(admin, PostgresEngine(url_of(server, url, JOB)))
