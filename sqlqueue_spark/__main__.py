"""``python -m sqlqueue_spark`` is the command ``sqlqueue``, where its script is not on the path."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))  # the working folder: no file in it takes the place of a module

    from sqlqueue_spark.cli import main

    main(prog_name="sqlqueue")
