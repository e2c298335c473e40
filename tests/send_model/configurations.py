"""The configurations that are explored, by name."""

from tests.send_model import losses_and_upkeep, rows_handled, rows_passed_on

CONFIGURATIONS = (
    rows_passed_on.PASSED_ON
    | rows_passed_on.PLAIN
    | rows_handled.HANDLED
    | rows_handled.CENTRAL
    | rows_handled.ATOMIC
    | losses_and_upkeep.FORGETS
    | losses_and_upkeep.TIME
)
