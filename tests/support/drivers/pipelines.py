"""Runs several streaming queries of one program, at once or one after the other."""

from collections.abc import Callable, Iterable
from datetime import timedelta

from pyspark.sql.streaming.query import StreamingQuery

from tests.support.waiting import eventually


def run(starts: Iterable[Callable[[], StreamingQuery]], *, in_turn: bool) -> None:
    """Run the queries to their ends; raise the first error of a query that fails."""
    queries: list[StreamingQuery] = []
    for start in starts:
        query = start()
        queries.append(query)
        if in_turn:
            query.awaitTermination()
        # Spark gives up a Python process that has not started after ten seconds.
        # So the queries start one after the other.
        eventually(
            lambda query=query: query.status["isDataAvailable"] or not query.isActive,  # type: ignore[misc] # mypy cannot see the default
            within=timedelta(seconds=90),
        )
    for query in queries:
        query.awaitTermination()
