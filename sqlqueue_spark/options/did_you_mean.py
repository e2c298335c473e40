"""What to say to a name that is not known: what is called so elsewhere, or the nearest name that is known.

People try the names that other connectors have. Sources: Spark's guide to its Kafka connector, to its JDBC
data source, and Delta Lake's to streaming.
"""

import difflib
from collections.abc import Collection, Iterable

#: Our options, each with what other connectors call it, in lower case.
_ELSEWHERE = {
    "queue": ("subscribe", "topic", "dbtable", "table", "path"),
    "url": ("kafka.bootstrap.servers",),
    "maxMessagesPerTrigger": ("maxoffsetspertrigger", "maxfilespertrigger", "maxrowspertrigger"),
    "maxConcurrency": ("minpartitions", "maxpartitions", "numpartitions"),
}
_OLDEST_FIRST = (
    "a stream takes the oldest row first, and rows that were received are deleted, so leave it out."
)
#: What to do instead, where no option means the same.
_INSTEAD = {
    **dict.fromkeys(("startingoffsets", "startingoffsetsbytimestamp"), _OLDEST_FIRST),
    **dict.fromkeys(("startingtimestamp", "startingversion"), _OLDEST_FIRST),
    "endingoffsets": "to end with what is there now, use trigger(availableNow=True).",
    "failondataloss": "rows that others took are gone for good, so leave it out.",
    **dict.fromkeys(
        ("subscribepattern", "assign", "query"), "a stream reads one queue, which the option queue names."
    ),
    "driver": "the url names the driver of SQL Server, like mssql://…?Driver=…; PostgreSQL needs none.",
}


def hint(name: str, known: Collection[str]) -> str | None:
    """What to write instead of a name that other connectors have; None for any other name.

    :param known: the names of the options that can be given.
    """
    for ours, theirs in _ELSEWHERE.items():
        if name.lower() in theirs and ours in known:
            return f"here that is the option {ours}."
    return _INSTEAD.get(name.lower())


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The question whether the nearest known name is meant; ``otherwise`` where no known name is near."""
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"did you mean {lowered[near[0]]}?" if near else otherwise
