"""``python -m sqlqueue_spark`` is the command ``sqlqueue``, where its script is not on the path."""

import signal
import sys


def run() -> None:
    """Run the command. Ctrl-C ends it without a stack trace, also while its modules are imported."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before if before is signal.SIG_IGN else signal.SIG_DFL)
    from sqlqueue_spark.cli import main

    signal.signal(signal.SIGINT, before)
    main(prog_name="sqlqueue")


if __name__ == "__main__":
    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))  # the working folder: no file in it takes the place of a module
    run()
