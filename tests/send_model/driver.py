"""Spark, the source and the mover: what happens between tries."""

from collections.abc import Iterable, Iterator

from tests.send_model.tries import Tries
from tests.send_model.world import OTHER, THIRD, Batch, Database, Row, Step, World


class Driver(Tries):
    """Claims batches, has them tried, logs and settles them; puts rows back when they are due."""

    def first(self) -> World:
        """The world in the beginning."""
        configuration = self.configuration
        home, other, third = (
            Database(frozenset(table for at, table in map(_split, configuration.tables) if at == database))
            for database in ("home", OTHER, THIRD)
        )
        received = tuple(each for each in configuration.rows if each.table == "queue")
        plain = tuple(each for each in configuration.rows if each.table == "source")
        home = home._replace(tables=home.tables | {"queue"}, rows=received)
        batch = Batch(plain) if plain else None
        return World(home, other, third, batch, urls=frozenset(configuration.urls.items()))

    def spark(self, world: World) -> Iterator[Step]:
        batch = world.batch
        if batch is None:
            queue = [each for each in world.home.rows if each.table == "queue"]
            for number in sorted({min(1, len(queue)), len(queue)} - {0}):
                claimed = Batch(tuple(queue[:number]))
                text = f"a batch of {_names(claimed.rows)} is claimed and logged"
                yield Step(text, world._replace(batch=claimed))
        elif batch.done:
            yield self._settled(world, batch)
        elif not batch.alive:
            there = tuple(each for each in batch.rows if each.table == "source" or each in world.home.rows)
            text = f"the restarted driver replays {_names(there)}"
            yield Step(text, world._replace(batch=Batch(there)))
        elif batch.ready == {each.row_id for each in batch.rows}:
            yield self._complete(world, batch)
        else:
            yield from self._tasks(world, batch)

    def _tasks(self, world: World, batch: Batch) -> Iterator[Step]:
        for row in batch.rows:
            running = [each for each in world.tries if each.row == row and not each.zombie]
            if row.row_id in batch.ready or running:
                continue
            yield from self.begin(world, row)
            if not self.rules.count_outcomes:
                after = world._replace(batch=batch._replace(ready=batch.ready | {row.row_id}))
                yield Step(f"the frame lacks {row.row_id}", after)

    def _complete(self, world: World, batch: Batch) -> Step:
        after = world.with_tries(each._replace(zombie=True) for each in world.tries)
        return Step("Spark logs the batch as done", after._replace(batch=batch._replace(done=True)))

    def _settled(self, world: World, batch: Batch) -> Step:
        """Delete the rows. After a loss only those that home's outbox knows; the others are free again."""
        there = [each for each in batch.rows if each in world.home.rows]
        gone, given = there, frozenset[str]()
        if not batch.held and self.rules.recovery_asks_outbox:
            gone = [each for each in there if world.home.says(self.origin_key(each))]
            given = frozenset(each.row_id for each in there if each not in gone)
        text = f"settling deletes {_names(gone)}" + ("" if batch.held else " (after a loss)")
        left = (world.given - {each.row_id for each in gone}) | given
        return Step(text, world._replace(home=world.home.write(gone=gone), batch=None, given=left))

    def movers(self, world: World) -> Iterator[Step]:
        """A retry is due after a while, a row that waits when its databases answer."""
        for row in dict.fromkeys(each for each in world.home.rows if each.table == "delayed"):
            if row.kind == "handle" or all(world.at(world.place(each)).state == "up" for each in row.to):
                yield Step(f"{row.row_id} goes back into the queue", self.put_back(world, row))

    @staticmethod
    def put_back(world: World, row: Row, **changes: object) -> World:
        back = row._replace(table="queue", **changes)  # type: ignore[arg-type]
        return world._replace(home=world.home.write([back], gone=[row]))


def _split(table: str) -> tuple[str, str]:
    database, _, name = table.partition(":")
    return database, name


def _names(rows: Iterable[Row]) -> str:
    return ", ".join(each.row_id or each.id for each in rows) or "nothing"
