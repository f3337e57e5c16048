#!/usr/bin/env bash
# Runs every example of every crate and fails if one fails. An example that reads arguments belongs to a test,
# which calls it itself; it is only built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${REDRIVE_TEST_PROFILE:-dev}
log=target/examples.log
mkdir -p target
# With the features of the tests, so that nothing is built twice; run as programs for the same reason.
cargo build --quiet --locked --workspace --all-features --examples --profile "$profile"
built=${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}/examples

ran=0 failed=()
for file in crates/*/examples/*.rs; do
    crate=$(basename "$(dirname "$(dirname "$file")")")
    name=$(basename "$file" .rs)
    if grep -qE 'env::args' "$file"; then
        printf 'example %s/%s: built only, it needs arguments\n' "$crate" "$name"
        continue
    fi
    if timeout 120 "$built/$name" >"$log" 2>&1 </dev/null; then
        printf 'example %s/%s: ok\n' "$crate" "$name"
    else
        printf 'example %s/%s: FAILED\n' "$crate" "$name"
        sed 's/^/    /' "$log"
        failed+=("$crate/$name")
    fi
    ran=$((ran + 1))
done

if ((${#failed[@]})); then
    printf 'examples: %d of %d failed: %s\n' "${#failed[@]}" "$ran" "${failed[*]}"
    exit 1
fi
printf 'examples: %d ran, none failed\n' "$ran"
