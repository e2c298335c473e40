#!/usr/bin/env bash
# Installs what the tests use of Debian, where it is missing and we are root; otherwise says what will be skipped.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"

missing=()
[[ "$(ldconfig -p 2>/dev/null)" == *libodbc.so.2* ]] || missing+=(unixodbc)     # for pyodbc
command -v "${CC:-cc}" >/dev/null || missing+=(gcc libc6-dev)                   # for tests/support/recording_odbc
{ command -v mariadbd && command -v my_print_defaults; } >/dev/null || missing+=(mariadb-server-core mariadb-client-core)  # no service
command -v zsh >/dev/null || missing+=(zsh)                                     # for tests/support/completing.py
command -v fish >/dev/null || missing+=(fish)                                   # likewise
command -v pgbouncer >/dev/null || missing+=(pgbouncer)                         # for tests/support/pgbouncer.py
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo >&2 "Not here, so that some tests will be skipped: ${missing[*]} (Debian: sudo apt-get install ${missing[*]})."
    exit 0
fi
echo "Installing ${missing[*]}"
log="$(mktemp)"
if apt-get update >"$log" 2>&1 &&
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    rm "$log"
else
    tail -n 5 "$log" >&2
    echo >&2 "apt-get could not install ${missing[*]} (all it said: $log); some tests will be skipped."
fi
