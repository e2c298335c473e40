"""A choice of messages of a queue: by their type, their id and their headers."""

from dataclasses import dataclass

from sqlqueue_spark.messages.header_json import parse_headers
from sqlqueue_spark.messages.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, type_names


@dataclass(frozen=True, kw_only=True)
class MessageSelection:
    """The messages that fit all that is given. With headers that cannot be read, only the Id of a row counts.

    :ivar types: one of these types, by the full name or the part behind its last dot; base types count, too.
    :ivar ids: one of these ids: the message's, or the row's.
    :ivar headers: all these headers; with None as value any value will do.
    """

    types: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    headers: tuple[tuple[str, str | None], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.types or self.ids or self.headers)

    def fits(self, row_id: str, headers: str | None) -> bool:
        """Whether a row is meant.

        :param headers: the JSON as stored.
        """
        if not self:
            return True
        read = parse_headers(headers) or {}
        ids = (row_id, row_id.upper(), read.get(MESSAGE_ID) or row_id)
        names = type_names(read.get(ENCLOSED_MESSAGE_TYPES, "")) if self.types else ()
        types = {*names, *(name.rpartition(".")[2] for name in names)}
        return (
            (not self.ids or not self.ids.isdisjoint(ids))
            and (not self.types or not self.types.isdisjoint(types))
            and all(name in read and value in (None, read[name]) for name, value in self.headers)
        )
