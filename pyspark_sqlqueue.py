"""Makes ``format("sqlqueue")`` known to Spark, which imports modules named ``pyspark_*`` for their
DefaultSource.

An error here would break the look-up of every Python data source. So where the package cannot be imported,
a warning says why, and DefaultSource is one that refuses with the same sentence.
"""

import contextlib
import sys
import warnings

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]

try:
    from sqlqueue_spark.spark.datasource import SqlQueueDataSource as DefaultSource
except Exception as error:  # noqa: BLE001 -- whatever it is
    _WHY = (
        f'There is no format("sqlqueue"), for {sys.executable} cannot import sqlqueue_spark '
        f"({type(error).__name__}: {error}); sqlqueue doctor says what to install."
    )

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """Stands for the data source that cannot be imported."""

        def __init__(self, options: object) -> None:  # noqa: ARG002 -- Spark's name
            raise RuntimeError(_WHY)

        @classmethod
        def name(cls) -> str:
            return "sqlqueue"

    with contextlib.suppress(Warning):  # where warnings are errors
        warnings.warn(_WHY, stacklevel=1)
