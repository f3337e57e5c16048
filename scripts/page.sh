#!/usr/bin/env bash
# The pages in headless Chromium. May be repeated.
#
#   scripts/page.sh install   make sure Chromium is there (apt-get, as root; otherwise says what to do)
#   scripts/page.sh           that, and pictures of the dashboard: plays `redrive demo` on a free port and writes
#                             docs/images/page-light.png and page-dark.png
#   scripts/page.sh push      that, and the two scripts of docs/guide/push.md, page and service worker. A real push service
#                             cannot be reached here, so the subscription itself may fail, but only for that reason
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'page: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

find_browser() {
    local name
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$name" && return
    done
    return 1
}

install_browser() {
    if find_browser >/dev/null; then
        say "found $(find_browser)"
        return
    fi
    command -v apt-get >/dev/null || die "no Chromium found; install it"
    [[ $(id -u) == 0 ]] || die "no Chromium found; run as root: apt-get install chromium-headless-shell"
    say "installing with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null
    # The small one first; releases before Debian 12 have only the whole browser.
    apt-get install -y -qq --no-install-recommends chromium-headless-shell >&2 </dev/null \
        || apt-get install -y -qq --no-install-recommends chromium >&2 </dev/null
    find_browser >/dev/null || die "apt-get succeeded, but there is no Chromium"
}

# Runs a script beside this one in the browser.
browse() {
    local script=$1
    shift
    PYTHONDONTWRITEBYTECODE=1 python3 "scripts/page/$script.py" "$(find_browser)" "$work/profile" "$@"
}

pictures() {
    cargo build --quiet --locked -p redrive-cli
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    # A job of a script ignores SIGINT unless job control is on; the demo is ended by it.
    set -m
    TMPDIR=$work "${CARGO_TARGET_DIR:-target}/debug/redrive" demo --listen "127.0.0.1:$port" \
        --outage-window 3s@14s >"$work/demo.log" 2>&1 </dev/null &
    demo=$!
    set +m
    for _ in $(seq 100); do
        grep -q dashboard "$work/demo.log" && break
        kill -0 "$demo" 2>/dev/null || die "the demo ended: $(cat "$work/demo.log")"
        sleep 0.1
    done
    mkdir -p docs/images
    browse pictures "http://127.0.0.1:$port/" docs/images
}

demo=
cleanup() {
    if [[ -n $demo ]]; then
        kill -INT "$demo" 2>/dev/null || true
        wait "$demo" 2>/dev/null || true
    fi
    # A browser that was killed may still be writing its profile.
    rm -rf -- "$work" 2>/dev/null || true
}

case ${1:-} in
install | push | '') install_browser ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
[[ ${1:-} != install ]] || exit 0
work=$(mktemp -d)
trap cleanup EXIT
case ${1:-} in
push) browse push docs/guide/push.md ;;
*) pictures ;;
esac
