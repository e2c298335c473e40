#!/usr/bin/env bash
# Installs what a file of requirements/ pins, and this clone as the package, into an environment: install.sh PYTHON NAME
# No other file is installed or run than those whose hashes are noted, not even to build what comes as source (pyspark).
set -euo pipefail
cd "$(dirname "$0")/.."
install=("$1" -m pip install --quiet)
"${install[@]}" --require-hashes --requirement requirements/build.txt
"${install[@]}" --require-hashes --no-build-isolation --requirement "requirements/$2.txt"
"${install[@]}" --no-index --no-deps --no-build-isolation --editable .
