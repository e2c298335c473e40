"""A program as a tree of its operations, so that a place in it is a number, and states can be compared."""

from typing import NamedTuple

from tests.lock_model.operations import Deadlocked, Ended, LockTimeout, Operation, Start

Result = object
#: Errors that are thrown into a program instead of a result.
ERRORS: dict[Result, type[Exception]] = {"timeout": LockTimeout, "deadlock": Deadlocked}


class Node(NamedTuple):
    """A place in a program: what it does here, what it was told on the way, where it goes on."""

    operation: Operation
    results: tuple[Result, ...]
    after: dict[Result, int]


class Script:
    """Plays a program once for each sequence of results, and remembers what it did."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._nodes: list[Node] = []
        self._add(())

    def operation(self, place: int) -> Operation:
        return self._nodes[place].operation

    def after(self, place: int, result: Result) -> int:
        """The place after an operation has got a result."""
        node = self._nodes[place]
        if result not in node.after:
            node.after[result] = self._add((*node.results, result))
        return node.after[result]

    def _add(self, results: tuple[Result, ...]) -> int:
        self._nodes.append(Node(self._played(results), results, {}))
        return len(self._nodes) - 1

    def _played(self, results: tuple[Result, ...]) -> Operation:
        program = self._start()
        try:
            operation = next(program)
            for result in results:
                error = ERRORS.get(result)
                operation = program.send(result) if error is None else program.throw(error)
        except StopIteration as end:
            return Ended(end.value)
        except (LockTimeout, Deadlocked) as error:
            return Ended(type(error).__name__)
        return operation
