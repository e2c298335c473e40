"""``python -m tests.lock_model``: tells what the model finds in the statements as they were once,
with the story of each finding.
"""

import sys
import time

from tests.lock_model.actors import ONE_STATEMENT, Claim, altering, stream, worker
from tests.lock_model.explorer import Report, explore
from tests.lock_model.sweep import sweep
from tests.lock_model.table import SHAPES


def tell(what: str, report: Report, seconds: float) -> None:
    """Print a report."""
    sys.stdout.write(f"\n# {what}: {report.states:,} states, {seconds:.1f} s\n")
    for finding in sorted(report.findings):
        about = f" ({finding.about})" if finding.about else ""
        sys.stdout.write(f"\n{finding.kind}: {', '.join(finding.who)}{about}\n\n")
        sys.stdout.write(f"{report.findings[finding]}\n")


def main() -> None:
    for shape in SHAPES:
        begun = time.process_time()
        threesomes = sweep(shape, Claim(), ONE_STATEMENT, ONE_STATEMENT)
        tell(f"{shape}: all threesomes", threesomes, time.process_time() - begun)
        begun = time.process_time()
        rebuilt = explore(stream(shape, Claim(workers=True)), worker(shape), altering())
        tell(f"{shape}: stream, worker, operator", rebuilt, time.process_time() - begun)


if __name__ == "__main__":
    main()
