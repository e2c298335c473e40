"""What goes out in one transaction: at most 4,000 messages, and not too many bytes."""

import itertools

from sqlqueue_spark.outgoing import Outgoing
from sqlqueue_spark.send.chunking import chunks
from sqlqueue_spark.send.composing import Composed


def message(id, *, headers="{}", body=None, destination="Billing"):
    row = Outgoing(bytes(16), headers, body)
    return Composed(id, destination, len(headers) + len(body or b""), lambda: row)


def test_nothing_makes_no_chunk():
    assert list(chunks([])) == []


def test_a_chunk_has_4000_messages_in_their_order():
    messages = [message(str(number)) for number in range(9_001)]
    made = list(chunks(iter(messages)))
    assert [len(chunk) for chunk in made] == [4_000, 4_000, 1_001]
    assert list(itertools.chain(*made)) == messages


def test_a_chunk_has_fewer_where_one_statement_takes_fewer():
    messages = [message(str(number)) for number in range(5_000)]
    assert [len(chunk) for chunk in chunks(messages, 2_400)] == [2_400, 2_400, 200]
    assert [len(chunk) for chunk in chunks(messages, 20_000)] == [4_000, 1_000]


def test_a_chunk_has_16_mb_of_headers_and_bodies():
    megabyte = 1 << 20
    big = [message(str(number), headers=" " * megabyte, body=bytes(megabyte)) for number in range(9)]
    assert [len(chunk) for chunk in chunks(big)] == [8, 1]
    huge = [message("a", body=bytes(17 * megabyte)), message("b", body=bytes(17 * megabyte)), message("c")]
    assert [[each.message_id for each in chunk] for chunk in chunks(huge)] == [["a"], ["b"], ["c"]]


def test_nothing_is_read_before_it_is_needed():
    """The messages of a task may be many: they are composed a chunk at a time."""
    read = []

    def messages():
        for number in range(20_000):
            read.append(number)
            yield message(str(number))

    made = chunks(messages())
    assert len(next(made)) == 4_000
    assert len(read) < 5_000
