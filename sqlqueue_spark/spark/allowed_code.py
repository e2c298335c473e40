"""Which code the options of ``format("sqlqueue")`` may name: what was allowed for the session, and nothing by default.

``CREATE TEMPORARY VIEW … USING sqlqueue OPTIONS (…)`` lets whoever may only write SQL give any option. A token provider is a
function that we import and call, and a driver is a library that we load, with the rights of Spark's driver and workers. SQL sets no
list of what is allowed: not even by ``SET``, because the list is no configuration of Spark SQL.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from sqlqueue_spark.engines.dialects import SQLSERVER, dialect_of
from sqlqueue_spark.engines.sqlserver.odbc import OdbcString
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.plain_text import shell_word

#: In the environment of Spark's driver: the names that are allowed in all its sessions, between commas.
VARIABLE = "SQLQUEUE_ALLOWED"
#: Keywords of a connection string that name a file: a library, or a file that names one or that is written.
_FILES = ("filedsn", "savefile")


def check(options: ConnectionOptions, allowed: Collection[str]) -> None:
    """Refuse options that name code which nobody has allowed.

    :param allowed: what was allowed for the session, beside what the environment allows.
    :raises ConfigurationError: the text says what is named, and who may allow it.
    """
    known = {*allowed, *(each.strip() for each in os.environ.get(VARIABLE, "").split(","))}
    for what, name in _named(options):
        if name not in known:
            raise ConfigurationError(
                f"The {what} {name!r} is code, which whoever may write SQL could name, so it must be allowed first: by "
                f"sqlqueue_spark.register(spark, allowed=[{name!r}]), or for all sessions in the environment of Spark's driver "
                f"({VARIABLE}={shell_word(name)})."
            )


def _named(options: ConnectionOptions) -> Iterator[tuple[str, str]]:
    """What kind of code the options name, and which."""
    if options.access_token_provider is not None:
        yield "accessTokenProvider", options.access_token_provider
    urls = [options.url, *(options.endpoint_urls.values() if isinstance(options, SinkOptions) else ())]
    for url in urls:
        if dialect_of(url) is SQLSERVER:
            for keyword, value in OdbcString.of(url).parts:
                if keyword.lower() in _FILES or (
                    keyword.lower() == "driver" and ("/" in value or "\\" in value)
                ):
                    yield f"{keyword} of the url", value
