"""Looks into tables of delayed messages, fills them, and moves what is due, without Spark."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlqueue_spark.administration import delayed_tables
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.send.sent import Sent
from sqlqueue_spark.send.waiting.delayed_mover import DelayedMover
from tests.support.engines import Engine


class Waiting(NamedTuple):
    """A delayed message; ``due`` is the instant that is meant."""

    headers: dict[str, str]
    body: bytes | None
    due: datetime


@dataclass
class DelayedRows:
    """The table ``<name>.Delayed`` of a database."""

    engine: Engine
    name: str

    @property
    def quoted(self) -> str:
        table = f"{self.name}.Delayed"
        return f'"{table}"' if self.engine.name == "postgresql" else f"[{table}]"

    def create(self) -> "DelayedRows":
        delayed_tables.create(options(self.engine), self.name)
        return self

    def rows(self) -> list[Waiting]:
        """What waits, in the order in which it is due, as a .NET endpoint reads it."""
        meant = "due::timestamp" if self.engine.name == "postgresql" else "Due"
        found = self.engine.fetch(f"SELECT headers, body, {meant} AS meant FROM {self.quoted} ORDER BY meant")
        return [
            Waiting(json.loads(str(headers)), None if body is None else bytes(body), due.replace(tzinfo=UTC))  # type: ignore[attr-defined, call-overload] # rows differ
            for headers, body, due in found
        ]

    def count(self) -> int:
        return len(self.rows())

    def make_due(self, by: str = "1 hour") -> None:
        """Let time go by for all that waits."""
        if self.engine.name == "postgresql":
            self.engine.execute(f"UPDATE {self.quoted} SET due = due - interval '{by}'")
        else:
            self.engine.execute(f"UPDATE {self.quoted} SET Due = DATEADD(hour, -1, Due)")


def options(engine: Engine, **more: str) -> ConnectionOptions:
    return ConnectionOptions.parse({"url": engine.url, **more})


def mover(engine: Engine, name: str, error_queue: str = "error", **more: str) -> DelayedMover:
    owner, ends = (Table(table=each, schema=engine.default_schema) for each in (name, error_queue))
    return DelayedMover(
        options=options(engine, **more), owner=owner, error_queue=error_queue, chosen=[owner, ends]
    )


def move(engine: Engine, name: str, error_queue: str = "error", **more: str) -> tuple[int, int]:
    """Move what is due now, as one mover does; returns how many messages it sent,
    and how many went to the error queue.
    """
    moving = mover(engine, name, error_queue, **more)
    try:
        done: Sent = moving.move_due()
    finally:
        moving.close()
    return done.sent, done.failed


def in_an_hour() -> datetime:
    """A time that every engine stores as it is."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)


def headers_of(rows: list[Any]) -> list[dict[str, str]]:
    return [json.loads(row.headers) for row in rows]
