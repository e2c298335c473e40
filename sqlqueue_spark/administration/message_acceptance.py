"""Which messages a table takes as they stand, so that one it would refuse is known before any is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sqlqueue_spark.administration.message_lines import NoMessage, StoredMessage
from sqlqueue_spark.engines.registry import Dialect
from sqlqueue_spark.tables.queue_admin import QueueAdmin

#: Letters that fit into the columns CorrelationId and ReplyToAddress.
_COLUMN_LETTERS = 255


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What a table takes.

    :ivar columns: its columns, and those of them that may be NULL, in lower case.
    :ivar stopping: whether a row is taken at which a .NET endpoint stops.
    """

    dialect: Dialect
    columns: frozenset[str]
    nullable: frozenset[str]
    stopping: bool

    @classmethod
    def of(cls, admin: QueueAdmin, *, stopping: bool) -> Self:
        return cls(
            dialect=admin.connection.dialect,
            columns=frozenset(each.name.lower() for each in admin.columns),
            nullable=frozenset(each.name.lower() for each in admin.columns if each.nullable),
            stopping=stopping,
        )

    def check(self, message: StoredMessage) -> None:
        """Refuse a message that the table does not take.

        :raises NoMessage: why not.
        """
        if message.headers is None and "headers" not in self.nullable:
            raise NoMessage("it has no headers (NULL), and the table takes no such row")
        if message.body is None and "body" not in self.nullable:
            raise NoMessage("it has no body (NULL), and the table takes no such row")
        if self.dialect.null_body_stops and not self.stopping:
            self._check_goes_on(message)
        for name, text in (("correlationId", message.correlation_id), ("replyToAddress", message.reply_to)):
            if name.lower() in self.columns and text is not None and len(text) > _COLUMN_LETTERS:
                raise NoMessage(
                    f"{name} has {len(text):,} characters, and its column takes {_COLUMN_LETTERS}"
                )
        if not self.dialect.keeps_nul and "\0" in (message.headers or ""):
            raise NoMessage(f"its headers hold the character NUL, which {self.dialect.title} cannot keep")

    def _check_goes_on(self, message: StoredMessage) -> None:
        """Refuse a message at which .NET endpoints stop, until somebody deletes its row."""
        if message.body is None:
            raise NoMessage(
                "it has no body (NULL), at which .NET endpoints stop; make it an empty one, or have it sent all the same with --stopping"
            )
        if (message.headers or "").strip() == "null":
            raise NoMessage(
                "its headers are the JSON null, at which .NET endpoints stop; make them {}, or have it sent all the same with --stopping"
            )
