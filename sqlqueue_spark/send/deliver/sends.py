"""The messages of a chunk as rows of their tables, and the keys by which an outbox knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from sqlqueue_spark.messages.acknowledgement import OF_RETRY
from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.message import (
    FORWARD_DESTINATION,
    STORED,
    STORED_FOR,
    changed_headers,
    without_headers,
)
from sqlqueue_spark.messages.outgoing import replaced, waiting
from sqlqueue_spark.send.compose.places import Place
from sqlqueue_spark.send.deliver.chunk import Chunk
from sqlqueue_spark.send.deliver.destinations import Rows
from sqlqueue_spark.send.deliver.routes import Addressed, Routes
from sqlqueue_spark.tables.outbox_keys import (
    earlier_keys,
    keys,
)


def send_keys(chunk: Chunk, addressed: Iterable[Addressed], *, remembered: bool = True) -> dict[int, str]:
    """The key of each of these messages, by position; without an outbox no two messages have one key."""
    found: dict[int, str] = {}
    for each in addressed:
        if not remembered:
            found.update({at: str(at) for at in each.positions})
        elif each.positions and chunk.sends is not None:
            made = keys(_known_ids(chunk, each.positions), each.known_as)
            found.update(zip(each.positions, made.to_pylist(), strict=True))
    return found


def _known_ids(chunk: Chunk, positions: Sequence[int]) -> pa.Array:
    """What messages are known by: their ids, or what the row says that we have stored."""
    assert chunk.sends is not None
    ids = chunk.sends.of(chunk.sends.id_column, positions)
    stored = {} if chunk.rows is None else chunk.rows.stored
    if not stored:
        return ids
    return pc.coalesce(pa.array([stored.get(chunk.owners[at]) for at in positions], pa.string()), ids)


def earlier_send_keys(chunk: Chunk, addressed: Iterable[Addressed], own: str | None) -> dict[str, str]:
    """The keys by which version 0.1.0 may have known messages, each with the present key.

    :param own: the name of the table of the option ``queue``.
    """
    present = send_keys(chunk, addressed)
    assert chunk.sends is not None
    return {
        earlier: present[at]
        for each in addressed
        if each.to is not None
        for at in each.positions
        for earlier in earlier_keys(chunk.sends.ids[at], each.to.table.name, own=each.to.table.name == own)
    }


def inserted_rows(routes: Routes, chunk: Chunk, to: Addressed, positions: Sequence[int]) -> list[Rows]:
    """The rows of messages by the tables that they go into. Those that are due later go into another one."""
    assert to.to is not None
    assert chunk.sends is not None
    rows = chunk.sends.rows(positions)
    told = [number for number, at in enumerate(positions) if chunk.told and chunk.owners[at] in chunk.told]
    if told:
        headers = rows["headers"].to_pylist()
        for number in told:
            headers[number] = without_headers(headers[number], OF_RETRY)
        rows = replaced(rows, headers=pa.array(headers, pa.string()))
    if to.stored_for is not None:
        known = chunk.sends.of(chunk.sends.id_column, positions).to_pylist() if chunk.handled else None
        rows = _stored(routes, rows, to, known)
    later = waiting(rows)
    if not pc.any(later).as_py():
        return [(to.to, rows)]
    if pc.all(later).as_py():
        return [(routes.later(to.to), rows)]
    return [(to.to, rows.filter(pc.invert(later))), (routes.later(to.to), rows.filter(later))]


def _stored(
    routes: Routes, rows: pa.RecordBatch, to: Addressed, known_as: Sequence[str] | None
) -> pa.RecordBatch:
    """The rows with the header of their destination in another database; a plain one may have it already.

    :param known_as: what each is known by there, where we store them; None for plain messages.
    """
    assert to.to is not None
    queue = routes.places.full_address("", Place(to.to.target, to.to.table.table))
    headers = []
    for number, text in enumerate(rows["headers"].to_pylist()):
        if known_as is None and f'"{STORED_FOR}":' in text:
            headers.append(text)
            continue
        added = {STORED_FOR: to.stored_for or ""}
        if known_as is not None:
            added[STORED] = known_as[number]
        if f'"{FORWARD_DESTINATION}":' in text:
            added[FORWARD_DESTINATION] = queue
        headers.append(changed_headers(text, set(added), added))
    return replaced(rows, headers=pa.array(headers, pa.string()))


def in_tables(
    addressed: Iterable[Addressed], positions: Sequence[int]
) -> Iterator[tuple[Addressed, Sequence[int]]]:
    """These messages by table. All senders keep one order of tables, so that they never wait in a circle."""
    wanted = set(positions)
    whole = sum(len(each.positions) for each in addressed) == len(wanted)
    reached = [(each.to.table.address, each) for each in addressed if each.to]
    for _, each in sorted(reached, key=lambda pair: pair[0]):
        its = each.positions if whole else [at for at in each.positions if at in wanted]
        if its:
            yield each, its
