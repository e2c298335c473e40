"""What Spark puts among the options of a data source is none of ours; a path names the queue."""

import pytest

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.spark.datasource import OF_QUERIES, PATHS, own_options

NO_TABLE = (
    "Spark does not give the options of a table in its catalog to a data source in Python when the table is "
    "read or written; instead of CREATE TABLE write CREATE TEMPORARY VIEW … USING sqlqueue OPTIONS "
    "(url '…', queue '…')."
)
GIVEN = {"url": "postgresql://host/db"}


@pytest.mark.parametrize("name", OF_QUERIES)
@pytest.mark.parametrize("written", [str, str.lower, str.upper])
def test_what_spark_is_told_of_a_query_is_left_out(name, written):
    assert own_options({**GIVEN, written(name): "x"}) == GIVEN


@pytest.mark.parametrize("name,ours,value", [("path", "queue", "orders"), ("paths", "queues", '["a","b"]')])
def test_a_path_names_the_queue(name, ours, value):
    assert PATHS[name] == ours
    assert own_options({**GIVEN, name: value}) == {**GIVEN, ours: value}
    assert own_options({**GIVEN, name.upper(): value, ours.upper(): value}) == {**GIVEN, ours.upper(): value}
    with pytest.raises(ConfigurationError) as caught:
        own_options({**GIVEN, name: value, ours: "c"})
    assert str(caught.value) == (
        f"Both {value!r}, the path that is loaded or written, and the option {ours} ('c') name the queue; "
        "drop one."
    )


@pytest.mark.parametrize(
    "given",
    [
        {"path": "postgresql://me:hunter2@x/y", "queue": "orders"},
        {"path": "orders", "queue": "postgresql://me:hunter2@x/y"},
        {"postgresql://me:hunter2@x/y": "orders"},
    ],
)
def test_a_url_in_the_wrong_place_is_not_repeated(given):
    with pytest.raises(ConfigurationError, match=r"'\*\*\*'") as caught:
        SourceOptions.parse(own_options({**GIVEN, **given}))
    assert "hunter2" not in str(caught.value)


def test_a_table_of_sparks_catalog_is_refused_where_spark_creates_it():
    """These are the options of CREATE TABLE … USING sqlqueue OPTIONS (url …)."""
    created = {**GIVEN, "option.url": GIVEN["url"], "owner": "root", "provider": "sqlqueue"}
    with pytest.raises(ConfigurationError) as caught:
        own_options(created)
    assert str(caught.value) == NO_TABLE


@pytest.mark.parametrize("sparks", [{}, {"queryName": "x", "checkpointLocation": "y"}])
def test_and_where_it_is_read_or_written_without_an_option(sparks):
    """Created with its columns it is unknown to us until then."""
    with pytest.raises(ConfigurationError) as caught:
        own_options(sparks)
    assert str(caught.value) == f"No option is given, and url and queue are needed. {NO_TABLE}"
