"""Completes the options that source and sink share, and refuses those that contradict each other."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ATOMIC, ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.options.fields import camel, said
from sqlqueue_spark.pipeline.running.configuration import configuration
from sqlqueue_spark.receive.claiming.queue_list import of_pattern
from sqlqueue_spark.send.compose.database_of_address import Place, Places

#: One of source and sink may say these for both.
_SHARED = ("transactionMode", "stream", "allowedDestinations")
#: The sink takes these from the source where it names no database of its own.
DATABASE = ("url", "defaultSchema", "legacyAddresses", "lockTimeout", "commandTimeout")
LOGIN = ("user", "password", "accessToken", "accessTokenProvider")
#: By these both know where an address leads. In another database schemas are others; urls hold for both.
_OF_ONE_NAME = re.compile(r"(?:queue|endpoint)\..+\.(schema|url)", re.IGNORECASE | re.DOTALL)
_OF_A_DATABASE = {name.lower() for name in (*DATABASE, *LOGIN)}


def agreed(source: Mapping[str, str], sink: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of source and sink, each completed by what only the other one says.

    A sink without a ``url`` of its own is in the source's database, with its login unless it has one.

    :raises ConfigurationError: source and sink contradict each other, or one of them is wrong in itself.
    """
    here, there = dict(source), dict(sink)
    for name in _SHARED:
        _take(here, there, name)
        _take(there, here, name)
    named = {each: match[1].lower() for each in (*here, *there) if (match := _OF_ONE_NAME.fullmatch(each))}
    if one := said(there, "url") in (None, said(here, "url")):
        login = LOGIN if all(said(there, name) is None for name in LOGIN) else ()
        for name in (*DATABASE, *login, *named):
            _take(there, here, name)
    for name in [each for each, what in named.items() if one or what == "url"]:
        _take(here, there, name)
    _check(SourceOptions.parse(here), SinkOptions.parse(there))
    return here, there


#: Options of the sink for what stays or fails. They hold in the database of the queue.
_AT_HOME = frozenset({"queue", "errorqueue", "auditqueue", "delayedendpoint", "storeandforward"})


def sides(source: Mapping[str, str], sink: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The sink's options for the database of the queue, and those for the database of ``sink.url``.

    Options that say where a database is, how to log in, or how its queues are named hold for one of them.
    """
    here = {name: value for name, value in source.items() if _names_a_place(name)}
    both = {name: value for name, value in sink.items() if not _names_a_place(name)}
    there = {name: value for name, value in sink.items() if name.lower() not in _AT_HOME}
    return {**here, **both}, there


def places_of(source: Mapping[str, str], sink: Mapping[str, str]) -> Places:
    """Where a job sends to whose options are :func:`agreed`. Errors as of :func:`check_ends`."""
    own, there = SourceOptions.parse(source), SinkOptions.parse(sink)
    home = there if own.url == there.url else SinkOptions.parse(sides(source, sink)[0])
    places = Places(home, there)
    check_ends(own, places)
    return places


def of_file(config: Path, options: ConnectionOptions | None) -> tuple[str | None, Places]:
    """The queue of a job with this file, and where it sends to; other options may lead to its queue."""
    login = ("url", "user", "password", "access_token_provider")
    given = {f"source.{camel(each)}": getattr(options, each, None) for each in login}
    given |= {f"sink.{each}": os.environ.get(f"SQLQUEUE_SINK_{each.upper()}") for each in ("url", "password")}
    sections = configuration(("source", "sink", "forward", "handle", "store-and-forward"), config, (), given)
    source, sink = agreed(sections["source"], sections["sink"])
    return SourceOptions.parse(source).queue, places_of(source, sink)


def _names_a_place(name: str) -> bool:
    lowered = name.lower()
    return lowered in _OF_A_DATABASE or lowered.startswith(("queue.", "endpoint."))


def _check(source: SourceOptions, sink: SinkOptions) -> None:
    for name in ("transaction_mode", "stream"):
        ours, theirs = getattr(source, name), getattr(sink, name)
        if ours != theirs:
            raise ConfigurationError(
                f"The option {camel(name)} is {ours!r} at the source and {theirs!r} at the sink; say it "
                "once, or the same."
            )
    for name in ("url", "default_schema") if source.transaction_mode == ATOMIC else ():
        if getattr(source, name) != getattr(sink, name):  # the text hides the values: they may hold a secret
            raise ConfigurationError(
                f"The option {camel(name)} differs between source and sink, but sendsAtomicWithReceive sends "
                "in the source's own transaction and so to its database alone; leave it out at the sink, or "
                "take receiveOnly with an outbox."
            )


def check_ends(source: SourceOptions, places: Places) -> None:
    """:raises ConfigurationError: a place leads back into a queue of the source; it says which option."""
    naming, pattern = source.naming(places.at_home.dialect), source.queue_pattern
    named = [naming.table(each) for each in (source.queues if source.queue is None else (source.queue,))]

    def leads_back(place: Place) -> bool:
        target, table = place
        if target != places.at_home or pattern is None:
            return target == places.at_home and table in named
        return table.schema == naming.default_schema and bool(of_pattern(pattern, (table.table,)))

    to = places.away.queue
    if to is not None and leads_back(place := places.destination(to)):
        raise ConfigurationError(
            f"Source and sink are the same queue {place.table}, so its messages would go round for ever, or "
            "be dropped as sent before; name another queue for the sink."
        )
    stored = places.home.store_and_forward if source.transaction_mode == ATOMIC else None  # it stays there
    ends = {"errorQueue": places.home.error_queue, "auditQueue": places.home.audit_queue}
    local = places.home.queue if to is None else None  # what does not go to another database goes there
    for name, queue in {**ends, "storeAndForward": stored, "localQueue": local}.items():
        if queue is not None and leads_back(place := places.beside(queue)):
            raise ConfigurationError(
                f"The option {name} names the queue of the source, {place.table}, so what goes "
                "there would be received again, for ever; name another queue."
            )


def _take(options: dict[str, str], others: Mapping[str, str], name: str) -> None:
    if said(options, name) is None and (value := said(others, name)) is not None:
        options[name] = value
