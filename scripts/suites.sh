#!/usr/bin/env bash
# Runs test executables one after the other: lines of "Cargo.toml <tab> name <tab> executable" come in. What a suite prints
# is shown in one piece when it has ended, so that two of these scripts can run side by side; all of it goes into the log,
# and what failed tests said into LOG.failed.
#
#   scripts/suites.sh LOG < LIST      exit 1 if a suite failed; the others run all the same
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$1
# What passing tests print (how many seeds, kills, what was skipped) is shown; the list of their names is not.
noise='^(test .* \.\.\. ok|running [0-9]+ tests?|successes:|---- .* stdout ----|proptest: FileFailurePersistence.*|    [a-z_:0-9]+|    crates/.* \(line [0-9]+\)|)$'
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0

while IFS=$'\t' read -r manifest name executable; do
    crate=$(basename "$(dirname "$manifest")")
    began=$SECONDS status=0
    # As cargo does it: in the directory of the crate.
    (cd "$(dirname "$manifest")" && exec "$executable" --show-output) >"$out" 2>&1 </dev/null || status=$?
    ((status == 0)) || failed=1
    {
        flock 9
        if ((status)); then
            # What failed tests said comes last in the output of a suite.
            { printf '\n== %s %s\n' "$crate" "$name" && sed -n '/^failures:$/,$p' "$out" | head -n 60 | cut -c 1-600; } >>"$log.failed"
        fi
        printf '\n== %s %s: %s, %d s\n' "$crate" "$name" "$([[ $status == 0 ]] && echo ok || echo "FAILED, exit code $status")" "$((SECONDS - began))"
        tee -a "$log" <"$out" | grep -vE "$noise"
    } 9>>"$log.lock"
done
exit "$failed"
