"""The mode ``sendsAtomicWithReceive``: tasks stage outcomes at home, and settling writes them."""

from collections.abc import Iterator

from tests.send_model.driver import Driver
from tests.send_model.world import Batch, Database, Staged, Step, Try, World


class Atomic(Driver):
    """Stages outcomes, seals them before Spark logs, settles from the stage. Late tries stage in vain."""

    def _record(self, world: World, run: Try) -> Iterator[Step]:
        if not self.configuration.atomic:
            yield from super()._record(world, run)
            return
        written = self.outcome(world, run)
        if written.marked is not None:
            yield from super()._record(world, run)
            return
        staged = Staged(run, written)
        step = self._ended(world, run, f"stages: {written.text}")
        batch, accepted = step.after.batch, world.batch
        if run.zombie or batch is None or accepted is None or batch.ready == accepted.ready:
            yield step
            return
        after = world.home._replace(staged=world.home.staged | {staged})
        batch = batch._replace(accepted=batch.accepted | {staged})
        yield step._replace(after=step.after._replace(home=after, batch=batch))

    def _complete(self, world: World, batch: Batch) -> Step:
        if not self.configuration.atomic or world.home.seal == batch.accepted:
            return super()._complete(world, batch)
        if batch.accepted <= world.home.staged:
            sealed = world.home._replace(seal=batch.accepted)
            return Step("the sink seals the stage", world._replace(home=sealed))
        failed = batch._replace(alive=False, held=False, ready=frozenset(), accepted=frozenset())
        after = world.with_tries(each._replace(zombie=True) for each in world.tries)
        return Step("the stage does not count: the batch fails", after._replace(batch=failed))

    def _settled(self, world: World, batch: Batch) -> Step:
        """Move what is on the stage, and delete the rows. Without the batch's seal they are free again."""
        if not self.configuration.atomic:
            return super()._settled(world, batch)
        there = [each for each in batch.rows if each in world.home.rows]
        if world.home.seal != batch.accepted or len(there) != len(batch.rows):
            given = world.given | {each.row_id for each in there}
            return Step("settling finds no seal", world._replace(batch=None, given=given))
        home = world.home
        for staged in sorted(batch.accepted, key=repr):
            home = self._moved(world._replace(home=home), staged)
        home = home.write(gone=there)._replace(staged=frozenset(), seal=frozenset())
        given = world.given - {each.row_id for each in there}
        return Step("settling moves the stage", world._replace(home=home, batch=None, given=given))

    def _moved(self, world: World, staged: Staged) -> Database:
        if self.rules.settling_asks_again:
            return world.home.commit(self.outcome(world, staged.run))
        return world.home.commit(staged.written)
