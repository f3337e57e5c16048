#!/usr/bin/env bash
# What an operator waits for among many dead letters, on both engines; the Kafka broker is its own and is stopped again
# whatever happens. Arguments go to the benchmark:
#
#   scripts/bench-letters.sh --quick
#   scripts/bench-letters.sh --engine embedded --n 10_000_000
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export REDRIVE_KAFKA_DIR=$PWD/target/kafka-bench REDRIVE_KAFKA_HEAP=${REDRIVE_KAFKA_HEAP:-1g}
cargo build --release --locked -p redrive-lab --features kafka --bin redrive-bench-letters
trap 'scripts/kafka.sh down' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
address=$(scripts/kafka.sh up)
target/release/redrive-bench-letters --brokers "$address" --broker-dir "$(cat "$REDRIVE_KAFKA_DIR/home")" "$@"
