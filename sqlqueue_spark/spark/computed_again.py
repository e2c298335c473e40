"""Whether Spark computes a batch again: two frames that are the same, and outcomes for two sinks."""

import weakref
from typing import Any

from pyspark.sql import DataFrame

from sqlqueue_spark.plain_text import logger
from sqlqueue_spark.tables.stages.stage_mark import Batch

log = logger(__name__)

#: What in a plan may answer otherwise when it runs again: subqueries, functions of the program, the time.
#: https://github.com/apache/spark/blob/v4.2.0/sql/catalyst/src/main/scala/org/apache/spark/sql/catalyst/trees/TreePatterns.scala
_MAY_CHANGE = ("PLAN_EXPRESSION", "PYTHON_UDF", "SCALA_UDF", "CURRENT_LIKE")
#: The last frame of outcomes of each query, and its batch.
_with_outcomes: dict[str, tuple[Batch, weakref.ref[DataFrame]]] = {}


def surely_same(one: DataFrame, other: DataFrame) -> bool:
    """Whether two frames of a batch have the same rows: they are one, or equal and made of the batch alone.

    What is read from a table or from files may have changed meanwhile, also in a subquery or in a function of
    the program, and so has the time.
    """
    if one is other or not hasattr(one, "_jdf"):  # Spark Connect does not show what a frame is made of
        return one is other
    plan = one._jdf.queryExecution().analyzed()  # noqa: SLF001 -- as below
    jvm: Any = one.sparkSession._jvm  # noqa: SLF001 -- likewise
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    changes = any(plan.containsPattern(getattr(patterns, each)()) for each in _MAY_CHANGE)
    if changes or not plan.deterministic():
        return False
    leaves = plan.collectLeaves()
    made_of = {leaves.apply(at).nodeName() for at in range(leaves.size())}
    # Frames whose columns have other names have the same semantics, too.
    return made_of == {"LogicalRDD"} and one.dtypes == other.dtypes and one.sameSemantics(other)


def warn_if_computed_again(outcomes: DataFrame, batch: Batch) -> None:
    """Warn where a second frame of outcomes of one batch is not persisted: Spark calls the function again.

    It may answer otherwise the second time, and a message is then in neither frame. A frame that comes again,
    because its batch waited for a database, is one frame.
    """
    before = _with_outcomes.get(batch.query)
    _with_outcomes[batch.query] = batch, weakref.ref(outcomes)
    if not batch.query or before is None or before[0] != batch or before[1]() is outcomes:
        return
    plan = outcomes._jdf.queryExecution().withCachedData()  # noqa: SLF001 -- PySpark tells it nowhere else
    if "InMemoryRelation" not in plan.toString():
        log.warning("outcomes_computed_again batch=%d: Spark calls the function again for each frame of "
                    "outcomes of a batch, and a message may be in none of them; call persist() on the "
                    "outcomes before they are used twice", batch.number)  # fmt: skip
