"""Names that a database would cut, and index names that carry the table's."""

import pytest

from sqlqueue_spark import schema
from sqlqueue_spark.addresses import Table
from sqlqueue_spark.dialects import POSTGRESQL, SQLSERVER
from sqlqueue_spark.errors import ConfigurationError


@pytest.mark.parametrize(
    "dialect,name,fits",
    [
        (POSTGRESQL, "x" * 55, True),
        (POSTGRESQL, "x" * 56, False),
        (POSTGRESQL, "ü" * 27, True),
        (POSTGRESQL, "ü" * 28, False),
        (SQLSERVER, "ü" * 128, True),
        (SQLSERVER, "x" * 129, False),
    ],
)
def test_a_table_name_is_refused_before_the_database_cuts_it(dialect, name, fits):
    table = Table(table=name, schema="s")
    if fits:
        assert schema.script(dialect, [table]).count(dialect.quote(name)) >= 2
        return
    with pytest.raises(ConfigurationError, match="choose a shorter name"):
        schema.script(dialect, [table])
