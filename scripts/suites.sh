#!/usr/bin/env bash
# Runs test executables one after the other until QUEUE is empty: lines of "Cargo.toml <tab> name <tab> executable". What a suite
# prints is shown in one piece when it has ended, so that two of these scripts can work on one queue, one from each end; all of it
# goes into the log, and what failed tests said into LOG.failed.
#
#   scripts/suites.sh LOG QUEUE first|last   exit 1 if a suite failed; the others run all the same
#   REDRIVE_TEST_AGAIN=1              a suite that failed gets a second run; what it said the first time is in LOG.failed, and
#                                     its name in LOG.again if it passed then
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$1 queue=$2 end=$3
# What passing tests print (how many seeds, kills, what was skipped) is shown; the list of their names is not.
noise='^(test .* \.\.\. ok|running [0-9]+ tests?|successes:|---- .* stdout ----|proptest: FileFailurePersistence.*|    [a-z_:0-9]+|    crates/.* \(line [0-9]+\)|)$'
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0

# As cargo does it: in the directory of the crate.
run() { (cd "$(dirname "$1")" && exec "$2" --show-output) >"$out" 2>&1 </dev/null; }

# What failed tests said comes last in the output of a suite.
said() {
    { printf '\n== %s %s\n' "$1" "$2" && sed -n '/^failures:$/,$p' "$out" | head -n 60 | cut -c 1-600; } >>"$log.failed"
}

# Takes the first or the last line out of the queue.
next() {
    flock 8
    if [[ $end == first ]]; then
        head -n 1 "$queue" && sed -i 1d "$queue"
    else
        tail -n 1 "$queue" && sed -i '$d' "$queue"
    fi
} 8>>"$queue.lock"

while IFS=$'\t' read -r manifest name executable < <(next) && [[ -n $executable ]]; do
    crate=$(basename "$(dirname "$manifest")")
    began=$SECONDS status=0
    run "$manifest" "$executable" || status=$?
    if ((status)); then
        said "$crate" "$name"
        if [[ -n ${REDRIVE_TEST_AGAIN:-} ]]; then
            status=0
            run "$manifest" "$executable" || status=$?
            if ((status)); then said "$crate" "$name"; else printf '%s %s\n' "$crate" "$name" >>"$log.again"; fi
        fi
    fi
    ((status == 0)) || failed=1
    {
        flock 9
        printf '\n== %s %s: %s, %d s\n' "$crate" "$name" "$([[ $status == 0 ]] && echo ok || echo "FAILED, exit code $status")" "$((SECONDS - began))"
        tee -a "$log" <"$out" | grep -vE "$noise"
    } 9>>"$log.lock"
done
exit "$failed"
