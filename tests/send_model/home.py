"""The transaction at home that writes the outcome of a received row, with all that belongs to it there."""

from tests.send_model.keys import Keys
from tests.send_model.world import HOME, Database, Key, Outcome, Row, Try, World, Written


class Home(Keys):
    """Writes outcomes."""

    def outcome(self, world: World, run: Try) -> Written:
        home, row = world.home, run.row
        if self.rules.origin_key and home.says(self.origin_key(row)):
            return Written(f"home knows the origin of {row.row_id}: nothing")
        if row.kind == "handle" and self.rules.id_key and home.says(self.id_key(row)):
            rows = [self.result(world, row, "ack")] if row.owes and self.rules.known_id_acknowledges else []
            return self._written(run, "done as another row", rows, {self.origin_key(row): "known"})
        marked = next((at for at in range(len(run.to)) if self._refuses(home, run, at)), None)
        if marked is not None:
            text = f"home refuses what {row.row_id} sends to {run.to[marked][1]}"
            return Written(text, marked=marked)
        if row.kind == "poison":
            return self._fails(world, run)
        return self._handled(world, run) if row.kind == "handle" else self._passed_on(world, run)

    def _refuses(self, home: Database, run: Try, at: int) -> bool:
        """Whether home finds in this transaction that it cannot take a message of it."""
        (database, table), answers = run.to[at], run.row.kind == "handle"
        if database != HOME or table in home.tables or run.found[at] is not None:
            return False
        return answers or not home.says(self.send_key(run.row, table))

    # -- A row that is handled ---------------------------------------------------------------------------

    def _handled(self, world: World, run: Try) -> Written:
        row = run.row
        if run.answer == "fails" and (row.header.moves if row.header else 0) < self.configuration.retries:
            return self._moves(world, run, "retried")
        if run.answer == "fails" or "refused" in run.found:
            return self._fails(world, run)
        rows = [*self._results(world, row), self.result(world, row, "audit")]
        for at, (database, _) in enumerate(run.to):
            if database == HOME or self.rules.store_answers:
                rows.append(self.child(world, run, at))
        keys: dict[Key, str] = {self.origin_key(row): "known"}
        if self.rules.id_key:
            keys[self.id_key(row)] = "known"
        return self._written(run, "done", rows, keys)

    # -- A row that is passed on -------------------------------------------------------------------------

    def _passed_on(self, world: World, run: Try) -> Written:
        home, row = world.home, run.row
        gives_up = row.overdue and not (row.failed_as and self.rules.results_wait)
        if gives_up and ("down" in run.found or not self.rules.overdue_only_while_down):
            return self._fails(world, run)
        if "down" in run.found:
            return self._moves(world, run, "waiting")
        refused = [at for at in range(len(run.to)) if self._is_refused(home, run, at)]
        if refused and len(run.to) == 1:
            return self._fails(world, run)
        owed: list[Row] = []
        if row.kind != "stored" or not self.rules.stored_owes_nothing:
            owed = self._results(world, row)
            owed += [self.result(world, row, "audit")] if self.configuration.audits else []
        owed += [self.refused_copy(world, row, run.to[at][1]) for at in refused]
        keys: dict[Key, str] = {}
        if owed and self.rules.results_write_origin:
            keys[self.origin_key(row)] = "known"
        rows = owed
        for at, (database, table) in enumerate(run.to):
            key = self.send_key(row, table)
            if database == HOME and at not in refused and key not in keys and not home.says(key):
                rows = [*rows, self.arrived(row, table)]
                keys[key] = "sent"
        return self._written(run, "done", rows, keys)

    def _is_refused(self, home: Database, run: Try, at: int) -> bool:
        database, table = run.to[at]
        if run.found[at] != "refused":
            return False
        return database != HOME or not (self.rules.ask_marked and home.says(self.send_key(run.row, table)))

    # -- What they share ---------------------------------------------------------------------------------

    def _results(self, world: World, row: Row) -> list[Row]:
        return [self.result(world, row, "ack")] if row.owes and self.rules.one_transaction else []

    def _moves(self, world: World, run: Try, outcome: str) -> Written:
        known: dict[Key, str] = {self.origin_key(run.row): "known"}
        return self._written(run, outcome, [self.moved(world, run.row)], known)

    def _fails(self, world: World, run: Try) -> Written:
        known: dict[Key, str] = {self.origin_key(run.row): "known"}
        return self._written(run, "failed", [self.failed(world, run.row)], known)

    def _written(self, run: Try, outcome: str, rows: list[Row], keys: dict[Key, str]) -> Written:
        row = run.row
        its = Outcome(row.root, row.hop, outcome, row.id, row.kind, run.answer, self.base(row))
        counts = self.origin_key(row) in keys and not row.failed_as
        return Written(
            f"{row.row_id} is {outcome}",
            tuple(rows),
            frozenset(keys.items()),
            frozenset([its] if counts else []),
            acknowledges_later=row.owes and outcome == "done" and not self.rules.one_transaction,
        )
