"""Counts the rows after each insert: a trigger or a rule may swallow some and report no error."""

from sqlqueue_spark.errors import QueueError


class Swallowed(QueueError):
    """A table took fewer rows than were inserted, and reported no error. With 0 it may take none at all."""

    def __init__(self, text: str, *, took: int = 0) -> None:
        super().__init__(text)
        self.took = took


def check_went_in(took: int, wanted: int, table: object) -> int:
    """How many rows a table took, which is as many as it should have.

    :raises Swallowed: it is not. The transaction is to be rolled back, or the part of it that inserted.
    """
    if took != wanted:
        raise Swallowed(
            f"{table} took {took} of the {wanted} rows that were inserted into it, and reported no error: a "
            "trigger or a rule drops them; take it away, or let it raise an error.",
            took=took,
        )
    return took
