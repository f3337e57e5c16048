#!/usr/bin/env bash
# All tests: installs what is missing, starts a private PostgreSQL and a private Kafka, runs every test and every example,
# and stops both again whatever happens. With REDRIVE_TEST_POSTGRES=postgres://… that server is used instead, and with
# REDRIVE_TEST_KAFKA=host:port that broker.
#
#   REDRIVE_TEST_PROFILE=release   build the tests with optimisation
#   REDRIVE_TEST_TIMEOUT=24h       how long `cargo test` may take; 45 minutes unless set
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${REDRIVE_TEST_PROFILE:-dev}
limit=${REDRIVE_TEST_TIMEOUT:-45m}
log=target/test.log
began=$SECONDS
their_broker=${REDRIVE_TEST_KAFKA:-}
mkdir -p target

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
    fi
    if ((status)); then
        grep -E '^test .* FAILED$|^error(\[|:)' "$log" 2>/dev/null | sort -u | head -n 20 || true
        echo "FAILED after $((SECONDS - began)) s; the output is in $log"
    else
        echo "all passed in $((SECONDS - began)) s"
    fi
    exit "$status"
}
rm -f "$log"
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
cargo test --locked --workspace --all-features --profile "$profile" --no-run

step "cargo test --workspace (at most $limit)"
# What passing tests print (how many seeds, kills, what was skipped) is shown; the list of their names is not.
noise='^(test .* \.\.\. ok|running [0-9]+ tests?|successes:|---- .* stdout ----|proptest: FileFailurePersistence.*|    [a-z_:0-9]+|    crates/.* \(line [0-9]+\)|)$'
timeout --foreground "$limit" \
    cargo test --locked --workspace --all-features --profile "$profile" --no-fail-fast -- --show-output \
    </dev/null 2>&1 | tee "$log" | grep --line-buffered -vE "$noise"

step "examples"
scripts/examples.sh
