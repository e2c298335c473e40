"""What other connectors call our options: people try the names that they know.

Sources: Spark's guide to its Kafka connector, to its JDBC data source, and Delta Lake's to streaming.
"""

from collections.abc import Collection

#: The option that a name means, by the name in lower case.
_OURS = {
    "subscribe": "queue",
    "topic": "queue",
    "dbtable": "queue",
    "table": "queue",
    "path": "queue",
    "kafka.bootstrap.servers": "url",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "maxfilespertrigger": "maxMessagesPerTrigger",
    "maxrowspertrigger": "maxMessagesPerTrigger",
    "minpartitions": "maxConcurrency",
    "maxpartitions": "maxConcurrency",
    "numpartitions": "maxConcurrency",
}
_OLDEST_FIRST = (
    "a stream takes the oldest row first, and rows that were received are deleted, so leave it out."
)
_ONE_QUEUE = "a stream reads one queue, which the option queue names."
#: What to do instead, where no option means the same.
_INSTEAD = {
    "startingoffsets": _OLDEST_FIRST,
    "startingtimestamp": _OLDEST_FIRST,
    "startingversion": _OLDEST_FIRST,
    "startingoffsetsbytimestamp": _OLDEST_FIRST,
    "endingoffsets": "to end with what is there now, use trigger(availableNow=True).",
    "failondataloss": "rows that others took are gone for good, so leave it out.",
    "subscribepattern": _ONE_QUEUE,
    "assign": _ONE_QUEUE,
    "query": _ONE_QUEUE,
    "driver": "the url names the driver of SQL Server, such as mssql://…?Driver=…; PostgreSQL needs none.",
}


def hint(name: str, known: Collection[str]) -> str | None:
    """What to write instead of a name that other connectors have; None for any other name.

    :param known: the names of the options that can be given.
    """
    ours = _OURS.get(name.lower())
    if ours in known:
        return f"here that is the option {ours}."
    return _INSTEAD.get(name.lower())
