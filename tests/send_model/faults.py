"""What goes wrong around the protocol, and what other people do."""

from collections.abc import Iterator

from tests.send_model.atomic import Atomic
from tests.send_model.world import HOME, OTHER, THIRD, Replica, Row, Step, World


class Faults(Atomic):
    """Adds faults to the steps, as far as the configuration affords them."""

    def faults(self, world: World) -> Iterator[Step]:
        for name in (OTHER, THIRD):
            if world.at(name).state != "up":
                yield Step(f"the {name} database is up again", self._in_state(world, name, "up"))
        for name in (HOME, OTHER):
            if world.at(name).replica is not None:
                yield Step(f"{name} fails over to its replica", self._promoted(world, name), "promotion")
        for fault in self.configuration.faults:
            if self.affords(world, fault):
                for text, after in self._fault(world, fault):
                    yield Step(text, after.after(fault), fault)

    def _fault(self, world: World, fault: str) -> Iterator[tuple[str, World]]:
        what, _, which = fault.partition(" ")
        steps = {
            "crash": self._crash,
            "url": self._url,
            "twin": self._twin,
            "down": self._down,
            "readonly": self._readonly,
            "create": self._create,
            "drop": self._drop,
            "lag": self._lag,
            "clean": self._clean,
            "overdue": self._overdue,
            "foreign": self._foreign_mover,
            "put": self._put_back,
        }
        return steps[what](world, which) if what in steps else iter(())  # an answer gets lost in a try

    # -- The job -----------------------------------------------------------------------------------------

    def _crash(self, world: World, _: str) -> Iterator[tuple[str, World]]:
        if world.batch or world.tries:
            yield "the driver dies", self._crashed(world)

    @staticmethod
    def _crashed(world: World) -> World:
        """Its tasks may go on for a while."""
        batch = world.batch
        if batch is not None:
            batch = batch._replace(held=False, alive=False)
            batch = batch if batch.done else batch._replace(ready=frozenset(), accepted=frozenset())
        return world.with_tries(each._replace(zombie=True) for each in world.tries)._replace(batch=batch)

    def _url(self, world: World, _: str) -> Iterator[tuple[str, World]]:
        if not self.rules.same_urls or not self._may_go_out_again(world, self.rules.urls_wait_for_given_back):
            urls = world.urls ^ {("billing", OTHER)}
            yield "the job starts again with or without the url", self._crashed(world)._replace(urls=urls)

    def _twin(self, world: World, _: str) -> Iterator[tuple[str, World]]:
        batch = world.batch
        for row in batch.rows if batch and batch.alive and not batch.done else ():
            if sum(each.row == row and not each.zombie for each in world.tries) == 1:
                for step in self.begin(world, row):
                    yield f"twin: {step.text}", step.after

    @staticmethod
    def _may_go_out_again(world: World, given_back: bool) -> bool:
        """Whether a message may have been sent elsewhere whose row still stands at home."""
        if world.batch or any(each.table == "delayed" for each in world.home.rows):
            return True
        queue = (each for each in world.home.rows if each.table == "queue")
        return given_back and any(each.header or each.row_id in world.given for each in queue)

    # -- Databases ---------------------------------------------------------------------------------------

    @staticmethod
    def _in_state(world: World, name: str, state: str) -> World:
        return world.with_at(name, world.at(name)._replace(state=state))

    def _down(self, world: World, which: str) -> Iterator[tuple[str, World]]:
        name = which or OTHER
        if world.at(name).state == "up":
            yield f"the {name} database is down", self._in_state(world, name, "down")

    def _readonly(self, world: World, which: str) -> Iterator[tuple[str, World]]:
        name = which or OTHER
        if world.at(name).state == "up":
            yield f"the {name} database is read-only", self._in_state(world, name, "readonly")

    @staticmethod
    def _create(world: World, which: str) -> Iterator[tuple[str, World]]:
        name, _, table = which.partition(":")
        there = world.at(name)
        if table not in there.tables:
            yield f"{which} is created", world.with_at(name, there._replace(tables=there.tables | {table}))

    @staticmethod
    def _drop(world: World, which: str) -> Iterator[tuple[str, World]]:
        name, _, table = which.partition(":")
        there = world.at(name)
        open_ = (each.decided.rows for each in world.tries if each.decided)  # an insert locks its table
        if table in there.tables and not any(row.table == table for rows in open_ for row in rows):
            yield f"{which} is dropped", world.with_at(name, there._replace(tables=there.tables - {table}))

    @staticmethod
    def _lag(world: World, which: str) -> Iterator[tuple[str, World]]:
        there = world.at(which)
        if there.replica is None:
            copy = Replica(there.rows, there.outbox, there.outcomes, there.staged, there.seal)
            yield f"{which}'s replica stops following", world.with_at(which, there._replace(replica=copy))

    @staticmethod
    def _promoted(world: World, name: str) -> World:
        there = world.at(name)
        if there.replica is None:
            return world
        world = world.with_at(name, there._replace(**there.replica._asdict(), replica=None))
        if name == OTHER:
            return world
        return world._replace(batch=world.batch and world.batch._replace(held=False), era=world.era + 1)

    def _clean(self, world: World, which: str) -> Iterator[tuple[str, World]]:
        """Old keys go. No try is older than they are."""
        waits = self.rules.cleanup_waits and self._may_go_out_again(
            world, self.rules.cleanup_waits_for_given_back
        )
        if world.at(which).outbox and not world.tries and not waits:
            yield (
                f"{which}'s outbox is cleaned",
                world.with_at(which, world.at(which)._replace(outbox=frozenset())),
            )

    # -- Movers and ServiceControl -----------------------------------------------------------------------

    def _overdue(self, world: World, which: str) -> Iterator[tuple[str, World]]:
        """The time of a row is over: a mover puts it back, the job judges it. Late: its database is up."""
        for row in self._waiting(world) if which != "late" or world.other.state == "up" else ():
            yield f"{row.row_id} has waited for too long", self.put_back(world, row, overdue=True)

    def _foreign_mover(self, world: World, _: str) -> Iterator[tuple[str, World]]:
        for row in dict.fromkeys(each for each in world.home.rows if each.table == "delayed"):
            back = self.put_back(world, row, row_id=f"{row.row_id}~", overdue=row in self._waiting(world))
            yield f"a .NET endpoint puts {row.row_id} into the queue, with another Id", back

    @staticmethod
    def _waiting(world: World) -> list[Row]:
        return [each for each in world.home.rows if each.table == "delayed" and each.kind != "handle"]

    @staticmethod
    def _put_back(world: World, _: str) -> Iterator[tuple[str, World]]:
        """ServiceControl gives a row of an error queue a new Id, and keeps its headers."""
        for name in (HOME, OTHER, THIRD):
            for row in dict.fromkeys(each for each in world.at(name).rows if each.table == "error"):
                kind, to = row.was
                row_id = f"{row.root}+{row.hop}<{len(world.spent)}"
                back = row._replace(table="queue", kind=kind, to=to, was=("", ()), owes=True, row_id=row_id)
                after = world.with_at(name, world.at(name).write(gone=[row]))
                yield f"ServiceControl puts {row.root} back", after._replace(home=after.home.write([back]))
