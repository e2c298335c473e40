"""Names that a database would cut, and index names that carry the table's."""

import pytest

from sqlqueue_spark.engines.engine_of_url import POSTGRESQL, SQLSERVER
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.tables import scripts


@pytest.mark.parametrize(
    "dialect,name,fits",
    [
        (POSTGRESQL, "x" * 55, True),
        (POSTGRESQL, "x" * 56, False),
        (POSTGRESQL, "ü" * 27, True),
        (POSTGRESQL, "ü" * 28, False),
        (SQLSERVER, "ü" * 128, True),
        (SQLSERVER, "x" * 129, False),
        (SQLSERVER, "\U0001f4e6" * 64, True),
        (SQLSERVER, "\U0001f4e6" * 65, False),  # each is two characters there
    ],
)
def test_a_name_that_would_be_cut_is_refused(dialect, name, fits):
    if fits:
        assert scripts.create(dialect.name, [name], default_schema="s").count(dialect.quote(name)) >= 2
        return
    with pytest.raises(ConfigurationError, match="choose a shorter name"):
        scripts.create(dialect.name, [name], default_schema="s")
