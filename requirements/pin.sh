#!/usr/bin/env bash
# Writes the files of requirements/, for all platforms at once: versions, and the hashes of their files on the index.
# pin.sh PYTHON keeps the versions that are there, pin.sh PYTHON --upgrade takes the newest that fit together.
set -euo pipefail
cd "$(dirname "$0")/.."
tool="$(mktemp -d)"
trap 'rm -r "$tool"' EXIT
"$1" -m venv "$tool" && "$tool/bin/pip" install --quiet uv

pin() { # the name of the file, then what goes in
    "$tool/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
        --custom-compile-command "make pins" --output-file "requirements/$1.txt" "${@:2}"
}

pin dev pyproject.toml --extra dev "${@:2}"
pin demo pyproject.toml --extra demo --constraint requirements/dev.txt "${@:2}"
# What the tests against a SQL Server of one's own, or of Azure, need beside dev.
pin live pyproject.toml - --extra mssql --constraint requirements/dev.txt "${@:2}" <<<"azure-identity"
# What declarative pipelines (pyspark[pipelines]) and notebooks need beside dev, in an environment of their own.
pin doors - --constraint requirements/dev.txt "${@:2}" \
    <<<$'googleapis-common-protos\ngrpcio\ngrpcio-status\nipykernel\nnbclient\npyyaml\nzstandard'
pin build - --constraint requirements/dev.txt "${@:2}" <<<$'hatchling\nsetuptools'
for versions in "4.0.1 4.0.0" "4.1.0 4.1.0"; do # Spark, then the Delta Lake of it
    pin "spark-${versions% *}" - --no-deps <<<"pyspark==${versions% *}"$'\n'"delta-spark==${versions#* }"
done
