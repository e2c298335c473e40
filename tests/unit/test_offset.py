"""Offsets, as they stand in checkpoints: read back whole, refused when they are not ours."""

import base64
import json
import zlib

import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.receive.offset import INITIAL, Offset, next_serial
from sqlqueue_spark.row_set import RowSet

OFFSET = Offset(
    queue="orders@[dbo]@[shop]",
    identity="1042/2024-05-01T10:00:00",
    live=RowSet([(1, 3), (7, 7)]),
    expired=RowSet([(5, 5)]),
    witnesses={1: "00000000-0000-4000-8000-000000000001", 7: "00000000-0000-4000-8000-000000000007"},
)


def test_an_offset_is_json_that_people_can_read():
    assert OFFSET.to_json() == {
        "version": 1,
        "queue": "orders@[dbo]@[shop]",
        "table": "1042/2024-05-01T10:00:00",
        "rows": 4,
        "live": RowSet([(1, 3), (7, 7)]).encode(),
        "expired": RowSet([(5, 5)]).encode(),
        "witnesses": {
            "1": "00000000-0000-4000-8000-000000000001",
            "7": "00000000-0000-4000-8000-000000000007",
        },
    }


@pytest.mark.parametrize("expired", [RowSet(), RowSet([(5, 5)]), RowSet([(100, 200)])], ids=repr)
def test_an_offset_survives_the_log(expired):
    offset = Offset(
        queue=OFFSET.queue,
        identity=OFFSET.identity,
        live=OFFSET.live,
        expired=expired,
        witnesses=OFFSET.witnesses,
    )
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_an_offset_of_another_mode_says_so():
    """And it survives the log."""
    offset = Offset(
        queue=OFFSET.queue,
        identity=OFFSET.identity,
        live=OFFSET.live,
        expired=RowSet(),
    ).saying(mode="none", serial=17)
    written = offset.to_json()
    assert (written["mode"], written["serial"], written["witnesses"]) == ("none", 17, {})
    assert Offset.from_json(json.loads(json.dumps(written))) == offset
    assert (offset.taken, OFFSET.taken) == (True, False)


def test_equal_offsets_have_equal_texts():
    again = Offset.from_json(OFFSET.to_json())
    assert again is not None
    assert json.dumps(again.to_json()) == json.dumps(OFFSET.to_json())


def test_an_offset_counts_all_that_was_claimed():
    assert OFFSET.claimed == 5


def test_an_offset_of_the_first_version_is_read():
    # A checkpoint outlives the process that wrote it: this text must be readable for ever.
    written = (
        '{"version": 1, "queue": "orders@[public]@[shop]", "table": "16384", "rows": 4, "live": '
        '"eJxjYuFgAAAAKAAP", "expired": "", "witnesses": {"1": "00000000-0000-4000-8000-000000000001"}}'
    )
    offset = Offset.from_json(json.loads(written))
    assert offset == Offset(
        queue="orders@[public]@[shop]",
        identity="16384",
        live=RowSet([(1, 3), (7, 7)]),
        expired=RowSet(),
        witnesses={1: "00000000-0000-4000-8000-000000000001"},
    )


def test_before_the_first_batch_there_is_no_offset():
    assert INITIAL == {"version": 1}
    assert Offset.from_json(INITIAL) is None


@pytest.mark.parametrize(
    "given",
    [{}, {"version": 2}, {"version": 2, "live": ""}, {"version": 3, "queues": []}, {"offset": 7}],
    ids=str,
)
def test_an_offset_that_is_not_ours_is_refused(given):
    with pytest.raises(ConfigurationError) as caught:
        Offset.from_json(given)
    assert str(caught.value) == (
        "The checkpoint holds an offset that this version of sqlqueue cannot read (version "
        f"{given.get('version')!r}, expected 1 or 2); use the version that wrote it, or a new checkpoint (a "
        "state that the query keeps is lost)."
    )


@pytest.mark.parametrize(
    "own",
    [{"serial": 3, "process": "5f1d"}, {"serial": 0}, {"mode": "receiveOnly"}, {"written": "later"}],
    ids=str,
)
def test_an_offset_keeps_the_text_it_was_read_from(own):
    """Spark compares texts. Another program may have packed the rows in another way, or said more."""
    packed = base64.b64encode(zlib.compress(zlib.decompress(base64.b64decode(OFFSET.live.encode())), 0))
    written = json.dumps({**own, **OFFSET.to_json(), "live": packed.decode()})
    offset = Offset.from_json(json.loads(written))
    assert offset is not None
    assert (json.dumps(offset.to_json()), offset.live) == (written, OFFSET.live)
    assert offset == Offset.from_json(json.loads(written))
    assert offset != OFFSET


def test_the_rows_of_an_offset_are_not_read_unasked():
    offset = Offset.from_json({**OFFSET.to_json(), "live": "not packed"})
    assert offset is not None
    assert (offset.empty, offset.serial, offset.saying(serial=next_serial(offset)).serial) == (False, 0, 1)


@pytest.mark.parametrize(
    "given",
    [
        *(None, 7, [7], {}, {"of": "another source"}, {"version": 2}, INITIAL),
        {**OFFSET.to_json(), "witnesses": None},
        {**OFFSET.to_json(), "witnesses": []},
        {**OFFSET.to_json(), "witnesses": {"x": "y"}},
    ],
    ids=str,
)
def test_what_is_no_offset_of_ours_may_be_stepped_over(given):
    assert Offset.if_ours(given) is None
    assert Offset.if_ours(OFFSET.to_json()) == OFFSET


# -- over several queues ---------------------------------------------------------------------------

BILLING = Offset(
    queue="billing@[dbo]@[shop]",
    identity="1043/2024-05-01T10:00:00",
    live=RowSet(),
    expired=RowSet([(2, 3)]),
    witnesses={2: "00000000-0000-4000-8000-000000000002"},
)
JOINT = Offset.joint_of([OFFSET, BILLING]).saying(
    mode="sendsAtomicWithReceive", serial=7, stage="Forward.Outgoing@[dbo]"
)


def test_an_offset_over_several_queues_names_the_part_of_each():
    """In the order of their names; what belongs to the batch stands in it once."""
    its = ("queue", "table", "rows", "live", "expired", "witnesses")
    assert JOINT.to_json() == {
        "version": 2,
        "mode": "sendsAtomicWithReceive",
        "stage": "Forward.Outgoing@[dbo]",
        "serial": 7,
        "queues": [
            {name: BILLING.to_json()[name] for name in its},
            {name: OFFSET.to_json()[name] for name in its},
        ],
    }


def test_an_offset_over_several_queues_survives_the_log():
    read = Offset.from_json(json.loads(json.dumps(JOINT.to_json())))
    assert read == JOINT
    assert read.joint
    assert [(part.queue, part.identity, part.live, part.expired, part.witnesses) for part in read.parts] == [
        (part.queue, part.identity, part.live, part.expired, part.witnesses) for part in (BILLING, OFFSET)
    ]
    assert {(part.mode, part.serial, part.stage) for part in read.parts} == {
        ("sendsAtomicWithReceive", 7, Table(table="Forward.Outgoing", schema="dbo"))
    }
    assert (read.claimed, read.empty, read.taken) == (7, False, False)


def test_the_same_rows_after_another_batch_have_another_offset():
    after = JOINT.saying(serial=next_serial(JOINT))
    assert after.joint
    assert (after.serial, after.parts[0].serial) == (8, 8)
    assert after != JOINT
    assert JOINT.saying(process="5f1d") != JOINT


def test_an_offset_of_no_rows_over_several_queues_is_empty():
    nothing = Offset.joint_of([]).saying(
        mode="sendsAtomicWithReceive", serial=1, stage="Forward.Outgoing@[dbo]"
    )
    assert (nothing.empty, nothing.claimed, nothing.parts) == (True, 0, ())
    assert Offset.from_json(nothing.to_json()) == nothing


def test_an_offset_of_one_queue_has_itself_as_its_only_part():
    assert OFFSET.parts == (OFFSET,)


def test_an_offset_over_ten_queues_of_a_million_rows_is_small():
    parts = [
        Offset(
            queue=f"Sales.Instance{number}@[dbo]@[shop]",
            identity="1042/2024-05-01T10:00:00",
            live=RowSet([(1, 100_000)]),
            expired=RowSet(),
            witnesses=dict.fromkeys(range(1, 7), "00000000-0000-4000-8000-000000000001"),
        )
        for number in range(10)
    ]
    assert len(json.dumps(Offset.joint_of(parts).saying(serial=1).to_json())) < 5_000
