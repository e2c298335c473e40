"""Settings of a Spark session that change what types and texts mean; nothing of ours may change by them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

SETTINGS = {
    "large types": {"spark.sql.execution.arrow.useLargeVarTypes": "true"},
    "timestamps without a zone": {
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.session.timeZone": "America/New_York",
    },
    "no ANSI": {"spark.sql.ansi.enabled": "false"},
    "case": {"spark.sql.caseSensitive": "true"},
    "one row a batch": {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"},
    "legacy times": {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
    "Python by Arrow": {
        "spark.sql.execution.pythonUDF.arrow.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    },
    "null fields in JSON": {"spark.sql.jsonGenerator.ignoreNullFields": "false"},
    "other literals": {
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.parser.quotedRegexColumnNames": "true",
    },
}


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Within the block a session has these settings; a query that is started in it keeps them."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def under_each_setting(tiers: Mapping[str, str]) -> pytest.MarkDecorator:
    """Runs a test with the argument ``setting`` under each of them; at night where no tier is given."""
    each = [pytest.param(name, marks=pytest.mark.tier(tiers.get(name, "nightly"))) for name in SETTINGS]
    return pytest.mark.parametrize("setting", each)
