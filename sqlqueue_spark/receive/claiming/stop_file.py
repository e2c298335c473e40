"""The option ``stopFile``: while that file exists on the driver, a stream claims no new rows."""

from __future__ import annotations

from pathlib import Path

from sqlqueue_spark.options import SourceOptions


def asks_to_stop(options: SourceOptions) -> bool:
    """Whether the file is there now."""
    return options.stop_file is not None and Path(options.stop_file).exists()
