"""What a task does at one row: it looks, sends to other databases, and writes the outcome at home."""

from collections.abc import Iterator

from tests.send_model.home import Home
from tests.send_model.world import HOME, Key, Keys, Row, Step, Try, World, Written


class Tries(Home):
    """The steps of a try: each is one transaction in one database."""

    def affords(self, world: World, fault: str) -> bool:
        its = world.spent.count(fault)
        return len(world.spent) < self.configuration.budget and its < self.configuration.faults.get(fault, 0)

    def begin(self, world: World, row: Row) -> Iterator[Step]:
        """A task begins. What a function answers is decided now; another try may answer differently."""
        if row.kind != "handle":
            yield self._begin(world, row, row.to, "")
            return
        answers = self.configuration.answers if row.root in self._configured() else ((),)
        for number, sends in enumerate(answers):
            yield self._begin(world, row, sends or (), "fails" if sends is None else f"answer {number}")
        if self.configuration.fails_first and not row.hop:
            yield self._begin(world, row, (), "fails")

    def _configured(self) -> set[str]:
        return {each.root for each in self.configuration.rows}

    def _begin(self, world: World, row: Row, to: tuple[str, ...], answer: str) -> Step:
        places = tuple((world.place(each), each) for each in to)
        begun = Try(row, self._first(row, places), places, (None,) * len(places), answer)
        text = f"a task begins at {row.row_id} ({row.kind}{', ' + answer if answer else ''})"
        return Step(text, world.with_tries([*world.tries, begun]))

    def _first(self, row: Row, places: tuple[tuple[str, str], ...]) -> str:
        elsewhere = row.kind != "handle" and any(database != HOME for database, _ in places)
        return "look" if row.kind == "plain" or (self.rules.ask_home and elsewhere) else "send"

    def run_tries(self, world: World) -> Iterator[Step]:
        steps = {
            "look": self._look,
            "send": self._send,
            "plain": self._plain,
            "plain failed": self._plain_failed,
            "commit": self._commit,
            "alone": self._alone,
            "acknowledge": self._acknowledge,
        }
        for run in dict.fromkeys(world.tries):
            if run.zombie:
                yield Step(f"the zombie at {run.row.row_id} ends", world.replaced(run, None))
            yield from steps[run.step](world, run)

    # -- A received row ----------------------------------------------------------------------------------

    def _look(self, world: World, run: Try) -> Iterator[Step]:
        """Ask for an outcome of the row, or for the error row of a plain message."""
        if run.row.kind == "plain":
            at, next_ = world.at(world.place("error")), "plain"
            key: Key = self._error_key(run)
            known = self.rules.error_key and at.says(key)
        else:
            known, next_ = world.home.says(self.origin_key(run.row)), "send"
        if known:
            yield self._ended(world, run, f"the try at {run.row.row_id} sees that it is done with")
        else:
            yield self._on(world, run, f"the try at {run.row.row_id} looks, and sees nothing", step=next_)

    def _send(self, world: World, run: Try) -> Iterator[Step]:
        """Send the next message for another database, there. Those for home go with the outcome."""
        row = run.row
        away = [at for at, (database, _) in enumerate(run.to) if database != HOME and run.found[at] is None]
        if not away or (row.kind == "handle" and self.rules.store_answers):
            yield from self._record(world, run)
            return
        at = away[0]
        database, table = run.to[at]
        there = world.at(database)
        message = self.arrived(row, table)
        key = self.send_key(row, table)
        if row.kind == "handle":  # only without the rule store_answers
            message = self.child(world, run, at)._replace(table=table, kind="sent", to=(), row_id="")
            key = self.send_key(message, table)
        known = self.rules.send_key and there.says(key)
        after, result = world, "sent"
        if there.state != "up":
            result = "down"
        elif table in there.tables:
            after = world if known else world.with_at(database, there.write([message], {key: "sent"}))
        elif not (known and self.rules.ask_before_failed):
            result = "refused"
        text = f"the try at {row.row_id} at {database}:{table}: {result}"
        if result == "refused" and table == "ack" and self.rules.missing_ack_is_dropped:
            result = "sent"  # with a warning: the address came out of a message
        if result == "refused" and row.failed_as:
            yield self._failed_try(world, run)  # without its error queue the batch ends
            return
        yield self._on(after, run, text, found=(*run.found[:at], result, *run.found[at + 1 :]))
        if after is not world and self.affords(world, "lost answer"):
            yield self._answer_lost(after, run, text)

    def _record(self, world: World, run: Try) -> Iterator[Step]:
        """Decide the outcome in a transaction at home, after a look at its keys; it commits later."""
        if self.rules.failed_alone and run.row.kind in ("pass", "stored") and "refused" in run.found:
            yield self._on(
                world, run, f"the try at {run.row.row_id} releases its share of the lock", step="alone"
            )
            return
        written = self.outcome(world, run)
        if written.marked is not None:
            yield self._marked(world, run, written)
        elif written.rows or written.keys:
            text = f"home is about to write: {written.text}"
            yield self._on(world, run, text, step="commit", decided=written)
        else:
            yield self._ended(world, run, written.text)

    def _commit(self, world: World, run: Try) -> Iterator[Step]:
        """Commit the outcome, unless another transaction has written one of its keys since the look."""
        written = run.decided
        assert written is not None
        keys = [key for key, _ in written.keys if self.rules.origin_key or key[0] != "origin"]
        if any(world.home.says(key) for key in keys):
            again = run._replace(step="send", decided=None)
            yield Step(f"a twin of {run.row.row_id} was first at home", world.replaced(run, again))
            return
        text = f"home commits: {written.text}"
        after = world._replace(home=world.home.commit(written))
        if written.acknowledges_later:
            yield self._on(after, run, text, step="acknowledge", decided=None)
        else:
            yield self._ended(after, run, text)
        if self.affords(world, "lost answer"):
            yield self._answer_lost(after, run, text)

    def _alone(self, world: World, run: Try) -> Iterator[Step]:  # only with the rule failed_alone
        """Ask again while no other try is between its look and its last send, and write the outcome."""
        if any(each.step in ("send", "commit") for each in world.tries if each.row.root == run.row.root):
            return
        found = tuple(self._asked(world, run, at) for at in range(len(run.to)))
        written = self.outcome(world, run._replace(found=found))
        if written.marked is not None:
            yield self._marked(world, run, written)
            return
        text = f"home commits alone: {written.text}"
        yield self._ended(world._replace(home=world.home.commit(written)), run, text)

    def _asked(self, world: World, run: Try, at: int) -> str | None:
        (database, table), result = run.to[at], run.found[at]
        if database == HOME or result != "refused":
            return result
        if world.at(database).state != "up":
            return "down"
        return "sent" if world.at(database).says(self.send_key(run.row, table)) else result

    def _acknowledge(self, world: World, run: Try) -> Iterator[Step]:  # only without the rule one_transaction
        home = world.home.write([self.result(world, run.row, "ack")])
        yield self._ended(world._replace(home=home), run, f"{run.row.row_id} is acknowledged")

    # -- A plain message ---------------------------------------------------------------------------------

    def _plain(self, world: World, run: Try) -> Iterator[Step]:
        """Send it; a refused one goes to error in the same transaction, where both are in one database."""
        (database, table), row = run.to[0], run.row
        there, key = world.at(database), self.send_key(row, table)
        if there.state != "up":
            yield self._failed_try(world, run)
        elif self.rules.send_key and there.says(key):
            yield self._ended(world, run, f"{database} knows {row.id}: nothing")
        elif run.found[0] is None and table in there.tables:
            yield from self._committed(world, run, database, self.arrived(row, table), {key: "sent"})
        elif run.found[0] is None:
            yield self._on(world, run, f"{database} refuses {row.id}", found=("refused",))
        elif world.place("error") == database:
            yield from self._committed(world, run, database, self._plain_error(row), {key: "failed"})
        else:
            yield self._on(world, run, f"{database} does not know {row.id}", step="plain failed")

    def _plain_failed(self, world: World, run: Try) -> Iterator[Step]:
        """The error row, in another database than its send."""
        place = world.place("error")
        there, key = world.at(place), self._error_key(run)
        if there.state != "up":
            yield self._failed_try(world, run)
        elif self.rules.error_key and there.says(key):
            yield self._ended(world, run, f"{place} knows that {run.row.id} has failed: nothing")
        else:
            yield from self._committed(world, run, place, self._plain_error(run.row), {key: "failed"})

    @staticmethod
    def _error_key(run: Try) -> Key:
        return ("error", run.row.id, run.to[0][1])

    @staticmethod
    def _plain_error(row: Row) -> Row:
        return Row("error", row.id, row.root, "failed", was=("pass", row.to), hop=1)

    def _committed(self, world: World, run: Try, database: str, row: Row, keys: Keys) -> Iterator[Step]:
        after = world.with_at(database, world.at(database).write([row], keys))
        text = f"{run.row.id} is committed at {database}:{row.table}"
        yield self._ended(after, run, text)
        if self.affords(world, "lost answer"):
            yield self._answer_lost(after, run, text)

    # -- Ends of steps -----------------------------------------------------------------------------------

    @staticmethod
    def _ended(world: World, run: Try, text: str) -> Step:
        after = world.replaced(run, None)
        batch = after.batch
        if not run.zombie and batch and batch.alive and not batch.done:
            after = after._replace(batch=batch._replace(ready=batch.ready | {run.row.row_id}))
        return Step(text, after)

    def _answer_lost(self, world: World, run: Try, text: str) -> Step:
        """It was committed, and the client does not know: the try begins again."""
        begun = run._replace(step=self._first(run.row, run.to), found=(None,) * len(run.to), decided=None)
        after = world.after("lost answer").replaced(run, begun)
        return Step(f"{text}, the answer gets lost", after, "lost answer")

    def _marked(self, world: World, run: Try, written: Written) -> Step:
        """Home has refused a message: its transaction rolled back, and begins again."""
        found = ("refused" if at == written.marked else each for at, each in enumerate(run.found))
        return self._on(world, run, written.text, found=tuple(found))

    @staticmethod
    def _failed_try(world: World, run: Try) -> Step:
        return Step(f"the try at {run.row.row_id} fails", world.replaced(run, None))

    @staticmethod
    def _on(world: World, run: Try, text: str, **changes: object) -> Step:
        return Step(text, world.replaced(run, run._replace(**changes)))  # type: ignore[arg-type]
