"""What options of ``format("sqlqueue")`` may name on this machine: what was allowed, by default nothing.

``CREATE TEMPORARY VIEW … USING sqlqueue OPTIONS (…)`` lets a user who may only write SQL give any option. A
token provider is a function that we import and call; a url can name libraries to load, files to read and
write, and logins of this machine, all with the rights of Spark's driver and workers. SQL cannot change the
list of what is allowed, not by ``SET`` either: it is no configuration of Spark.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace

from sqlqueue_spark.engines.connect import Target, local_access
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions
from sqlqueue_spark.plain_text import holds_password, shell_word

#: In the environment of Spark's driver: the names that are allowed in all its sessions, between commas.
VARIABLE = "SQLQUEUE_ALLOWED"


def check(options: ConnectionOptions, allowed: Collection[str]) -> None:
    """Refuse options that name what was not allowed.

    :param allowed: what was allowed for the session, beside what the environment allows.
    :raises ConfigurationError: the text says what is named, and who may allow it; or a url cannot be read.
    """
    known = {*allowed, *(each.strip() for each in os.environ.get(VARIABLE, "").split(","))}
    for what, name in named(options):
        if name not in known:
            raise ConfigurationError(
                f"The {what} {_shown(name)!r} is code, a file or a login of this machine, which a user who "
                "may write SQL could name, so it must be allowed first: by sqlqueue_spark.register(spark, "
                f"allowed=[{_shown(name)!r}]), or for all sessions in the environment of Spark's driver "
                f"({VARIABLE}={shell_word(_shown(name))})."
            )


def named(options: ConnectionOptions) -> list[tuple[str, str]]:
    """What the options name of this machine: what each of these is, and its name."""
    target = Target.of(options)
    found = (
        []
        if options.access_token_provider is None
        else [("accessTokenProvider", options.access_token_provider)]
    )
    found += local_access(target)
    if isinstance(options, SinkOptions):
        for url in options.endpoint_urls.values():  # each holds a login of its own
            found += local_access(
                replace(target, url=url, password=None, access_token=None, access_token_provider=None)
            )
    return found


def _shown(name: str) -> str:
    return "…" if holds_password(name) else name
