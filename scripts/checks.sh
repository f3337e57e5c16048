#!/usr/bin/env bash
# What a build with all features does not show: each set of features by itself, the documentation, and what would be
# published. Shares the target directory with the tests, so that only the first run is slow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Crates that are for users; the others break things on purpose.
published=(redrive-core redrive redrive-postgres redrive-sinks redrive-server redrive-kafka redrive-lab redrive-cli)

step() { printf '== %s (after %d s)\n' "$*" "$SECONDS"; }

step "features"
# Libraries as a user depends on them: each alone, so that none lives on the features that another asks for.
for crate in redrive-core redrive redrive-postgres redrive-sinks redrive-server; do
    cargo clippy --quiet --locked -p "$crate" -- -D warnings
done
# The library without its engine on disk.
cargo clippy --quiet --locked -p redrive --no-default-features -- -D warnings
# The binary without Kafka, without its allocator, and without both; tests included, so that they keep building.
for features in "" kafka jemalloc; do
    cargo clippy --quiet --locked -p redrive-cli --no-default-features --features "$features" --all-targets -- -D warnings
done
cargo clippy --quiet --locked -p redrive-lab --no-default-features --all-targets -- -D warnings

step "tests without default features"
cargo test --quiet --locked -p redrive-cli --no-default-features --lib --test configuration --test config_fixes

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --all-features --no-deps
scripts/surface.sh

step "packages"
# Not verified by building: the crates depend on each other and are not in a registry, and the steps above have built them.
packages=()
for crate in "${published[@]}"; do packages+=(-p "$crate"); done
cargo package --quiet --locked --allow-dirty --no-verify --exclude-lockfile "${packages[@]}"

step "licences, bans and sources"
if command -v cargo-deny >/dev/null; then
    cargo deny --log-level error --all-features check licenses bans sources
else
    echo "skipped: cargo-deny is not installed; make deny installs it"
fi
step "done"
