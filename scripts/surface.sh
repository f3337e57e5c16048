#!/usr/bin/env bash
# Counts what the documentation of the library shows, and fails when it is more than a user should have to look through.
# Usage: scripts/surface.sh, after `cargo doc`; --list prints the items.
set -euo pipefail
cd "$(dirname "$0")/.."
items_max=150 modules_max=12
doc=${CARGO_TARGET_DIR:-target}/doc/redrive
[ -f "$doc/all.html" ] || { echo "no $doc/all.html; run: cargo doc -p redrive --no-deps --all-features" >&2; exit 1; }
list() { grep -oE '<li><a href="[^"#]+' "$doc/all.html" | sed 's/.*href="//; s/\.html$//'; }
[ "${1:-}" = --list ] && list
items=$(list | wc -l)
# The root is one of them.
modules=$(list | sed 's|[^/]*$||' | sort -u | wc -l)
echo "redrive: $items documented items in $modules modules (at most $items_max in $modules_max)"
[ "$items" -le "$items_max" ] && [ "$modules" -le "$modules_max" ]
