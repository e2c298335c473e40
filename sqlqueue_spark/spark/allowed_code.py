"""What options of ``format("sqlqueue")`` may name on this machine: what was allowed, by default nothing.

``CREATE TEMPORARY VIEW … USING sqlqueue OPTIONS (…)`` lets a user who may only write SQL give any option. A
token provider is a function that we import and call; a url can name libraries to load, files to read and
write, and logins of this machine, all with the rights of Spark's driver and workers. What a url does not say
a driver takes from the machine, and that is switched off. SQL cannot change the list of what is allowed, not
by ``SET`` either: it is no configuration of Spark.
"""

import hashlib
import os
from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from sqlqueue_spark.engines.open_connection import Target, confined, local_access
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.plain_text import holds_password, shell_word

#: In the environment of Spark's driver: the names that are allowed in all its sessions, between commas.
VARIABLE = "SQLQUEUE_ALLOWED"

Given = TypeVar("Given", bound=ConnectionOptions)


def check(options: Given, allowed: Collection[str]) -> Given:
    """The options, with urls that lead to nothing on this machine that was not allowed.

    :param allowed: what was allowed for the session, beside what the environment allows.
    :raises ConfigurationError: the options name what was not allowed. The text says what, and who may allow
        it; or a url cannot be read.
    """
    if these(options) in allowed:
        return options
    known = {_folded(each.strip()) for each in [*allowed, *os.environ.get(VARIABLE, "").split(",")]}
    if (provider := options.access_token_provider) is not None:
        _check("accessTokenProvider", provider, known)
    target = Target.of(options)
    alone = replace(target, password=None, access_token=None, access_token_provider=None)
    urls = {  # each holds a login of its own
        name: _checked(replace(alone, url=url), known) for name, url in options.endpoint_urls.items()
    }
    return replace(options, url=_checked(target, known), endpoint_urls=urls)


def these(options: ConnectionOptions) -> str:
    """The name that allows all that these options lead to, and no other options: for those of a program."""
    urls = sorted(options.endpoint_urls.items())
    told = (options.url, options.user, options.access_token_provider, urls)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _checked(target: Target, known: Collection[str]) -> str:
    for what, name in local_access(target):
        _check(what, name, known)
    return confined(target, known)


def _check(what: str, name: str, known: Collection[str]) -> None:
    if _folded(name) not in known:
        raise ConfigurationError(
            f"The {what} {_shown(name)!r} is code, a file or a login of this machine, which a user who "
            "may write SQL could name, so it must be allowed first: by sqlqueue_spark.register(spark, "
            f"allowed=[{_shown(name)!r}]), or for all sessions in the environment of Spark's driver "
            f"({VARIABLE}={shell_word(_shown(name))})."
        )


def _folded(name: str) -> str:
    """A name as it is compared. A keyword is written in any case, and its value is not."""
    keyword, equals, value = name.partition("=")
    return f"{keyword.lower()}={value}" if equals else name


def _shown(name: str) -> str:
    keyword, _, value = name.partition("=")
    return f"{keyword}=…" if holds_password(value) or holds_password(f"server=;{name}") else name
