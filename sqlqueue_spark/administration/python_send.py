"""``sqlqueue_spark.send``: sends messages from a Python program, as the command ``sqlqueue send`` does."""

import os
from collections.abc import Mapping
from datetime import timedelta

from sqlqueue_spark.administration.queue_tables import Draft, send_bodies
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.outgoing import body_of
from sqlqueue_spark.options import ConnectionOptions
from sqlqueue_spark.options.environment import URL, check_url, with_password
from sqlqueue_spark.options.fields import duration_of, written


def send(
    queue: str,
    *bodies: object,
    type: str | None = None,  # noqa: A002 -- as a message of a handler has it
    headers: Mapping[str, str] | None = None,
    ttl: str | timedelta | None = None,
    **options: object,
) -> list[str]:
    """Send a message for each body, all in one transaction; return the message ids. It needs no Spark::

        sqlqueue_spark.send("orders", {"order": 1}, type="Sales.OrderPlaced", url="postgresql://…")

    Standard headers are filled in. There is no outbox: a call that is repeated sends again.

    :param bodies: bytes and text as they are, anything else as JSON; without one, the body is empty.
    :param type: the type of the messages.
    :param headers: further headers; the headers that are filled in do not replace them.
    :param ttl: how long the messages may wait to be received, like ``10m``.
    :param options: those of the connection, by their names; ``url`` is ``SQLQUEUE_URL`` by default.
    :raises ConfigurationError: a value is wrong. Nothing was sent.
    """
    given = {"url": os.environ.get(URL), **options}
    named = {name: written(value) for name, value in given.items() if value is not None}
    for name, value in (headers or {}).items():
        if not isinstance(value, str):
            raise ConfigurationError(f"The header {name!r} is {value!r}; give it a text.")
    lasts = None if ttl is None else duration_of("ttl", ttl)
    draft = Draft(message_type=type, headers=headers or {}, ttl=lasts)
    check_url(named)
    connection = ConnectionOptions.parse(with_password(named))
    return send_bodies(connection, queue, draft, [body_of(each) for each in bodies or [b""]])
