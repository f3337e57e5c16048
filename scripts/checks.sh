#!/usr/bin/env bash
# What a build with all features does not show: each set of features by itself, the documentation, and what would be
# published. Shares the target directory with the tests, so that only the first run is slow.
#
#   scripts/checks.sh         all of it (`make checks`)
#   scripts/checks.sh quick   what CI runs: dependencies, documentation, tests with each feature left out, packages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Crates that are for users; the others break things on purpose.
published=(redrive-core redrive-api redrive redrive-postgres redrive-sinks redrive-server redrive-kafka redrive-lab redrive-cli)

step() { printf '== %s (after %d s)\n' "$*" "$SECONDS"; }

documentation() {
    step "documentation"
    RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --all-features --no-deps
    scripts/surface.sh
}

# Libraries as a user depends on them: each alone, so that none lives on the features that another asks for.
each_library() {
    step "libraries by themselves"
    for crate in redrive-core redrive-api redrive redrive-postgres redrive-sinks redrive-server; do
        cargo clippy --quiet --locked -p "$crate" -- -D warnings
    done
    # The library without its engine on disk.
    cargo clippy --quiet --locked -p redrive --no-default-features -- -D warnings
}

# The binary without Kafka, without its allocator, and without both; tests included, so that they keep building.
each_feature() {
    step "features of the binary"
    for features in "" kafka jemalloc; do
        cargo clippy --quiet --locked -p redrive-cli --no-default-features --features "$features" --all-targets -- -D warnings
    done
    cargo clippy --quiet --locked -p redrive-lab --no-default-features --all-targets -- -D warnings
}

# Each feature left out, with the tests of what can differ: a build without Kafka refuses its settings and has pages and help
# of its own; one without the allocator is the one of a musl system.
tests_without_kafka() {
    step "tests without Kafka"
    cargo test --quiet --locked -p redrive-cli --no-default-features --features jemalloc \
        --lib --bins --test configuration --test reference
}

tests_without_allocator() {
    step "tests without the allocator"
    cargo test --quiet --locked -p redrive-cli --no-default-features --features kafka --lib --bins
}

# Neither of them, and the library without its engine on disk.
tests_without_features() {
    step "without any feature"
    cargo check --quiet --locked -p redrive-cli --no-default-features
    cargo clippy --quiet --locked -p redrive --no-default-features -- -D warnings
    cargo test --quiet --locked -p redrive --no-default-features --lib
}

# Not verified by building: the crates depend on each other and are not in a registry, and the steps before have built them.
packages() {
    step "packages"
    local packages=() crate
    for crate in "${published[@]}"; do packages+=(-p "$crate"); done
    cargo package --quiet --locked --allow-dirty --no-verify --exclude-lockfile "${packages[@]}"
}

dependencies() {
    step "licences, bans, duplicates and sources"
    scripts/dependencies.py
    if command -v cargo-deny >/dev/null; then
        cargo deny --log-level error --all-features check licenses bans sources
    fi
}

case ${1:-all} in
quick)
    dependencies
    documentation
    tests_without_kafka
    tests_without_allocator
    tests_without_features
    packages
    ;;
all)
    dependencies
    each_library
    each_feature
    tests_without_kafka
    tests_without_allocator
    tests_without_features
    documentation
    packages
    ;;
*)
    sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
step "done"
