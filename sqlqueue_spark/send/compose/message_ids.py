"""The id by which each message is known, and the Id of the row that it becomes."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from sqlqueue_spark.messages.arrow import pc
from sqlqueue_spark.messages.message import MESSAGE_ID
from sqlqueue_spark.messages.outgoing import new_id_texts, new_row_ids
from sqlqueue_spark.send.compose.column_values import mapped, refuse
from sqlqueue_spark.send.compose.header_shapes import Alike, asked_column

#: Makes the ids of the messages at some positions, in their order.
NewIds = Callable[[Sequence[int]], pa.Array]

_UUID = r"\A[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\z"


def message_ids(own: pa.Array, groups: Sequence[Alike], received: pa.Array) -> pa.Array:
    """The message id of each row: of the column, of the header, else the received row's Id; NULL for none.

    :raises Unsendable: column and header differ.
    """
    header = asked_column(MESSAGE_ID, groups)
    refuse(
        pc.not_equal(own, header),
        lambda at: (
            f"A row has the MessageId {own[at].as_py()!r:.200} and the header {MESSAGE_ID} "
            f"{header[at].as_py()!r:.200}, and its outbox can only know it by one of them; drop the column, "
            "or take the header out of Headers where this is a new message."
        ),
    )
    return pc.coalesce(own, header, received)


def completed(ids: pa.Array, new_ids: NewIds | None, *, needed: bool) -> pa.Array:
    """The message ids, with a new one for each row that has none.

    :param needed: whether an outbox goes by them.
    :raises Unsendable: nothing makes ids, and an outbox needs them.
    """
    lacking = ids.is_null()
    if new_ids is not None:
        return pc.replace_with_mask(ids, lacking, new_ids(pc.indices_nonzero(lacking).to_pylist()))
    if needed:
        why = (
            f"A row has no message id, neither in the column MessageId nor in the header {MESSAGE_ID}, "
            "so an outbox cannot tell whether it was sent; make ids of key columns with "
            "functions.deterministic_id('order', 'line'), or set outbox to none."
        )
        refuse(lacking, lambda _: why)
    return pc.coalesce(ids, new_id_texts(len(ids)))


def ids_of_rows(given: pa.Array) -> pa.Array:
    """The Id of each row to send: its own, or a new one where it has none."""
    new = new_row_ids(len(given))
    if given.null_count == len(given):
        return new
    refuse(
        pc.invert(pc.match_substring_regex(given, _UUID)),
        lambda at: (
            f"The Id {given[at].as_py()!r:.200} of a row is no UUID; leave the column out (each row then "
            "gets a new one) and put ids of your own into MessageId."
        ),
    )
    return pc.coalesce(mapped(lambda text: bytes.fromhex(text.replace("-", "")), given, new.type), new)
