"""Headers of one hop are taken out of columns of JSON as they are out of one JSON, wherever they stand."""

from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue_spark.messages.header_json import format_headers, parse_headers, without_headers
from sqlqueue_spark.messages.message import ONE_HOP
from sqlqueue_spark.send.compose import header_shapes
from sqlqueue_spark.send.compose.header_shapes import _HOPS, alike, asked_column

NAMES = ["NServiceBus.MessageId", "a", "b", ",", "$.store-and-forward", *sorted(ONE_HOP)]
#: What could be taken for the place where a header begins or ends.
VALUES = st.one_of(
    st.sampled_from(['","', '",', ',"', '":"', "/", "x", *(f'","{name}":"' for name in NAMES)]),
    st.text(st.sampled_from('a",:/\\{}é'), max_size=6),
    st.just(""),
)
ROWS = st.lists(st.permutations(NAMES), min_size=1, max_size=3).flatmap(
    lambda orders: st.lists(
        st.tuples(
            st.sampled_from(orders), st.integers(0, len(NAMES)), st.lists(VALUES, min_size=9, max_size=99)
        ),
        min_size=1,
        max_size=12,
    )
)


@given(ROWS)
def test_the_headers_of_a_hop_are_taken_out_wherever_they_stand_and_whatever_values_hold(rows):
    texts = [format_headers(dict(zip(order[:count], values, strict=False))) for order, count, values in rows]
    found = {}
    for group in alike(pa.array(texts, pa.string()), received=True):
        for number, at in enumerate(group.positions.to_pylist()):
            hops = {name: group.asked[name][number].as_py() for name in _HOPS if name in group.asked}
            found[at] = (
                group.texts[number].as_py(),
                {name: value for name, value in hops.items() if value is not None},
            )
    assert found == {at: wanted(text) for at, text in enumerate(texts)}


def wanted(text):
    headers = parse_headers(text) or {}
    lost = ONE_HOP | ({"NServiceBus.MessageId"} if headers.get("NServiceBus.MessageId") == "" else set())
    return without_headers(text, lost), {name: headers[name] for name in _HOPS if name in headers}


@pytest.mark.parametrize("hop", _HOPS)
def test_a_text_of_hops_alone_is_an_empty_object(hop):
    (group,) = alike(pa.array([f'{{"{hop}":"a"}}', f'{{"{hop}":"b"}}']), received=True)
    assert (group.texts.to_pylist(), group.bare) == (["{}", "{}"], True)
    assert group.asked[hop].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("kind", [pa.null(), pa.string(), pa.map_(pa.string(), pa.string())])
@pytest.mark.parametrize("received", [True, False])
def test_rows_without_headers_are_a_group_of_which_no_row_is_parsed_by_itself(kind, received):
    with mock.patch.object(header_shapes, "_parsed", return_value=[]) as parsed:
        (group,) = alike(pa.nulls(3, kind), received=received)
    parsed.assert_called_once_with([], received, ONE_HOP)
    assert (group.positions.to_pylist(), group.texts.to_pylist()) == ([0, 1, 2], ["{}"] * 3)
    assert (group.names, group.bare, group.asked, group.poison) == (frozenset(), True, {}, False)


def test_rows_without_headers_stand_at_their_places_among_others():
    first, second = alike(pa.array([None, '{"a":"b"}', None, '{"a":"c"}']), received=True)
    assert (first.positions.to_pylist(), first.texts.to_pylist()) == ([0, 2], ["{}", "{}"])
    assert (second.positions.to_pylist(), second.texts.to_pylist()) == ([1, 3], ['{"a":"b"}', '{"a":"c"}'])


@pytest.mark.parametrize("more", [{}, {"z": '","z":"'}])
def test_a_header_is_read_where_it_is_wanted_however_it_is_written(more):
    name, values = (
        "NServiceBus.TimeToBeReceived",
        ["00:10:00", 'a/",', "\N{LATIN SMALL LETTER E WITH ACUTE}", ""],
    )
    texts = [format_headers({"a": f'"{name}":"', name: value, **more}) for value in values]
    others = ["{}", '{"NServiceBus.MessageId":"a"}', "poison", None]
    groups = alike(pa.array([*texts, *others]), received=True)
    assert asked_column(name, groups).to_pylist() == [*values[:3], *[None] * 5]
