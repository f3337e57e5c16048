#!/usr/bin/env bash
# The three-broker storm: builds what it needs and passes the arguments on. It starts its own brokers and stops them again.
#
#   scripts/storm.sh --seed 13 --records 100000
#   REDRIVE_STORM_PROFILE=release scripts/storm.sh --figures --sessions 10,20,45 --repeats 5
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${REDRIVE_STORM_PROFILE:-dev}
target=target/$([[ $profile == dev ]] && echo debug || echo "$profile")
scripts/kafka.sh jars
cargo build --quiet --locked --profile "$profile" -p redrive-cli --bin redrive
cargo build --quiet --locked --profile "$profile" -p redrive-kafka-faults --bin storm
exec "$target/storm" --redrive "$target/redrive" "$@"
