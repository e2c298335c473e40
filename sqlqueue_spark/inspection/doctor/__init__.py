"""Whether everything is there that a stream needs, and what is to be done about what is not: a line a check.

Nothing here changes anything, and no line ever shows a secret.
"""

from sqlqueue_spark.inspection.doctor.checks import Check, State
from sqlqueue_spark.inspection.doctor.examining import examine

__all__ = ["Check", "State", "examine"]
