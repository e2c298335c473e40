"""Reports what a soak proved, as a value for JSON and as a page for people."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.machine.soak_machine import Round
from tests.machine.soak_spark import Proof

#: Lines of the table of memory and cost.
_LINES = 16


@dataclass(kw_only=True)
class Soak:
    """One run of ``make soak``."""

    command: str
    seed: int
    began: str
    versions: list[str]
    seconds: float = 0.0
    machine: list[Round] | None = None
    machine_seconds: float = 0.0
    spark: Proof | None = None
    #: What went wrong outside of both parts, like a Spark that does not start.
    troubles: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        machine = [each.failure for each in self.machine or [] if each.failure]
        return [*machine, *(self.spark.failures if self.spark else []), *self.troubles]

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "holds": not self.failures,
            "command": self.command,
            "seed": self.seed,
            "began": self.began,
            "seconds": round(self.seconds, 1),
            "versions": self.versions,
            "failures": self.failures,
        }
        if self.machine is not None:
            found["machine"] = {
                "seconds": round(self.machine_seconds, 1),
                **_summed(self.machine),
                "rounds": [vars(each) for each in self.machine],
            }
        if self.spark is not None:
            found["spark"] = self.spark.as_json()
        return found

    def summary(self) -> str:
        """All but the failures' stories."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"soak: {self.command}"
        yield f"began {self.began}, took {self.seconds / 60:.1f} minutes, seed {self.seed}"
        yield from self.versions
        if self.machine is not None:
            yield ""
            yield from _machine_lines(self.machine, self.machine_seconds)
        if self.spark is not None:
            yield ""
            yield from _spark_lines(self.spark)
        yield ""
        yield (
            "HOLDS: 0 lost, 0 doubled, 0 standing still."
            if not self.failures
            else f"{len(self.failures)} FAILURES"
        )

    def write(self, folder: Path) -> None:
        """``report.json`` and ``report.txt``, which has the stories too."""
        (folder / "report.json").write_text(json.dumps(self.as_json(), indent=1))
        stories = "\n\n".join(f"-- failure {n} --\n{each}" for n, each in enumerate(self.failures, 1))
        (folder / "report.txt").write_text(f"{self.summary()}\n\n{stories}".rstrip() + "\n")


def _summed(rounds: Iterable[Round]) -> dict[str, Any]:
    scenarios, kinds, faults, ended = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    sent = 0
    for each in rounds:
        scenarios[each.shard] += each.examples
        kinds += each.kinds
        faults += each.faults
        ended += each.ended
        sent += each.sent
    return {"scenarios": scenarios, "kinds": kinds, "faults": faults, "sent": sent, "ended": ended}


def _machine_lines(rounds: list[Round], seconds: float) -> Iterator[str]:
    found = _summed(rounds)
    count = sum(found["scenarios"].values())
    yield f"THE MACHINE: {count:,} scenarios in {seconds / 60:.1f} minutes, {len(rounds)} rounds"
    yield from _counted("scenarios by shard", found["scenarios"])
    yield from _counted("scenarios by what the query is at first", found["kinds"])
    yield from _counted("faults injected", found["faults"])
    yield from _counted(f"messages sent: {found['sent']:,}, which ended", found["ended"])


def _spark_lines(proof: Proof) -> Iterator[str]:
    yield (
        f"REAL SPARK: {proof.seconds / 60:.1f} minutes, then drained in {proof.drained_in:.0f} s; "
        f"{proof.starts} starts of the driver"
    )
    for queue, sent in proof.sent.items():
        batches, disturbed = proof.batches[queue]
        title = (
            f"messages sent to {queue}: {sent:,}, in {batches} batches, {batches - disturbed} of which "
            "nothing befell; they ended"
        )
        yield from _counted(title, proof.ended[queue])
    yield from _counted("faults injected", proof.faults)
    yield from _counted("queries that ended with an error and were started again", proof.errors)
    yield from _table(proof)


def _table(proof: Proof) -> Iterator[str]:
    """Memory in MB and cost for each message, over time and over the age of a driver."""
    samples = proof.samples
    if not samples:
        return
    yield (
        "  memory (MB) and cost (milliseconds of a processor a message) over time; the driver starts anew "
        "after each death:"
    )
    yield (
        f"  {'second':>8} {'driver for':>10} {'JVM':>7} {'readers':>8} {'largest':>8} {'workers':>8} "
        f"{'messages':>9} {'cost':>7}"
    )
    for each in samples[:: max(1, -(-len(samples) // _LINES))]:
        cost = "-" if each.cost is None else f"{each.cost:.2f}"
        yield (
            f"  {each.at:>8.0f} {each.age:>10.0f} {each.jvm:>7.0f} {each.readers:>8.0f} "
            f"{each.largest_reader:>8.0f} {each.workers:>8.0f} {each.messages:>9,} {cost:>7}"
        )
    yield (
        f"  all in all {proof.cpu_seconds:.0f} s of a processor for {proof.messages:,} messages, "
        "starts of Spark included; most memory of one reader "
        f"{max(each.largest_reader for each in samples):.0f} MB, of the JVM "
        f"{max(each.jvm for each in samples):.0f} MB"
    )


def _counted(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield f"  {title}:"
    for name, count in sorted(counts.items(), key=lambda pair: -pair[1]):
        yield f"    {count:>10,}  {name}"
