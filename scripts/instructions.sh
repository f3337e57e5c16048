#!/usr/bin/env bash
# What the happy path costs in instructions, before the health layer and now. Counted by valgrind, so the machine does not
# matter and a second run gives the same numbers. Takes a few minutes the first time.
#
#   scripts/instructions.sh [before]        before: the commit to compare with; the last one without the health layer
#
# Only the two crates that are counted are built optimised.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

before=${1:-064445e}
few=1000 many=11000

say() { printf 'instructions: %s\n' "$*" >&2; }

if ! command -v valgrind >/dev/null; then
    if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
        say "installing valgrind"
        apt-get update -qq >&2 </dev/null
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind >&2 </dev/null
    else
        say "valgrind is missing: install it"
        exit 1
    fi
fi

here=$PWD
out=$here/target/instructions
old=$out/before
mkdir -p "$out"
cleanup() { git worktree remove --force "$old" >/dev/null 2>&1 || true; }
trap cleanup EXIT
cleanup
git worktree add --quiet --force --detach "$old" "$before"
mkdir -p "$old/crates/redrive/examples"
if grep -q 'pub fn tick' "$old/crates/redrive/src/dispatch/machine.rs"; then
    cp crates/redrive/examples/instructions.rs "$old/crates/redrive/examples/instructions.rs"
else
    # The older library had neither views of its own nor a tick, and was told what a decision sees.
    sed -e '/not before the health layer/d' -e '/^fn views/,/end of views$/d' \
        -e 's/durable(ticket, now, /durable(ticket, /' -e 's/submitted(ticket, len, now)/submitted(ticket, len)/' \
        -e 's/Random(0))/Random(0), \&redrive::dispatch::Views::default())/' \
        crates/redrive/examples/instructions.rs >"$old/crates/redrive/examples/instructions.rs"
fi

build() { # directory
    local options=()
    for crate in redrive redrive-core; do
        options+=(--config "profile.dev.package.$crate.opt-level=3")
        options+=(--config "profile.dev.package.$crate.debug-assertions=false")
        options+=(--config "profile.dev.package.$crate.overflow-checks=false")
    done
    # Each in a directory of its own: to cargo the crates of two checkouts are the same.
    (cd "$1" && CARGO_TARGET_DIR=$2.built cargo build --quiet --locked -p redrive --example instructions "${options[@]}")
    cp "$2.built/debug/examples/instructions" "$2"
}

count() { # program case times
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$1" "$2" "$3" 2>&1 >/dev/null |
        awk '/Collected/ { print $NF }'
}

each() { # program case
    echo $((($(count "$1" "$2" "$many") - $(count "$1" "$2" "$few")) / (many - few)))
}

say "building $before"
build "$old" "$out/instructions-before"
say "building what is here"
build "$here" "$out/instructions-now"

printf '%-14s %10s %10s\n' '' "$before" now
for case in decide-done decide-retry dispatch; do
    printf '%-14s %10d %10d\n' "$case" "$(each "$out/instructions-before" "$case")" "$(each "$out/instructions-now" "$case")"
done
printf '%-14s %10s %10d\n' views - "$(each "$out/instructions-now" views)"
