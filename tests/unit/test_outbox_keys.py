"""By what an outbox knows a send: one key for each message id and final address,
whatever the id looks like.
"""

import itertools

import pyarrow as pa
import pytest

from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.tables.outbox_keys import earlier_keys, keys
from sqlqueue_spark.tables.queue_table import QueueTable

PLAIN = "10000000-0000-4000-8000-00000000002a"


def of(*ids, address="orders@[public]"):
    return keys(pa.array(ids, pa.string()), address).to_pylist()


def table(catalog, foreign):
    return QueueTable(
        table=Table(table="orders", schema="dbo", catalog=catalog), name=f"orders@[dbo]@[{catalog}]",
        object_id=1, identity="1", columns=(), database=catalog, foreign=foreign,
    )  # fmt: skip


def test_a_key_is_for_good():
    """Another one for the same message would send it again:
    code with a new form must know the former one too.
    """
    assert of(PLAIN, "Order 42", "a\0b") == [
        f"{PLAIN}>4qblcojrfl",
        "Order42>b11d872a91e378ac11dd075af737a713",
        "ab>09decc07bb7b9b08de5be9bd052e2c97",
    ]
    assert of(PLAIN, address="Billing@[public]") == [f"{PLAIN}>ubjc5g0ce0"]


#: What some collation or other takes for the same: case, accents, width, composition, blanks, signs, and
#: letters of the Baltic and the Nordic countries.
ALIKE = ["order", "Order", "ORDER", "órder", "o\u0301rder", "\uff4frder", "order ", " order", "or-der",
         "or\u200bder", "order\0", "\0order", "i", "y", "v", "w", "ß", "ss", "a" * 250, "a" * 251, "A" * 250,
         "a", "A", "", "\0"]  # fmt: skip


def test_ids_alike_to_a_collation_stay_apart():
    found = of(*ALIKE)
    folded = {each.casefold() for each in found}
    assert len(folded) == len(ALIKE)
    digests = [each.rpartition(">")[2] for each in found]
    assert {len(each) for each in digests} == {10, 32}
    assert all(set(each) <= set("0123456789abcdefghijklmnopqrstuv") for each in digests)


@pytest.mark.parametrize("length", [1, 36, 188, 189, 190, 200, 201, 10_000])
@pytest.mark.parametrize("letter", ["a", "Z", "\0", "é", "注", "\N{GRINNING FACE}"])
def test_a_key_fits_whatever_the_id(letter, length):
    (key,) = of(letter * length)
    assert 10 < len(key) <= 200
    assert key.isascii()
    assert key.isprintable()


def test_a_key_says_what_the_id_is_as_far_as_it_can():
    assert [each.partition(">")[0] for each in of("a" * 190, "Größe 7", "f" * 189)] == [
        "a" * 167,
        "Gre7",
        "f" * 189,
    ]


def test_keys_come_in_the_order_of_their_ids():
    """Whatever form they have."""
    ids = [PLAIN, "Order", "a-1", "b", "", "c"]
    assert of(*ids) == [key for each in ids for key in of(each)]
    assert of() == []


def test_one_id_has_a_key_for_each_address():
    addresses = ["orders@[public]", "orders@[dbo]", "Orders@[dbo]", "orders@[dbo]@[shop]"]
    found = [of(each, address=address)[0] for each, address in itertools.product((PLAIN, "Order"), addresses)]
    assert len(set(found)) == 8


def test_an_address_leaves_out_the_own_catalog():
    """That of the connection's own database."""
    assert [table("shop", None).address, table("bill", "Bill").address] == [
        "orders@[dbo]",
        "orders@[dbo]@[Bill]",
    ]


def test_version_0_1_has_no_keys_for_odd_ids():
    """It could not send these messages."""
    for odd in ("a\0b", "x" * 201, "\N{GRINNING FACE}" * 101, ""):
        assert list(earlier_keys(odd, "orders@[public]@[shop]", own=True)) == []
