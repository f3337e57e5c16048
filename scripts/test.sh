#!/usr/bin/env bash
# All tests: installs what is missing, starts a private PostgreSQL and a private Kafka, runs every test and every example,
# and stops both again whatever happens. With REDRIVE_TEST_POSTGRES=postgres://… that server is used instead, and with
# REDRIVE_TEST_KAFKA=host:port that broker.
#
#   REDRIVE_TEST_PROFILE=release   build the tests with optimisation
#   REDRIVE_TEST_BACKTRACE=1       a trace with every panic
#   REDRIVE_TEST_AGAIN=1           a second run for a suite that failed; the summary names it (CI does this)
#   REDRIVE_TEST_TIMEOUT=24h       how long the suites may take; 45 minutes unless set
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${REDRIVE_TEST_PROFILE:-dev}
limit=${REDRIVE_TEST_TIMEOUT:-45m}
log=target/test.log
began=$SECONDS
their_broker=${REDRIVE_TEST_KAFKA:-}
mkdir -p target

# Many tests make handlers panic on purpose; their traces would bury what a failed test says.
export RUST_BACKTRACE=${REDRIVE_TEST_BACKTRACE:-0}

step() { printf '\n== %s (after %d s)\n' "$*" "$((SECONDS - began))"; }

summary() {
    local status=$?
    trap - EXIT INT TERM
    [[ -n ${REDRIVE_TEST_POSTGRES:-} ]] || scripts/postgres.sh stop || true
    [[ -n $their_broker ]] || scripts/kafka.sh down || true
    step "summary"
    if [[ -s $log ]]; then
        awk '/^test result:/ { suites++; passed += $4; failed += $6; ignored += $8 }
             END { printf "tests: %d passed, %d failed, %d ignored, in %d suites\n", passed, failed, ignored, suites }' "$log"
        grep '^skipped: ' "$log" | sort -u || true
        if [[ -s $log.again ]]; then
            printf 'FAILED ONCE and passed in a second run, so the test or the product depends on luck: %s\n' "$(sort -u "$log.again" | paste -sd ';')"
            cat "$log.failed"
        fi
    fi
    if ((status)); then
        cat "$log.failed" 2>/dev/null || true
        grep -E '^test .* FAILED$|^error(\[|:)' "$log" 2>/dev/null | sort -u | head -n 20 || true
        echo "FAILED after $((SECONDS - began)) s; the output is in $log"
    else
        echo "all passed in $((SECONDS - began)) s"
    fi
    exit "$status"
}
rm -f "$log" "$log.failed" "$log.again"
trap summary EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step "what the tests need"
scripts/tools.sh
[[ -n ${REDRIVE_TEST_POSTGRES:-} ]] || scripts/postgres.sh start >/dev/null
if [[ -z $their_broker ]]; then
    REDRIVE_TEST_KAFKA=$(scripts/kafka.sh up)
    export REDRIVE_TEST_KAFKA
fi

step "building the tests"
cargo test --locked --workspace --all-features --profile "$profile" --no-run --message-format json-render-diagnostics |
    jq -r 'select(.profile.test and .executable) | [.manifest_path, .target.name, .executable] | @tsv' >target/suites.tsv

# Two at a time, from the two ends of one queue: a suite that has to do with the broker waits most of the time, so the others
# run beside it.
step "$(wc -l <target/suites.tsv) suites (at most $limit)"
broker='/redrive-kafka(-faults)?/Cargo[.]toml|(readme|_kafka)$'
for has_broker in 1 0; do
    awk -F '\t' -v broker="$broker" -v on=$has_broker '(($1 ~ broker || $2 ~ broker) ? 1 : 0) == on' target/suites.tsv
done >target/suites.queue
failed=0
timeout --foreground "$limit" scripts/suites.sh "$log" target/suites.queue first &
beside=$!
timeout --foreground "$limit" scripts/suites.sh "$log" target/suites.queue last || failed=1
wait "$beside" || failed=1

step "examples in the documentation of the crates"
cargo test --locked --workspace --all-features --profile "$profile" --doc </dev/null 2>&1 | tee -a "$log" | grep -E '^(test result|error|test .* FAILED)' || failed=1
((failed == 0))

step "examples"
scripts/examples.sh
