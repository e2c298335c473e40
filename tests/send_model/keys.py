"""What rows are known by, and which rows the protocol makes of others."""

from tests.send_model.configuration import Configuration
from tests.send_model.rules import Rules
from tests.send_model.world import HOME, Header, Key, Row, Try, World


class Keys:
    """Keys in outboxes, ids of messages, and new rows."""

    def __init__(self, configuration: Configuration, rules: Rules) -> None:
        self.configuration, self.rules = configuration, rules

    def origin(self, row: Row) -> tuple[str, int]:
        """What a received row is known by: its first origin, and how often it was moved since."""
        header = row.header
        if header is None or not self.rules.origin_header:
            return row.row_id, 0
        if self.rules.header_names_row and header.row_id != row.row_id:
            return row.row_id, 0
        return header.origin, header.moves if self.rules.count_moves else 0

    def origin_key(self, row: Row) -> Key:
        return ("origin", *self.origin(row))

    @staticmethod
    def id_key(row: Row) -> Key:
        return ("id", row.id)

    def send_key(self, row: Row, table: str) -> Key:
        if row.failed_as and self.rules.failed_by_origin:
            return ("send", *row.failed_as, table)
        return ("send", row.id, table if self.rules.key_names_place else "")

    def base(self, row: Row) -> str:
        """What the ids are made of of the messages that a function sends."""
        origin, moves = self.origin(row)
        return origin if self.rules.ids_without_moves else f"{origin}.{moves}"

    def ours(self, row: Row) -> Header | None:
        """The header of an error row or of a message of ours, made of a received row."""
        return None if self.rules.header_ends else row.header

    def child(self, world: World, run: Try, at: int) -> Row:
        """What a function sends. What leads to another database is stored in the queue."""
        id_, (database, table) = f"{self.base(run.row)}/{at}", run.to[at]
        if table == "queue":  # to its own queue, with all headers of the message that it handles
            return Row(table, id_, id_, "handle", row_id=id_, header=self.ours(run.row), answer=run.answer)
        if database == HOME:
            return Row(table, id_, id_, "sent", answer=run.answer)
        return self.stored(world, Row(table, id_, id_, "sent", answer=run.answer), id_)

    @staticmethod
    def stored(world: World, row: Row, row_id: str) -> Row:
        """The row in our own queue that takes a message to another database."""
        new = row._replace(table="queue", kind="stored", to=(row.table,), row_id=f"{row_id}#{world.era}")
        return new._replace(header=None)

    def moved(self, world: World, row: Row) -> Row:
        """The row with which a received row waits in the delayed table; it names its Id in the queue."""
        origin, moves = self.origin(row)
        row_id = f"{row.row_id}+{world.era}"
        new = row._replace(table="delayed", row_id=row_id, hop=row.hop + 1, overdue=False)
        return new._replace(header=Header(origin, moves + 1, row_id))

    def result(self, world: World, row: Row, table: str) -> Row:
        """The acknowledgement or audit copy of a received row, as it leaves home's transaction."""
        sent = Row(table, row.id, row.root, "sent")
        return self._leaving(world, row, sent)

    def failed(self, world: World, row: Row) -> Row:
        """The row with which a message goes to error, as it leaves home's transaction."""
        was = ("pass" if row.kind in ("stored", "plain") else row.kind, row.to)
        error = row._replace(
            table="error", kind="failed", to=(), row_id="", header=self.ours(row), owes=False, was=was
        )
        return self._leaving(world, row, error._replace(hop=row.hop + 1, overdue=False))

    def refused_copy(self, world: World, row: Row, table: str) -> Row:
        """The error row of one copy of an event: it names that destination alone."""
        return self.failed(world, row._replace(root=f"{row.root}>{table}", to=(table,)))

    def _leaving(self, world: World, row: Row, sent: Row) -> Row:
        if world.place(sent.table) == HOME:
            return sent
        known_as = ("result", *self.origin(row), sent.root)
        row_id = f"{row.root}+{row.hop}>{sent.root}>{sent.table}"
        return self.stored(world, sent._replace(failed_as=known_as), row_id)

    @staticmethod
    def arrived(row: Row, table: str) -> Row:
        """A row that was passed on, at its destination."""
        if table == "error":
            return row._replace(
                table=table, kind="failed", to=(), row_id="", header=None, failed_as=(), overdue=False
            )
        return Row(table, row.id, row.root, "sent", answer=row.answer)
