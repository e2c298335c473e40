#!/usr/bin/env bash
# Takes Microsoft's parser of T-SQL out of a wheel into an environment (.venv by default), for tests/support/scriptdom.py.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
environment="${1:-$here/../.venv}"
library=Microsoft.SqlServer.TransactSql.ScriptDom.dll
[ ! -e "$environment/scriptdom/$library" ] || exit 0

folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT
# The library is the same on every platform; the wheel's other files are not wanted, nor what it depends on.
if "$environment/bin/python" -m pip download --quiet --no-deps --require-hashes --only-binary :all: \
    --platform manylinux1_x86_64 --dest "$folder" --requirement "$here/scriptdom.txt" &&
    "$environment/bin/python" - "$folder" "$environment/scriptdom" "$library" <<'PYTHON'
import pathlib, sys, zipfile

folder, target, library = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as files:
    (inside,) = (each for each in files.namelist() if each.endswith(f"/{library}"))
    target.mkdir(exist_ok=True)
    (target / f"{library}.new").write_bytes(files.read(inside))
(target / f"{library}.new").rename(target / library)
PYTHON
then
    exit 0
fi
echo >&2 "Microsoft's parser of T-SQL could not be had (tests/scriptdom.txt); the tests that use it will be skipped."
