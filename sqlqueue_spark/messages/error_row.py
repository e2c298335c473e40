"""A row of an error queue, as its headers tell it, and the choice of some of these rows."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from sqlqueue_spark.messages.addresses import Naming
from sqlqueue_spark.messages.body import LARGEST_ROW
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import CONTROL_MESSAGE, MESSAGE_ID, parse_time
from sqlqueue_spark.messages.servicecontrol import (
    EXCEPTION_INFO,
    FAILED_QUEUE,
    LONGEST_MESSAGE,
    RETRY_SUCCESSFUL,
    TIME_OF_FAILURE,
    Ingestion,
    Verdict,
    ingestion,
)

#: The kinds of rows. Only a failure is put back or discarded. An acknowledgement is for ServiceControl.
FAILURE, ACKNOWLEDGEMENT, CONTROL = "failure", "acknowledgement", "control message"
#: A row that no client can read.
TOO_LARGE = "too large to read"
#: The most characters that are kept of a text: no address, and no id, is as long.
_LONGEST = 2_000


@dataclass(frozen=True, kw_only=True)
class ErrorRow:
    """What is known of a row without its body. What its headers do not tell is None.

    :ivar message_id: the header, or the row's Id where it is missing, empty or cannot be read.
    :ivar failed_queue: the queue that it failed for, as the header has it.
    :ivar bytes: of headers and body.
    :ivar ingestion: what ServiceControl makes of it.
    """

    kind: str
    row_version: int
    message_id: str
    failed_queue: str | None
    exception_type: str | None
    exception_message: str | None
    time_of_failure: datetime | None
    bytes: int
    ingestion: Ingestion

    @classmethod
    def of(
        cls,
        row_version: int,
        row_id: str,
        *,
        expired: bool,
        headers: str | None,
        size: int,
        unreadable_body: bool,
    ) -> Self:
        """What a row's headers tell.

        :param size: bytes of the body.
        :param unreadable_body: whether the body is NULL, where that cannot be read.
        """
        read = parse_headers(headers) or {}
        message = read.get(f"{EXCEPTION_INFO}Message")
        bytes_ = len(headers or "") + size
        return cls(
            row_version=row_version,
            kind=TOO_LARGE if bytes_ > LARGEST_ROW else _kind(read),
            message_id=read.get(MESSAGE_ID, "")[:_LONGEST] or row_id,
            failed_queue=read.get(FAILED_QUEUE, "")[:_LONGEST] or None,
            exception_type=read.get(f"{EXCEPTION_INFO}ExceptionType", "")[:_LONGEST] or None,
            exception_message=message and message[:LONGEST_MESSAGE],
            time_of_failure=parse_time(read.get(TIME_OF_FAILURE)),
            bytes=bytes_,
            ingestion=ingestion(headers, unreadable_body=unreadable_body, expired=expired),
        )

    @property
    def is_failure(self) -> bool:
        return self.kind == FAILURE

    @property
    def stops(self) -> bool:
        """Whether ServiceControl stops at it."""
        return self.ingestion.verdict is Verdict.STOPS

    def goes(self, *, stopping: bool) -> bool:
        """Whether a retry or a discard takes it; one of rows that are ``stopping`` takes other kinds too."""
        return self.is_failure or (stopping and self.stops)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A choice of rows: those that fit all that is given.

    :ivar failed_queue: an address in any form.
    :ivar exception_type: the full name, or what stands behind its last dot.
    :ivar older_than: how long ago it failed at least. A row that does not say when it failed fits no age.
    :ivar stopping: only rows that stop ServiceControl.
    """

    failed_queue: str | None = None
    exception_type: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    message_ids: frozenset[str] = frozenset()
    stopping: bool = False

    def fits(self, naming: Naming, now: datetime, row: ErrorRow) -> bool:
        """Whether a row is meant.

        :param now: by the database's clock.
        """
        return (
            (not self.message_ids or row.message_id in self.message_ids)
            and (not self.stopping or row.stops)
            and (self.exception_type is None or _is_type(row.exception_type, self.exception_type))
            and (self.failed_queue is None or naming.way(row.failed_queue or "", self.failed_queue) == "own")
            and self._is_of_age(row.time_of_failure, now)
        )

    def _is_of_age(self, time: datetime | None, now: datetime) -> bool:
        older, newer = self.older_than, self.newer_than
        if time is None:
            return older is None and newer is None
        return (older is None or now - time >= older) and (newer is None or now - time < newer)


def _kind(headers: dict[str, str]) -> str:
    if headers.get(FAILED_QUEUE):
        return FAILURE
    if RETRY_SUCCESSFUL in headers:
        return ACKNOWLEDGEMENT
    return CONTROL if CONTROL_MESSAGE in headers else FAILURE


def _is_type(name: str | None, wanted: str) -> bool:
    return name is not None and (name == wanted or name.endswith(f".{wanted}"))
