#!/usr/bin/env bash
# The Kafka benchmark on a broker of its own, which is stopped again whatever happens. Arguments go to the benchmark:
#
#   scripts/bench-kafka.sh --quick
#   scripts/bench-kafka.sh --soak --seconds 1200 --rate 50000
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export REDRIVE_KAFKA_DIR=$PWD/target/kafka-bench REDRIVE_KAFKA_HEAP=${REDRIVE_KAFKA_HEAP:-1g}
cargo build --release --locked -p redrive-lab --features kafka --bin redrive-bench-kafka
trap 'scripts/kafka.sh down' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
address=$(scripts/kafka.sh up)
target/release/redrive-bench-kafka --brokers "$address" "$@"
