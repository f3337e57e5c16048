#!/usr/bin/env bash
# Fetches the reference libraries of Standard Webhooks from PyPI, npm and Go's proxy into target/webhook-libs, where the
# tests of signatures find them. Versions are pinned. May be repeated: what is there is not fetched again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'webhook-libs: %s\n' "$*" >&2; }

python=1.1.0 pynacl=1.6.0 node=1.1.1
sources=crates/redrive-sinks/tests/verifiers
libs=target/webhook-libs
done=$libs/done-$python-$pynacl-$node-$(cat "$sources"/go/go.mod "$sources"/go/main.go | cksum | cut -d' ' -f1)
[[ ! -e $done ]] || exit 0
for program in python3 npm go; do
    command -v "$program" >/dev/null || { say "$program is missing"; exit 1; }
done
rm -rf "$libs"
mkdir -p "$libs/node"
say "fetching standardwebhooks from PyPI, npm and Go"
python3 -m pip install --quiet --disable-pip-version-check --no-input --target "$libs/python" \
    "standardwebhooks==$python" "pynacl==$pynacl" >&2
npm install --prefix "$libs/node" --silent --no-audit --no-fund "standardwebhooks@$node" >&2
(cd "$sources/go" && go build -o "$OLDPWD/$libs/verify-go" .) >&2
touch "$done"
