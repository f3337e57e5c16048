#!/usr/bin/env bash
# A receiver of Web Push of another make, for the tests: the Python package http_ece, in a virtual environment of its own
# under target/. `install` may be repeated.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=target/push-receiver
say() { printf 'push-receiver: %s\n' "$*" >&2; }

case ${1:-} in
install)
    if "$dir/bin/python" -c 'import http_ece' 2>/dev/null; then
        exit 0
    fi
    mkdir -p target
    python3 -m venv "$dir" || { say "python3 has no venv: install python3-venv"; exit 1; }
    "$dir/bin/pip" install --quiet --disable-pip-version-check http_ece==1.2.1
    ;;
*)
    say "usage: $0 install"
    exit 2
    ;;
esac
