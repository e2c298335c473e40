"""What ``sqlqueue errors`` prints: rows of an error queue and what was done with them, as text or JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from sqlqueue_spark.administration.error_discard import Discarded
from sqlqueue_spark.administration.failed_retry import Retried
from sqlqueue_spark.administration.message_lines import to_json
from sqlqueue_spark.cli.output import counted, indented, told
from sqlqueue_spark.cli.text_table import TextTable
from sqlqueue_spark.messages.error_row import FAILURE, ErrorRow
from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.servicecontrol import EXCEPTION_INFO, Ingestion, Verdict
from sqlqueue_spark.plain_text import for_shell, moment
from sqlqueue_spark.tables.queue_admin import Message

#: Shown in place of a failed queue or an exception's type that the row does not tell.
NONE = "-"

_LONGEST_BODY = 2_000
#: The most characters that the name of a header is filled up to.
_WIDEST_NAME = 60
#: Maximum number of queues that a question names.
_NAMED = 5
_STACK_TRACE = f"{EXCEPTION_INFO}StackTrace"
_MARKS = {Verdict.STOPS: "stops ServiceControl: ", Verdict.REFUSED: "refused by ServiceControl: "}


class Summary:
    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.groups: Counter[tuple[str | None, str | None]] = Counter()
        self.others: Counter[str] = Counter()
        self.stopping = 0

    def add(self, row: ErrorRow) -> None:
        if row.kind == FAILURE:
            self.groups[row.failed_queue, row.exception_type] += 1
        else:
            self.others[row.kind] += 1
        self.stopping += row.stops

    def json(self) -> Iterator[dict[str, Any]]:
        for (queue, exception), count in self.groups.most_common():
            yield {"kind": "group", "failedQueue": queue, "exceptionType": exception, "count": count}

    def text(self) -> Iterator[str]:
        rows = [
            (f"{count:,}", queue or NONE, exception or NONE)
            for (queue, exception), count in self.groups.most_common()
        ]
        yield from TextTable("count", "failed queue", "exception type").lines(rows)
        for kind, count in self.others.items():
            failures = "failure" if count == 1 else "failures"
            yield f"{counted(count, kind)} {_is(count)} no {failures}: neither retry nor discard takes them"
        if self.stopping:
            stop, them = ("stops", "it") if self.stopping == 1 else ("stop", "them")
            yield (
                f"{counted(self.stopping, 'row')} {stop} ServiceControl; to take {them} out, type: "
                f"sqlqueue errors discard --stopping --to-file FILE {for_shell(self.queue)}"
            )


def row_json(row: ErrorRow) -> dict[str, Any]:
    fields = {name: value for name, value in vars(row).items() if name != "ingestion"}
    return {**told(fields), **_of_servicecontrol(row.ingestion)}


def rows_text(rows: Iterable[ErrorRow]) -> Iterator[str]:
    heads = ("number", "failed", "message id", "failed queue", "exception type", "message", "")
    yield from TextTable(*heads).lines(map(_row, rows))


def shown_json(message: Message, row: ErrorRow) -> dict[str, Any]:
    return {**to_json(message), "kind": row.kind, **_of_servicecontrol(row.ingestion)}


def shown_text(message: Message, row: ErrorRow) -> Iterator[str]:
    yield f"row {row.row_version}, message {row.message_id}"
    if mark := _mark(row):
        yield f"  {mark}"
    if (headers := parse_headers(message.headers)) is None:
        yield "headers, which are not a JSON object of strings"
        yield from indented((message.headers or "").splitlines())
    else:
        yield "headers"
        width = min(_WIDEST_NAME, max(map(len, headers), default=0))
        others = ((name, value) for name, value in headers.items() if name != _STACK_TRACE)
        yield from indented(f"{name.ljust(width)}  {value}" for name, value in others)
        if trace := headers.get(_STACK_TRACE):
            yield "stack trace"
            yield from indented(trace.splitlines())
    yield from _body(message.body)


def retried_text(retried: Retried, *, planned: bool = False) -> Iterator[str]:
    goes, stays = ("{} would go to {}", "would stay") if planned else ("put {} back into {}", "stayed")
    for queue, count in retried.went.items():
        yield goes.format(counted(count, "message"), queue)
    for why, count in retried.stayed.items():
        yield f"{counted(count, 'message')} {stays}: {why}"
    yield from _held(retried.held)
    if not retried.went and not retried.stayed:
        yield nothing(retried.queue)


def retried_json(retried: Retried) -> dict[str, Any]:
    return {
        "queue": retried.queue,
        "retried": [{"queue": queue, "count": count} for queue, count in retried.went.items()],
        "stayed": [{"why": why, "count": count} for why, count in retried.stayed.items()],
        "held": retried.held,
    }


def discarded_text(found: Discarded, file: str) -> Iterator[str]:
    if found.discarded or found.held:
        messages = counted(found.discarded, "message")
        yield f"discarded {messages} from {found.queue}; they stand in {file}"
    else:
        yield nothing(found.queue)
    yield from _held(found.held)


def nothing(queue: str) -> str:
    return f"no such failed message is in {queue}"


def destinations(plan: Retried) -> str:
    named = [f"{count:,} into {queue}" for queue, count in plan.went.most_common(_NAMED)]
    more = len(plan.went) - len(named)
    return ", ".join([*named, f"the others into {counted(more, 'more queue')}"] if more else named)


def _of_servicecontrol(found: Ingestion) -> dict[str, str | None]:
    return {"serviceControl": found.verdict.value, "why": found.why or None}


def _held(count: int) -> Iterator[str]:
    if count:
        yield f"{counted(count, 'message')} {_is(count)} held or was taken by others, and left to them"


def _row(row: ErrorRow) -> tuple[str, ...]:
    failed = "" if row.time_of_failure is None else moment(row.time_of_failure)
    message = (row.exception_message or "").strip().partition("\n")[0]
    queue, exception = row.failed_queue or NONE, row.exception_type or NONE
    return (str(row.row_version), failed, row.message_id, queue, exception, message, _mark(row))


def _mark(row: ErrorRow) -> str:
    verdict, why = row.ingestion
    odd = [] if row.kind == FAILURE else [f"{row.kind}, no failure"]
    odd += [] if verdict is Verdict.TAKEN else [f"{_MARKS.get(verdict, '')}{why}"]
    return "; ".join(odd)


def _body(body: bytes | None) -> Iterator[str]:
    if body is None:
        yield "no body (NULL)"
        return
    text = body.decode("utf-8-sig", errors="replace")
    more = len(text) > _LONGEST_BODY
    yield f"body, {len(body):,} bytes{', of which this is the beginning' if more else ''}"
    yield from indented(text[:_LONGEST_BODY].splitlines())


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
