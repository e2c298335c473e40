"""``python -m sqlqueue_spark`` is the command ``sqlqueue``, where its script is not on the path."""

from sqlqueue_spark.cli import main

if __name__ == "__main__":
    main(prog_name="sqlqueue")
